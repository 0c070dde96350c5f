# SPDX-License-Identifier: Apache-2.0
"""Translations with all that is known of them, as plain data for JSON."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar, Unpack

from kvnmt.data.links import Links
from kvnmt.data.vocabularies import Vocabulary
from kvnmt.data.vocabulary import EOS
from kvnmt.inference.config import SearchConfig
from kvnmt.inference.forced import forced_pair
from kvnmt.inference.score import LIMITS, Scored, score
from kvnmt.inference.trained import Trained
from kvnmt.inference.translate import Request, Translation, translate_nbest
from kvnmt.metrics.links import format_pharaoh

T = TypeVar("T")


def describe(
    run: Trained,
    lines: Sequence[str],
    config: SearchConfig,
    advance: Callable[[int], None] = lambda sentences: None,
    **request: Unpack[Request],
) -> list[dict[str, Any]]:
    """Translates lines and tells everything about the result.

    Alignments and the log-probabilities of tokens come from forced decoding of the
    translations, so they are those of `score`.

    Args:
        run: The trained model.
        lines: What is translated.
        config: How to search.
        advance: Called after every batch with how many sentences it held.
        **request: What else is asked for.
    """
    source = [run.vocabularies.source.encode(line) for line in lines]
    translations = translate_nbest(
        run.model, run.params, source, config, advance, **request
    )
    several = config.nbest > 1
    return read_back(run, lines, translations, nbest=several, limits=config.limits)


def read_back(
    run: Trained,
    lines: Sequence[str],
    translations: Sequence[Sequence[Translation]],
    *,
    nbest: bool,
    limits: tuple[int, int] = LIMITS,
) -> list[dict[str, Any]]:
    """Tells everything about translations that were found.

    Args:
        run: The trained model.
        lines: What was translated.
        translations: Of every line, those that are told, the best first.
        nbest: Whether a record has a list of them all, beside what is told of the best.
        limits: Most pairs and most source positions that are read at a time.
    """
    records = []
    for line, pairs in zip(lines, _scored(run, lines, translations, limits)):
        several = [_record(run, line, way, pair) for way, pair in pairs]
        records.append(several[0] | ({"nbest": several} if nbest else {}))
    return records


def linked(
    run: Trained,
    lines: Sequence[str],
    translations: Sequence[Sequence[Translation]],
    limits: tuple[int, int] = LIMITS,
) -> list[list[Links]]:
    """The links between the words of lines and of each of their translations.

    Args:
        run: A trained model that aligns.
        lines: What was translated.
        translations: Of every line.
        limits: As of `read_back`.
    """
    return [
        [_links(run, line, way.ids, pair) for way, pair in pairs]
        for line, pairs in zip(
            lines, _scored(run, lines, translations, limits, scored=False)
        )
    ]


def alignment_sizes(
    source: Sequence[Sequence[int]], translations: Sequence[Sequence[Translation]]
) -> Iterator[int]:
    """How many numbers the alignments of each line and all its translations are."""
    for x, ways in zip(source, translations, strict=True):
        yield (len(x) + 1) * sum(len(way.ids) + 1 for way in ways)


def grouped(flat: Iterable[T], parts: Iterable[Sequence[Any]]) -> Iterator[list[T]]:
    """Groups the results of parts by line; there is one result for each part."""
    results = iter(flat)
    return ([next(results) for _ in several] for several in parts)


def join(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Joins the records of a line's parts; a line of one part keeps its record."""
    if len(parts) == 1:
        return parts[0]
    translations = (part["translation"] for part in parts)
    sums = [part["log_prob"] for part in parts]
    return {
        "translation": " ".join(filter(None, translations)),
        "log_prob": None if None in sums else sum(sums),
        "parts": list(parts),
    }


def summary(run: Trained, translation: Translation) -> dict[str, Any]:
    """A translation and how probable it is; None where none has a probability."""
    return {
        "translation": run.vocabularies.target.decode(translation.ids),
        "score": finite(translation.score),
        "log_prob": finite(translation.log_prob),
    }


def scored_record(
    words: Vocabulary, ids: Sequence[int], pair: Scored
) -> dict[str, Any]:
    """How probable a translation is, and each of its tokens, the end included.

    Args:
        words: The target's vocabulary.
        ids: Of the translation, without EOS.
        pair: What forced decoding told of it.
    """
    return {
        "log_prob": finite(pair.log_prob),
        "tokens": words.pieces([*ids, EOS]),
        "token_log_probs": [*map(finite, pair.token_log_probs)],
    }


def finite(number: float) -> float | None:
    """A number, or None where JSON has none for it."""
    return number if math.isfinite(number) else None


def _scored(
    run: Trained,
    lines: Sequence[str],
    translations: Sequence[Sequence[Translation]],
    limits: tuple[int, int],
    scored: bool = True,
) -> Iterator[list[tuple[Translation, Scored]]]:
    """Every translation of every line, with what forced decoding tells of it."""
    source = [run.vocabularies.source.encode(line) for line in lines]
    beside = [x for x, ways in zip(source, translations) for _ in ways]
    ids = [way.ids for ways in translations for way in ways]
    sides = beside, ids
    pairs = iter(score(run.model, run.params, *sides, limits=limits, scored=scored))
    return ([(way, next(pairs)) for way in ways] for ways in translations)


def _record(
    run: Trained, line: str, translation: Translation, pair: Scored
) -> dict[str, Any]:
    """Everything about one translation, which was scored with its line."""
    record, ids = summary(run, translation), translation.ids
    spoken = bool(run.vocabularies.source.encode(line))  # else nothing was predicted
    record["tokens"] = run.vocabularies.target.pieces([*ids, EOS]) if spoken else []
    log_probs = pair.token_log_probs if spoken else []
    record["token_log_probs"] = [*map(finite, log_probs)]
    if pair.alignments:
        record["links"] = format_pharaoh(_links(run, line, ids, pair))
        rows = pair.alignments[-1] if spoken else []
        record["alignment"] = [[finite(round(float(a), 6)) for a in r] for r in rows]
    return record


def _links(run: Trained, line: str, ids: Sequence[int], pair: Scored) -> Links:
    translation = run.vocabularies.target.decode(ids)
    return forced_pair(run, line, translation, ids, pair).links()
