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
from kvnmt.data.scripts import unspaced
from kvnmt.errors import counted
from kvnmt.inference.forced import Forced, force_lines
from kvnmt.inference.score import LIMITS, rounds_of, score_lines
from kvnmt.metrics.bleu import Settings, bleu_metric, sentence_statistics
from kvnmt.metrics.links import Gold
from kvnmt.metrics.trees import Tree
from kvnmt.runs.directory import Run

Side: TypeAlias = Literal["reference", "hypothesis"]  # what a run reads as target

FEW = 5  # pairs with links, of which fewer tell nothing of how words are counted


class LackingError(Exception):
    """What a measure needs is not there; the message says what, in some words."""


class Column(NamedTuple):
    """A column of a table for people: which value of a row, and how it is written."""

    key: str | tuple[str, str]  # a value of a row, or of a dictionary in it
    heading: str
    form: str = "{}"  # of str.format


class Report(NamedTuple):
    """What a measure tells, for people and for machines."""

    title: str
    columns: Sequence[Column]
    rows: list[dict[str, Any]]  # with more than the columns show, perhaps
    notes: Sequence[str] = ()  # below the table: signatures, thresholds, conventions


@dataclass
class System:
    """What is measured: translations, and the run they come from if there is one.

    A system is measured on one test set. What several measures ask of it is worked out
    once and kept here.
    """

    name: str
    translate: Callable[[], list[str]]  # called once, if a measure needs it
    run: Run | None = None
    limits: tuple[int, int] = LIMITS  # most pairs and positions that are read at a time
    _statistics: dict[Settings, NDArray[np.int64]] = field(
        default_factory=dict, repr=False
    )
    _forced: dict[str, list[Forced]] = field(default_factory=dict, repr=False)

    @cached_property
    def hypotheses(self) -> list[str]:
        """Its translations, a line for each reference."""
        return self.translate()

    @cached_property
    def rounds(self) -> int:
        """How many alignments its run gives; 0 without a run or attention."""
        return rounds_of(self.run.model, self.run.params) if self.run else 0

    def statistics(self, test: "Test") -> NDArray[np.int64]:
        """What BLEU is made of, by sentence."""
        if test.settings not in self._statistics:
            self._statistics[test.settings] = sentence_statistics(
                self.hypotheses, test.reference, test.settings, test.more_references
            )
        return self._statistics[test.settings]

    def forced(
        self, test: "Test", side: Side, places: Sequence[int] | None = None
    ) -> list[Forced]:
        """Forced decoding of the references or of its own translations.

        Args:
            test: The text.
            side: Of the pairs.
            places: Of the wanted ones, from 0; None: all, which are then kept.
        """
        run, source = self._reader(test)
        target = test.reference if side == "reference" else self.hypotheses
        if side not in self._forced:
            forced = force(run, source, target, self.name, self.limits, places)
            if places is not None:
                return forced
            self._forced[side] = forced
        forced = self._forced[side]
        return forced if places is None else [forced[n] for n in places]

    def log_probs(self, test: "Test") -> list[list[float]]:
        """Log P of the tokens of each reference, without an alignment of any."""
        run, source = self._reader(test)
        with counting(f"scoring {self.name}", len(source)) as advance:
            pairs = score_lines(
                *(run, source, test.reference),
                advance=advance,
                aligned=False,
                limits=self.limits,
            )
        return [pair.token_log_probs for pair in pairs]

    def _reader(self, test: "Test") -> tuple[Run, list[str]]:
        """Its run and what that reads."""
        if self.run is None or test.source is None:
            raise LackingError(f"'{self.name}' is not a run that reads --source")
        return self.run, test.source


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
    more_references: tuple[list[str], ...] = ()  # of BLEU, chrF and their tests
    # of another program, for every system
    sentence_scores: list[NDArray[np.floating]] = field(default_factory=list)
    settings: Settings = Settings()
    stem: int | None = None  # letters that tell a word, without its inflection

    @cached_property
    def unsegmented(self) -> list[str]:
        """A note where spaces stand between no words, for what counts words."""
        texts = {"source": self.source or [], "reference": self.reference}
        sides = [name for name, lines in texts.items() if unspaced(lines)]
        if not sides:
            return []
        return [
            f"{' and '.join(sides)}: no spaces between words, so that what counts "
            "words counts lines; segment the text first"
        ]


Take: TypeAlias = Callable[[Test, Sequence[System]], Report | list[Report]]


class Measure(NamedTuple):
    """A measure of systems; when called, it first checks that it can be taken.

    Both functions raise LackingError where what they need is not there.
    """

    take: Take
    # Before anything is translated; what it gives is left.
    check: Callable[[Test, Sequence[System]], object]
    uses: tuple[str, ...] = ()  # options of `kvnmt evaluate` that others may not use
    wanted: Callable[[Test, Sequence[System]], bool] = lambda *_: False  # unasked
    translates: bool = True  # False: looks at no hypothesis

    def __call__(self, test: Test, systems: Sequence[System]) -> list[Report]:
        """Takes the measure."""
        self.check(test, systems)
        taken = self.take(test, systems)
        return [taken] if isinstance(taken, Report) else taken


def check_bleu(test: Test, systems: Sequence[System]) -> None:
    """Needs nothing but sacreBLEU's tokenizer.

    Raises:
        UserError: It lacks a package, or cannot be used here.
    """
    bleu_metric(test.settings)


def unlinked(test: Test, then: str) -> list[str]:
    """A note on pairs of which nobody drew a link, if there are any.

    Args:
        test: What systems are measured on, with gold links.
        then: What follows from it, for people.
    """
    assert test.gold is not None
    pairs = list(zip(test.gold, test.reference))
    count = sum(not gold.possible and bool(text.strip()) for gold, text in pairs)
    if not count:
        return []
    return [f"{count:,} of {counted(len(pairs), 'pair')} have no gold link: {then}"]


def counted_otherwise(test: Test) -> list[str]:
    """A note where gold links seem to count words from 1; or nothing."""
    pharaoh = [gold for gold in test.gold or () if not gold.place.startswith("pair")]
    links = [gold.possible for gold in pharaoh if gold.possible]
    if len(links) < FEW or any(0 in link for some in links for link in some):
        return []
    return [
        "no gold link is of a word of number 0: say --from-one if they count from 1"
    ]


def force(
    run: Run,
    source: Sequence[str],
    target: Sequence[str],
    name: str,
    limits: tuple[int, int] = LIMITS,
    places: Sequence[int] | None = None,
) -> list[Forced]:
    """Forced decoding of pairs, or of those at some places, under a progress bar.

    Raises:
        LackingError: The weights of a pair are no numbers.
    """
    places = range(len(source)) if places is None else places
    some = [source[n] for n in places], [target[n] for n in places]
    with counting(f"aligning {name}", len(places)) as advance:
        pairs = force_lines(run, *some, advance, limits, scored=False)
    for n, (scored, *_) in zip(places, pairs):
        weights = (*scored.alignments, *scored.self_attention)
        if not all(np.isfinite(matrix).all() for matrix in weights):
            raise LackingError(
                f"in line {n + 1} '{name}' has weights that are not finite"
            )
    return pairs


def need(value: Any, flag: str) -> Any:
    """Passes on what is there.

    Raises:
        LackingError: It is not there; the flag that gives it is named.
    """
    if value is None:
        raise LackingError(f"{flag} is not given")
    return value


def table(report: Report) -> Table:
    """The report for people, without its notes."""
    headings = [escape(column.heading) for column in report.columns]
    grid = Table(*headings, title=escape(report.title), box=None, title_justify="left")
    grid.columns[0].overflow = "fold"  # names are shown whole
    for column in grid.columns[1:]:
        column.justify = "right"
    for cells in cells_of(report):
        grid.add_row(*map(escape, cells))
    return grid


def cells_of(report: Report) -> list[list[str]]:
    """The rows of a report as text; a figure that a row lacks is empty."""
    rows = []
    for row in report.rows:
        values = (_value(row, column.key) for column in report.columns)
        pairs = zip(report.columns, values)
        rows.append(["" if v is None else c.form.format(v) for c, v in pairs])
    return rows


def _value(row: dict[str, Any], key: str | tuple[str, str]) -> Any:
    return row.get(key) if isinstance(key, str) else row[key[0]].get(key[1])
