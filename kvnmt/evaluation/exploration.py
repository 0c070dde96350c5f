# SPDX-License-Identifier: Apache-2.0
"""Everything that the explorer shows of runs on sentences, as plain data."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvnmt.data.vocabulary import EOS
from kvnmt.inference.memory_changes import Changes, has_memory, memory_changes
from kvnmt.inference.program import SearchConfig
from kvnmt.inference.score import Scored, rounds_of, score
from kvnmt.inference.translate import translate
from kvnmt.metrics.bleu import sentence_chrf
from kvnmt.runs.directory import Run

THOUSAND = 1000  # weights are written in thousandths


def explore(
    runs: dict[str, Run],
    source: Sequence[str],
    reference: Sequence[str] | None,
    search: SearchConfig,
    *,
    forced: bool = False,
    title: str = "kvnmt",
    counting: Callable[[str, int], Any],
) -> dict[str, Any]:
    """Translates sentences with every run and tells how it read them.

    Args:
        runs: Trained models by name; none is a language model or an ensemble.
        source: What is translated.
        reference: Its translations by people, if there are any.
        search: How to search.
        forced: Show how the references are read instead of translating.
        title: Of the page.
        counting: Shows progress, as `kvnmt.console.counting` does.

    Returns:
        What `kvnmt.pictures.explorer.write_explorer` writes; the format is there.
    """
    outputs = [
        _outputs(name, run, source, reference, search, forced, counting)
        for name, run in runs.items()
    ]
    systems = [
        {
            "name": name,
            "rounds": rounds_of(run.model, run.params),
            "memory": has_memory(run.experiment.model),
            "self_attention": any(one["self_attention"] is not None for one in own),
        }
        for (name, run), own in zip(runs.items(), outputs)
    ]
    sentences = [
        {
            "number": n + 1,
            "source": line,
            "reference": reference[n] if reference is not None else None,
            "difference": round(_difference([one["text"] for one in own]), 2),
            "outputs": own,
        }
        for n, (line, *own) in enumerate(zip(source, *outputs))
    ]
    return {"title": title, "systems": systems, "sentences": sentences}


def _outputs(
    name: str,
    run: Run,
    source: Sequence[str],
    reference: Sequence[str] | None,
    search: SearchConfig,
    forced: bool,
    counting: Callable[[str, int], Any],
) -> list[dict[str, Any]]:
    words, given = run.vocabularies, (run.model, run.params)
    x = [words.source.encode(line) for line in source]
    if forced:
        assert reference is not None
        y = [words.target.encode(line) for line in reference]
    else:
        with counting(f"translating with {name}", len(x)) as advance:
            y = [found.ids for found in translate(*given, x, search, advance)]
    with counting(f"reading {name}", len(x)) as advance:
        scored = score(*given, x, y, advance=advance)
    changes: Sequence[Changes | None] = [None] * len(x)
    if has_memory(run.experiment.model):
        with counting(f"memory of {name}", len(x)) as advance:
            changes = memory_changes(run.experiment.model, run.params, x, y, advance)
    texts = [words.target.decode(ids) for ids in y]
    expected = [None] * len(x) if reference is None else reference
    return [
        {
            "text": text,
            "score": None if wanted is None else round(sentence_chrf(text, wanted), 2),
            "log_prob": round(one.log_prob, 4),
            "source": words.source.pieces([*read, EOS]),
            "target": words.target.pieces([*ids, EOS]),
            **_read(one),
            "memory": _memory(change),
        }
        for read, ids, text, wanted, one, change in zip(
            x, y, texts, expected, scored, changes
        )
    ]


def _read(one: Scored) -> dict[str, Any]:
    looks = one.self_attention
    return {
        "token_log_probs": [round(value, 4) for value in one.token_log_probs],
        "rounds": [_thousandths(matrix) for matrix in one.alignments],
        "self_attention": _thousandths(looks[0]) if looks else None,
    }


def _memory(change: Changes | None) -> list[dict[str, Any]] | None:
    if change is None:
        return None
    rounds = zip(*change)
    return [
        {kind: _rounded(matrix) for kind, matrix in zip(Changes._fields, matrices)}
        for matrices in rounds
    ]


def _thousandths(matrix: NDArray[np.floating]) -> list[list[int]]:
    return np.rint(THOUSAND * matrix).astype(int).tolist()


def _rounded(matrix: NDArray[np.floating]) -> list[list[float]]:
    """Three places of lengths that are of the order of one."""
    return np.round(matrix.astype(float), 3).tolist()


def _difference(texts: Sequence[str]) -> float:
    """100 less the least chrF of a later system's output against the first's."""
    others = [sentence_chrf(text, texts[0]) for text in texts[1:]]
    return 100 - min(others, default=100.0)
