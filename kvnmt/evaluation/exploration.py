# SPDX-License-Identifier: Apache-2.0
"""Everything that the explorer shows of runs on sentences, as plain data."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kvnmt.console import counting
from kvnmt.data.vocabulary import EOS
from kvnmt.errors import UserError
from kvnmt.inference.config import SearchConfig, check_asked, check_search
from kvnmt.inference.ensemble import count_members
from kvnmt.inference.ids import check_counts, text_lines
from kvnmt.inference.recording import (
    Changes,
    SignedWeights,
    has_memory,
    has_signs,
    memory_changes,
    signed_weights,
)
from kvnmt.inference.score import Scored, rounds_of, score
from kvnmt.inference.translate import translate
from kvnmt.metrics.bleu import sentence_chrf
from kvnmt.model.config import ModelConfig
from kvnmt.pictures.explorer import Explorer
from kvnmt.runs.directory import Run

Advance: TypeAlias = Callable[[int], None]
Counting: TypeAlias = Callable[[str, int], AbstractContextManager[Advance]]
THOUSAND = 1000  # weights are written in thousandths


def explore(
    runs: dict[str, Run],
    source: Sequence[str],
    reference: Sequence[str] | None,
    search: SearchConfig,
    *,
    forced: bool = False,
    title: str = "kvnmt",
    counting: Counting = counting,
) -> Explorer:
    """Translates sentences with every run and tells how it read them.

    Args:
        runs: Trained models by name; none is a language model.
        source: What is translated.
        reference: Its translations by people, if there are any.
        search: How to search.
        forced: Show how the references are read instead of translating.
        title: Of the page.
        counting: Shows progress, as `kvnmt.console.counting` does.

    Returns:
        The page; a notebook shows it, and `write` makes a file of it.

    Raises:
        UserError: A run is a language model, a side is no list of lines, they differ in
            number, there is nothing to force, or an option of the search is not what it
            may be or does nothing.
    """
    for name, run in runs.items():
        if not run.model.reads_source:
            raise UserError(f"'{name}' is a language model, which reads no source.")
    source = text_lines(source)
    reference = None if reference is None else text_lines(reference)
    if reference is not None:
        check_counts(len(source), "source lines", len(reference), "references")
    elif forced:
        raise UserError("nothing can be forced without a reference; give one.")
    check_search(search)
    configs = [run.experiment.search for run in runs.values()]
    check_asked(search, SearchConfig(), *configs)
    read = []
    for name, run in runs.items():
        x = [run.vocabularies.source.encode(line) for line in source]
        if forced:
            y = [run.vocabularies.target.encode(line) for line in reference or ()]
        else:
            y = _translations(name, run, x, search, counting)
        compared = None if forced else reference  # with itself it is always alike
        read.append(outputs(name, run, x, y, compared, counting, search.limits))
    systems = [system(name, run) for name, run in runs.items()]
    sentences = [
        {
            "number": n + 1,
            "source": line,
            "reference": reference[n] if reference is not None else None,
            "difference": round(difference([record["text"] for record in records]), 2),
            "outputs": records,
        }
        for n, (line, *records) in enumerate(zip(source, *read))
    ]
    return Explorer({"title": title, "systems": systems, "sentences": sentences})


def difference(texts: Sequence[str]) -> float:
    """100 less the least chrF of a later system's output against the first's."""
    others = [sentence_chrf(text, texts[0]) for text in texts[1:]]
    return 100 - min(others, default=100.0)


def system(name: str, run: Run) -> dict[str, Any]:
    """What the explorer knows of a run before it reads a sentence."""
    members = count_members(run.params)
    return {
        "name": name,
        "members": members,  # of what has several, only a mean alignment is shown
        "rounds": rounds_of(run.model, run.params),
    }


def _translations(
    name: str,
    run: Run,
    source: Sequence[Sequence[int]],
    search: SearchConfig,
    counting: Counting,
) -> list[list[int]]:
    with counting(f"translating with {name}", len(source)) as advance:
        translations = translate(run.model, run.params, source, search, advance)
    return [translation.ids for translation in translations]


def outputs(
    name: str,
    run: Run,
    source: Sequence[Sequence[int]],
    target: Sequence[Sequence[int]],
    reference: Sequence[str] | None,
    counting: Counting,
    limits: tuple[int, int],
) -> list[dict[str, Any]]:
    """How a run read every sentence to write its translation.

    Args:
        name: Of the run, for people.
        run: The trained model.
        source: Ids without EOS.
        target: Ids of the translations.
        reference: By people, if there are any.
        counting: Shows progress.
        limits: Most pairs in a batch, and most positions of its longer side.

    Raises:
        UserError: A sentence is read with what is no finite number.
    """
    count, words = len(source), run.vocabularies
    with counting(f"reading {name}", count) as advance:
        ids = run.model, run.params, source, target
        scored = score(*ids, limits=limits, advance=advance)
    _check_finite(name, scored)
    pairs = run, source, target, counting, limits
    changes = _told(f"memory of {name}", has_memory, memory_changes, *pairs)
    weights = _told(f"weights of {name}", has_signs, signed_weights, *pairs)
    records = []
    for n, (x, y) in enumerate(zip(source, target)):
        text, chrf = words.target.decode(y), None
        if reference is not None:
            chrf = round(sentence_chrf(text, reference[n]), 2)
        record = {
            "text": text,
            "score": chrf,
            "source": words.source.pieces([*x, EOS]),
            "target": words.target.pieces([*y, EOS]),
            "memory": _memory(changes[n]),
            "weights": _weights(weights[n]),
        }
        looks = scored[n].self_attention if count_members(run.params) == 1 else []
        records.append(record | _reading(scored[n], looks))
    return records


def _check_finite(name: str, scored: Sequence[Scored]) -> None:
    """Makes sure that there is something to show of every sentence."""
    for number, pair in enumerate(scored, 1):
        read = pair.token_log_probs, *pair.alignments, *pair.self_attention
        if not all(np.isfinite(numbers).all() for numbers in read):
            raise UserError(
                f"'{name}' reads line {number} with numbers that are not finite; take "
                "an earlier checkpoint."
            )


def _told(
    what: str,
    has: Callable[[ModelConfig], bool],
    tell: Callable[..., Sequence[Any]],
    run: Run,
    source: Sequence[Sequence[int]],
    target: Sequence[Sequence[int]],
    counting: Counting,
    limits: tuple[int, int],
) -> Sequence[Any]:
    """What a mechanism tells of every sentence; None where it has nothing to tell."""
    config = run.experiment.model
    if count_members(run.params) > 1 or not has(config):
        return [None] * len(source)
    with counting(what, len(source)) as advance:
        return tell(config, run.params, source, target, advance, limits)


def _reading(scored: Scored, looks: Sequence[NDArray[np.floating]]) -> dict[str, Any]:
    return {
        "log_prob": round(scored.log_prob, 4),
        "token_log_probs": [round(value, 4) for value in scored.token_log_probs],
        "rounds": [_thousandths(matrix) for matrix in scored.alignments],
        "self_attention": [_thousandths(look) for look in looks] or None,
    }


def _memory(change: Changes | None) -> list[dict[str, Any]] | None:
    if change is None:
        return None
    rounds = zip(*change)
    return [
        {kind: _rounded(matrix) for kind, matrix in zip(Changes._fields, matrices)}
        for matrices in rounds
    ]


def _weights(weights: SignedWeights | None) -> list[dict[str, Any]] | None:
    if weights is None:
        return None
    return [
        {"signed": _rounded(signed), "own": _thousandths(own)}
        for signed, own in zip(*weights)
    ]


def _thousandths(matrix: NDArray[np.floating]) -> list[Any]:
    return np.rint(THOUSAND * matrix).astype(int).tolist()


def _rounded(numbers: NDArray[np.floating]) -> list[Any]:
    """Three digits of each number, however small: slots may fade to almost nothing."""
    if numbers.ndim:
        return [_rounded(part) for part in numbers]
    return float(f"{numbers:.3g}")  # pyright: ignore
