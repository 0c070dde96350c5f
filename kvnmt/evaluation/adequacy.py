# SPDX-License-Identifier: Apache-2.0
"""Over- and under-translation; see `kvnmt.metrics.adequacy` for what each means."""

from collections.abc import Sequence
from typing import Any

from kvnmt.data.words import split_words
from kvnmt.evaluation.base import Column, Report, System, Test, need, unlinked
from kvnmt.metrics.adequacy import (
    MASS,
    MOST,
    Coverage,
    coverage_by_attention,
    coverage_by_gold,
    repeated_ngrams,
)

BY_GOLD = (
    Column("dropped", "dropped", "{:.2%}"),
    Column("repeated", "repeated", "{:.2%}"),
    Column("invented", "invented", "{:.2%}"),
)
BY_ATTENTION = (
    Column("unread", "unread", "{:.2%}"),
    Column("overread", "overread", "{:.2%}"),
)
BY_TEXT = (
    Column("repeated_1", "repeated 1-grams", "{:+.2%}"),
    Column("repeated_2", "2-grams", "{:+.2%}"),
    Column("repeated_3", "3-grams", "{:+.2%}"),
    Column("repeated_4", "4-grams", "{:+.2%}"),
    Column("words_ratio", "words ratio", "{:.3f}"),
)
GOLD_NOTE = (
    "dropped, repeated: share of linked source words whose translation is missing from "
    "the output or there too often; invented: output words that the reference has not"
)
ATTENTION_NOTE = (
    f"unread: share of source words with attention below {MASS} and no link; overread: "
    f"with more links than in the gold and one, without gold more than {MOST}"
)
TEXT_NOTE = "repeated n-grams: share repeated within a sentence, less the reference's"


def check(test: Test, systems: Sequence[System]) -> None:
    """Needs the source to see what runs attend to."""
    if any(system.rounds for system in systems):
        need(test.source, "--source")


def measure(test: Test, systems: Sequence[System]) -> Report:
    """What was dropped and repeated, as exactly as the input allows."""
    rows, notes = [], [TEXT_NOTE, *test.unsegmented]
    columns = [Column("system", "system")]
    if test.gold:
        bare = unlinked(test, "no word of them is looked at, but by attention")
        columns, notes = [*columns, *BY_GOLD], [GOLD_NOTE, *bare, *notes]
    if any(system.rounds for system in systems):
        columns, notes = [*columns, *BY_ATTENTION], [*notes, ATTENTION_NOTE]
    for system in systems:
        row: dict[str, Any] = {"system": system.name, **_by_text(test, system)}
        if test.gold:
            row |= _by_gold(test, system)
        if system.rounds:
            row |= _by_attention(test, system)
        rows.append(row)
    return Report("adequacy", [*columns, *BY_TEXT], rows, notes)


def _by_gold(test: Test, system: System) -> dict[str, float]:
    assert test.gold is not None
    total = Coverage()
    for lines in zip(test.reference, test.gold, system.hypotheses):
        reference, gold, hypothesis = lines
        total += coverage_by_gold(
            split_words(reference),
            gold.possible,
            split_words(hypothesis),
            stem=lambda word: word[: test.stem],
        )
    return {
        "dropped": total.under,
        "repeated": total.over,
        "invented": total.invention,
    }


def _by_attention(test: Test, system: System) -> dict[str, float]:
    total = Coverage()
    forced = system.forced(test, "hypothesis")
    for n, pair in enumerate(forced):
        gold = test.gold[n] if test.gold else None
        total += coverage_by_attention(
            pair.matrix(), pair.links(), gold, readable=set(pair.source)
        )
    return {"unread": total.under, "overread": total.over}


def _by_text(test: Test, system: System) -> dict[str, float]:
    output, reference = (
        [split_words(line) for line in lines]
        for lines in (system.hypotheses, test.reference)
    )
    figures = {
        f"repeated_{n}": repeated_ngrams(output, n) - repeated_ngrams(reference, n)
        for n in range(1, 5)
    }
    words = sum(map(len, reference))
    return figures | {"words_ratio": sum(map(len, output)) / words if words else 0.0}
