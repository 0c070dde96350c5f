# SPDX-License-Identifier: Apache-2.0
"""The contract of every measure: systems on a test set in, a report out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from rich.markup import escape
from rich.table import Table

from kvnmt.console import counting
from kvnmt.data.words import split_words, word_numbers
from kvnmt.inference.score import Scored, rounds_of, score_lines
from kvnmt.metrics.alignment import hard_links, word_links, word_matrix
from kvnmt.metrics.bleu import Settings, sentence_statistics
from kvnmt.metrics.links import Gold, Links
from kvnmt.metrics.trees import Tree
from kvnmt.runs.directory import Run


class LackingError(Exception):
    """What a measure needs is not there; the message says what, in some words."""


class Column(NamedTuple):
    """A column of a table for people: which value of a row, and how it is written."""

    key: str | tuple[str, str]  # a value of a row, or of a dictionary in it
    heading: str
    form: str = "{}"  # of str.format


class Report(NamedTuple):
    """What a measure found, for people and for machines."""

    title: str
    columns: Sequence[Column]
    rows: list[dict[str, Any]]  # with more than the columns show, perhaps
    notes: Sequence[str] = ()  # below the table: signatures, thresholds, conventions


class Forced(NamedTuple):
    """One pair under forced decoding, and which word each of its tokens belongs to."""

    scored: Scored
    source: list[int]  # word of every source token
    target: list[int]
    counts: tuple[int, int]  # words of source and target

    def links(self, r: int = -1) -> Links:
        """Hard links of a round between words."""
        pieces = hard_links(
            self.scored.alignments[r], len(self.source), len(self.target)
        )
        return word_links(pieces, self.source, self.target)

    def matrix(self, r: int = -1) -> NDArray[np.floating]:
        """Attention of a round between words, [target, source]."""
        rounds = self.scored.alignments
        return word_matrix(rounds[r], self.source, self.target, self.counts)


@dataclass
class System:
    """What is measured: translations, and the run they come from if there is one."""

    name: str
    translate: Callable[[], list[str]]  # called once, if a measure needs it
    run: Run | None = None
    counted: dict[Settings, NDArray[np.int64]] = field(default_factory=dict)
    _forced: dict[str, list[Forced]] = field(default_factory=dict)

    @cached_property
    def hypotheses(self) -> list[str]:
        """Its translations, a line for each reference."""
        return self.translate()

    @cached_property
    def rounds(self) -> int:
        """How many alignments its run gives; 0 without a run or attention."""
        return rounds_of(self.run.model, self.run.params) if self.run else 0

    def forced(
        self, test: "Test", what: Literal["reference", "hypothesis"]
    ) -> list[Forced]:
        """Forced decoding of the references or of its own translations, done once."""
        if self.run is None or test.source is None:
            raise LackingError(f"'{self.name}' is not a run that reads --source")
        if what not in self._forced:
            target = test.reference if what == "reference" else self.hypotheses
            self._forced[what] = force(self.run, test.source, target, self.name)
        return self._forced[what]


@dataclass
class Test:
    """The text that systems are measured on, and what else is known of it."""

    __test__ = False  # not a test of pytest

    reference: list[str]
    source: list[str] | None = None
    gold: list[Gold] | None = None  # alignments of source and reference by people
    aligners: dict[str, list[Gold]] = field(default_factory=dict)  # other programs'
    reverse: Run | None = None  # from the language of the reference to the source's
    brackets: list[Tree] | None = None  # of the references
    settings: Settings = Settings()
    stem: int | None = None  # letters that tell a word, without its inflection

    def statistics(self, system: System) -> NDArray[np.int64]:
        """What BLEU is made of, by sentence; counted once."""
        if self.settings not in system.counted:
            system.counted[self.settings] = sentence_statistics(
                system.hypotheses, self.reference, self.settings
            )
        return system.counted[self.settings]


Measure: TypeAlias = Callable[[Test, Sequence[System]], Report | list[Report]]
# Raises LackingError where what it needs is not there.


def force(
    run: Run, source: Sequence[str], target: Sequence[str], name: str
) -> list[Forced]:
    """Forced decoding of pairs, with words."""
    words = run.vocabularies
    with counting(f"aligning {name}", len(source)) as advance:
        scored = score_lines(run, source, target, advance)
    return [
        Forced(
            one,
            word_numbers(words.source, x),
            word_numbers(words.target, y),
            (len(split_words(x)), len(split_words(y))),
        )
        for one, x, y in zip(scored, source, target, strict=True)
    ]


def with_attention(systems: Sequence[System]) -> list[System]:
    """Those that align.

    Raises:
        LackingError: None does.
    """
    found = [system for system in systems if system.rounds]
    if not found:
        names = ", ".join(f"'{system.name}'" for system in systems)
        raise LackingError(f"of {names} none is a run with attention")
    return found


def need(what: Any, flag: str) -> Any:
    """Passes on what is there.

    Raises:
        LackingError: It is not there; the flag that gives it is named.
    """
    if what is None:
        raise LackingError(f"{flag} is not given")
    return what


def table(report: Report) -> Table:
    """The report for people, without its notes."""
    headings = [escape(column.heading) for column in report.columns]
    made = Table(*headings, title=escape(report.title), box=None, title_justify="left")
    made.columns[0].overflow = "fold"  # names are told whole
    for column in made.columns[1:]:
        column.justify = "right"
    for row in report.rows:
        values = (_value(row, column.key) for column in report.columns)
        pairs = zip(report.columns, values)
        cells = ("" if v is None else c.form.format(v) for c, v in pairs)
        made.add_row(*map(escape, cells))
    return made


def _value(row: dict[str, Any], key: str | tuple[str, str]) -> Any:
    return row.get(key) if isinstance(key, str) else row[key[0]].get(key[1])
