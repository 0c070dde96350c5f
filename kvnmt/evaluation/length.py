# SPDX-License-Identifier: Apache-2.0
"""BLEU by the length of the source."""

from collections.abc import Sequence

from kvnmt.data.words import split_words
from kvnmt.evaluation.base import Column, Report, System, Test, check_bleu, need
from kvnmt.metrics.breakdown import LENGTHS, Part, bleu_by

PICTURE = "bleu-by-length"


def parts(test: Test, systems: Sequence[System]) -> dict[str, list[Part]]:
    """The buckets of every system; without a source, by length of the reference."""
    lengths = [len(split_words(line)) for line in test.source or test.reference]
    return {
        system.name: bleu_by(lengths, LENGTHS, system.statistics(test))
        for system in systems
    }


def check(test: Test, systems: Sequence[System]) -> None:
    """Needs the source."""
    check_bleu(test, systems)
    need(test.source, "--source")


def measure(test: Test, systems: Sequence[System]) -> Report:
    """A row for each bucket of lengths, a column for each system."""
    title, found = "BLEU by words of the source", parts(test, systems)
    return by_bucket(title, "words", found, test.unsegmented)


def by_bucket(
    title: str, what: str, parts: dict[str, list[Part]], notes: Sequence[str]
) -> Report:
    """A row for each bucket, a column for each system; further notes."""
    columns = [Column("bucket", what), Column("sentences", "sentences", "{:,}")]
    columns += [Column(("bleu", name), name, "{:.2f}") for name in parts]
    rows = []
    for same in zip(*parts.values()):
        if not same[0].sentences:
            continue
        scores = {name: part.bleu for name, part in zip(parts, same)}
        row = {"bucket": same[0].label, "sentences": same[0].sentences}
        rows.append(row | {"bleu": scores})
    return Report(title, columns, rows, ["corpus BLEU of each bucket", *notes])
