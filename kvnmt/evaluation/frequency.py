# SPDX-License-Identifier: Apache-2.0
"""BLEU and single words by how often training saw them."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from kvnmt.console import counting
from kvnmt.data import sources
from kvnmt.data.config import DataConfig
from kvnmt.data.sources import TextReader
from kvnmt.data.vocabulary import count_words
from kvnmt.errors import UserError
from kvnmt.evaluation.base import (
    Column,
    LackingError,
    Report,
    System,
    Test,
    check_bleu,
    need,
)
from kvnmt.evaluation.length import by_bucket
from kvnmt.metrics.breakdown import (
    FREQUENCIES,
    bleu_by,
    labels,
    rarest,
    words_by_frequency,
)
from kvnmt.runs.directory import Run

NOTE = "counted in the training text of the first run"
WORDS = (
    Column("bucket", "seen in training"),
    Column("wanted", "words", "{:,}"),
)


def check(test: Test, systems: Sequence[System]) -> None:
    """Needs the source, and the training text of a run where it was."""
    check_bleu(test, systems)
    need(test.source, "--source")
    data = _run(systems).experiment.data
    for path in (data.source, data.target, data.pairs):
        # Whoever made the run may have named something that never ends.
        if path and not os.path.isfile(path):  # nor one that is out of reach
            place = "" if path.is_absolute() else ", seen from the current folder"
            raise LackingError(
                f"the training text is not there: '{path}' is no file{place}"
            )
    with _told():
        _open(data)


def measure(test: Test, systems: Sequence[System]) -> list[Report]:
    """BLEU by the rarest source word, and F1 of target words by frequency."""
    counts = _count(_run(systems))
    rare = rarest(need(test.source, "--source"), counts[0])
    parts = {
        system.name: bleu_by(rare, FREQUENCIES, system.statistics(test))
        for system in systems
    }
    title = "BLEU by the rarest word of the source"
    notes = [NOTE, *test.unsegmented]
    first = by_bucket(title, "seen in training", parts, notes)
    return [first, _words(test, systems, counts[1])]


def _run(systems: Sequence[System]) -> Run:
    """The first run."""
    for system in systems:
        if system.run:
            return system.run
    raise LackingError("no system is a run, whose training text is counted")


def _open(data: DataConfig) -> TextReader:
    """The training text; links are not counted."""
    return sources.open_text(replace(data, links=None), "train")


def _count(run: Run) -> tuple[Counter[str], Counter[str]]:
    """Words of the training text, which must still be where it was."""
    counts: tuple[Counter[str], Counter[str]] = Counter(), Counter()
    with _told():
        text = _open(run.experiment.data)
        with counting("counting words", text.pairs) as advance:
            for block in text.blocks():
                for counter, side in zip(counts, (block.source, block.target)):
                    counter.update(
                        count_words(line.decode(errors="replace") for line in side)
                    )
                advance(len(block.source))
    return counts


@contextmanager
def _told() -> Iterator[None]:
    """Turns an error of the training text into a `LackingError`."""
    try:
        yield
    except UserError as error:
        reason = str(error).rstrip(".")
        raise LackingError(f"the training text is not there: {reason}") from None


def _words(test: Test, systems: Sequence[System], counts: Counter[str]) -> Report:
    scores = {
        system.name: words_by_frequency(system.hypotheses, test.reference, counts)
        for system in systems
    }
    kinds = ("precision", "recall", "f1")
    rows = []
    for label in labels(FREQUENCIES):
        found = {n: b for n, every in scores.items() for b in every if b.label == label}
        if found:
            row: dict[str, Any] = {"bucket": label}
            row |= {k: {n: getattr(b, k) for n, b in found.items()} for k in kinds}
            rows.append(row | {"wanted": next(iter(found.values())).wanted})
    columns = [*WORDS, *(Column(("f1", name), name, "{:.1%}") for name in scores)]
    notes = [NOTE, *test.unsegmented]
    return Report("F1 of target words by frequency", columns, rows, notes)
