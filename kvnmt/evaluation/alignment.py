# SPDX-License-Identifier: Apache-2.0
"""Alignment error of the attention under forced decoding of the references."""

import statistics
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, get_args

from kvnmt.data.links import Links
from kvnmt.data.words import split_words
from kvnmt.evaluation.base import (
    Column,
    LackingError,
    Report,
    System,
    Test,
    counted_otherwise,
    force,
    need,
    unlinked,
)
from kvnmt.metrics.alignment import (
    alignment_error_rate,
    error_rates,
    link_counts,
    soft_alignment_error_rate,
)
from kvnmt.metrics.links import Gold, Heuristic, diagonal, invert, symmetrize
from kvnmt.metrics.significance import bootstrap, interval, seed_of_environment

COLUMNS = (
    Column("system", "system"),
    Column("aer", "AER", "{:.1%}"),
    Column("half_interval", "±", "{:.1%}"),
    Column("p", "p", "{:.3f}"),
    Column("precision", "precision", "{:.1%}"),
    Column("recall", "recall", "{:.1%}"),
    Column("soft_aer", "soft AER", "{:.1%}"),
    Column("mean_aer", "mean of sentences", "{:.1%}"),
    Column("links", "links", "{:,}"),
)
NOTE = (
    "one link for each target token, to the source token it attends to most; none to "
    "or from EOS; words are linked if pieces are; counts are summed over the corpus"
)
DIAGONAL = "the diagonal"
DIAGONAL_NOTE = (
    f"{DIAGONAL}: each target word to the source word at the same share of its sentence"
)
SPREAD = "±: half of what AER spans in 95 of 100 resamples of the sentences"
AGAINST = "p: paired bootstrap over the sentences against {}, two-sided"


def check(test: Test, systems: Sequence[System]) -> None:
    """Needs gold links, somebody who aligns, and a seed for the resamples."""
    seed_of_environment()
    need(test.gold, "--gold")
    need(test.source, "--source")
    if not test.aligners and not any(system.rounds for system in systems):
        names = ", ".join(f"'{system.name}'" for system in systems)
        raise LackingError(
            f"of {names} none is a run with attention; name one, or give --links, or "
            "say with --measures what else to take"
        )


def measure(test: Test, systems: Sequence[System]) -> Report:
    """AER of every system and round, of directions joined, aligners, the diagonal."""
    gold = need(test.gold, "--gold")
    aligned = [*_aligned(test, systems, gold)]
    name = next((s.name for s in systems if s.rounds), next(iter(test.aligners), ""))
    first = next(one for one in aligned if one.name == name)
    rows = [_row(one, gold, None if one is first else first) for one in aligned]
    notes = [NOTE, DIAGONAL_NOTE, *([SPREAD] if len(gold) > 1 else [])]
    notes.append(AGAINST.format(f"'{name}'"))
    others = [
        f"'{system.name}' does not align" for system in systems if not system.rounds
    ]
    bare = unlinked(test, "whatever is linked there counts as wrong")
    bare += counted_otherwise(test)
    others += test.unsegmented
    return Report("alignment error", COLUMNS, rows, [*notes, *bare, *others])


def error_of(system: System, test: Test) -> float:
    """The AER of a system that aligns, in the last round, as `measure` has it."""
    links = [pair.links() for pair in system.forced(test, "reference")]
    return alignment_error_rate(links, need(test.gold, "--gold")).aer


class _Aligned(NamedTuple):
    """What a row is about."""

    name: str
    links: Sequence[Links]
    soft_aer: float | None = None


def _aligned(
    test: Test, systems: Sequence[System], gold: Sequence[Gold]
) -> Iterator[_Aligned]:
    reverse = _reverse(test, systems)
    if reverse:
        yield _Aligned("the other direction", reverse)
    for system in filter(lambda system: system.rounds, systems):
        forced = system.forced(test, "reference")
        for r in range(system.rounds):
            last = r == system.rounds - 1
            name = system.name if last else f"{system.name}, round {r + 1}"
            soft = soft_alignment_error_rate([pair.matrix(r) for pair in forced], gold)
            yield _Aligned(name, [pair.links(r) for pair in forced], soft.aer)
        if reverse:
            forward = [pair.links() for pair in forced]
            for how in get_args(Heuristic):
                joined = [symmetrize(a, b, how) for a, b in zip(forward, reverse)]
                yield _Aligned(f"{system.name}, {how}", joined)
    for name, sentences in test.aligners.items():
        yield _Aligned(name, [sentence.possible for sentence in sentences])
    pairs = zip(need(test.source, "--source"), test.reference)
    sizes = ([len(split_words(line)) for line in pair] for pair in pairs)
    yield _Aligned(DIAGONAL, [diagonal(*size) for size in sizes])


def _row(
    one: _Aligned, gold: Sequence[Gold], baseline: _Aligned | None
) -> dict[str, Any]:
    """The figures of links, with p if there is a baseline."""
    counts = link_counts(one.links, gold)
    each, bounds = error_rates(counts).tolist(), interval(counts, error_rates)
    row: dict[str, Any] = {
        "system": one.name,
        **vars(alignment_error_rate(one.links, gold)),
        "interval": bounds,
        "half_interval": bounds and (bounds[1] - bounds[0]) / 2,
        "mean_aer": statistics.fmean(each),
        "links": sum(map(len, one.links)),
        "sentences": each,
    }
    if baseline:
        pair, seed = (link_counts(baseline.links, gold), counts), seed_of_environment()
        row["p"] = bootstrap(*pair, error_rates, seed)
    return row if one.soft_aer is None else row | {"soft_aer": one.soft_aer}


def _reverse(test: Test, systems: Sequence[System]) -> list[Links] | None:
    if test.reverse is None or test.source is None:
        return None
    pairs, name = (test.reference, test.source), "the other direction"
    forced = force(test.reverse, *pairs, name, systems[0].limits)
    return [invert(one.links()) for one in forced]
