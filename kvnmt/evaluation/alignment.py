# SPDX-License-Identifier: Apache-2.0
"""Alignment error of the attention under forced decoding of the references."""

import statistics
from collections.abc import Sequence
from typing import Any, get_args

from kvnmt.data.links import Links
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
from kvnmt.metrics.alignment import alignment_error_rate, soft_alignment_error_rate
from kvnmt.metrics.links import Gold, Heuristic, invert, symmetrize

COLUMNS = (
    Column("system", "system"),
    Column("aer", "AER", "{:.1%}"),
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


def check(test: Test, systems: Sequence[System]) -> None:
    """Needs gold links and somebody who aligns."""
    need(test.gold, "--gold")
    need(test.source, "--source")
    if not test.aligners and not any(system.rounds for system in systems):
        names = ", ".join(f"'{system.name}'" for system in systems)
        raise LackingError(
            f"of {names} none is a run with attention; name one, or give --links, or "
            "say with --measures what else to take"
        )


def measure(test: Test, systems: Sequence[System]) -> Report:
    """AER of every system, round by round, of both directions joined, of aligners."""
    gold, rows = need(test.gold, "--gold"), []
    reverse = _reverse(test, systems)
    if reverse:
        rows.append(_row("the other direction", reverse, gold))
    for system in filter(lambda system: system.rounds, systems):
        forced = system.forced(test, "reference")
        for r in range(system.rounds):
            last = r == system.rounds - 1
            name = system.name if last else f"{system.name}, round {r + 1}"
            links = [pair.links(r) for pair in forced]
            rows.append(_row(name, links, gold))
            soft = soft_alignment_error_rate([pair.matrix(r) for pair in forced], gold)
            rows[-1]["soft_aer"] = soft.aer
        if reverse:
            forward = [pair.links() for pair in forced]
            for how in get_args(Heuristic):
                joined = [symmetrize(a, b, how) for a, b in zip(forward, reverse)]
                rows.append(_row(f"{system.name}, {how}", joined, gold))
    for name, aligned in test.aligners.items():
        rows.append(_row(name, [sentence.possible for sentence in aligned], gold))
    others = [
        f"'{system.name}' does not align" for system in systems if not system.rounds
    ]
    bare = unlinked(test, "whatever is linked there counts as wrong")
    bare += counted_otherwise(test)
    return Report("alignment error", COLUMNS, rows, [NOTE, *bare, *others])


def _row(name: str, links: Sequence[Links], gold: Sequence[Gold]) -> dict[str, Any]:
    whole = alignment_error_rate(links, gold)
    each = [alignment_error_rate([a], [g]).aer for a, g in zip(links, gold)]
    return {
        "system": name,
        **vars(whole),
        "mean_aer": statistics.fmean(each),
        "links": sum(map(len, links)),
        "sentences": each,
    }


def _reverse(test: Test, systems: Sequence[System]) -> list[Links] | None:
    if test.reverse is None or test.source is None:
        return None
    pairs, name = (test.reference, test.source), "the other direction"
    forced = force(test.reverse, *pairs, name, systems[0].limits)
    return [invert(one.links()) for one in forced]
