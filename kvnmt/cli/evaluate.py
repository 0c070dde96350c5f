# SPDX-License-Identifier: Apache-2.0
"""The command that measures systems on a test set, beside each other."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal

import tyro

from kvnmt.cli.ensembling import Ensembling
from kvnmt.cli.flags import check_coverage, check_direction, check_reverse, names
from kvnmt.console import print_json, print_table, say
from kvnmt.data.outputs import claim
from kvnmt.devices import use_cores
from kvnmt.errors import UserError, flag
from kvnmt.evaluation import MEASURES, LackingError, Report, System, Test, table
from kvnmt.evaluation.base import check_bleu
from kvnmt.evaluation.choice import ALL, check_names, choose, take
from kvnmt.evaluation.inputs import TestFiles, is_text, read_systems, read_test
from kvnmt.evaluation.latex import latex
from kvnmt.evaluation.length import PICTURE
from kvnmt.fields import check_fields
from kvnmt.files import make_folder
from kvnmt.inference.config import (
    Limit,
    SearchConfig,
    check_one,
    check_search,
    check_unsearched,
)
from kvnmt.metrics.bleu import Settings, check_tokenizer

MEASURE_HELP = (
    f"{', '.join(MEASURES)} or {ALL}; by default score, significance if there are "
    "several systems, and what --sentence-scores, --gold and --brackets are for"
)

DRAWN = (1, 2, 3)  # lines, unless others are named


@dataclass(frozen=True, kw_only=True)
class Evaluate(TestFiles, Ensembling):
    """Measure systems on a test set: scores, significance, alignment, adequacy.

    A system is a run directory, which translates the source, or a file of
    translations, a line for each reference. The first system is the baseline.
    """

    systems: tyro.conf.Positional[tuple[Path, ...]]  # runs or files of translations
    search: SearchConfig
    measures: Annotated[
        tuple[str, ...], tyro.conf.arg(metavar="MEASURE", help=MEASURE_HELP)
    ] = ()
    # adequacy by --gold: compare only so many first letters of words
    stem: Limit = None
    tokenize: str | None = None  # sacreBLEU's tokenizer; default: that of the training
    lowercase: bool = False  # BLEU, chrF, their tests and TER ignore case
    output: Path | None = None  # write translations: a file, or a folder for several
    pictures: Path | None = None  # folder for pictures of attention, BLEU by length
    picture_kind: Literal["png", "pdf", "svg"] = "png"  # format of the pictures
    draw: tuple[int, ...] = DRAWN  # lines whose attention is drawn, counted from 1
    json: bool = False  # print a JSON object instead of tables
    latex: bool = False  # print the tables as LaTeX

    def __call__(self) -> None:
        """Evaluates."""
        check_alone(self)
        use_cores()
        test = read_test(self)
        self._check_draw(len(test.reference))
        test.stem = self.stem
        systems = self._systems(test)
        runs = {system.name: system.run for system in systems if system.run}
        if self._translates:
            check_coverage(self.search.coverage, runs)
        if self.reverse and test.reverse:
            for run in runs.values():
                check_direction(self.reverse, test.reverse, run)
        test.settings = Settings(self._tokenizer(systems), self.lowercase)
        measures = choose(self.measures, test, systems)
        check_used(self, measures)
        if self.pictures:
            check_bleu(test, systems)
            make_folder(self.pictures)
            claim(self.pictures / f"{PICTURE}.{self.picture_kind}", ())
        if self.output:  # also if no measure asks for translations
            for system in systems:
                _ = system.hypotheses
        lenient = ALL in self.measures
        _print(self, take(measures, test, systems, say if lenient else None))
        if self.pictures:  # last: whatever a picture meets, the figures are told
            self._draw(test, systems, self.pictures)

    def check_given(self, start: "Evaluate") -> None:
        """Refuses flags of searches where nothing is searched for."""
        check_one(self.search, start.search, "measured")
        if self.systems and all(map(is_text, self.systems)):
            why = (
                "{0} is for runs, which translate, but only files of translations are "
                "named; leave it out, or name a run."
            )
            check_unsearched(self.search, start.search, why)
        if not self._translates:
            why = (
                "{0} is for translating, and what is measured reads the references "
                "alone; leave it out, or name another measure."
            )
            check_unsearched(self.search, start.search, why, reads=True)

    @property
    def _translates(self) -> bool:
        """Whether what is asked for needs translations."""
        reading = {name for name, one in MEASURES.items() if not one.translates}
        asked = {*self.measures} or {ALL}
        return bool(self.output or self.pictures or not asked <= reading)

    def _check_draw(self, lines: int) -> None:
        """Refuses to draw what is not there."""
        if self.draw != DRAWN and max(self.draw, default=0) > lines:
            raise UserError(
                f"--draw names line {max(self.draw)} but the test set has {lines}; "
                "name lines that are there."
            )

    def _systems(self, test: Test) -> list[System]:
        inputs = (self.source, self.reference, self.gold, self.brackets)
        inputs += (*self.links, *self.more_references, *self.sentence_scores)
        called = names(self.systems)
        if len(called) == 1:  # an ensemble is called by all its members
            called = [" + ".join(names([*self.systems, *self.ensemble]))]
        systems = read_systems(
            dict(zip(called, self.systems)),
            test,
            self.search,
            ensemble=self.ensemble,
            joined=self.joined,
            output=self.output,
            inputs=[path for path in inputs if path],
        )
        return list(systems)

    def _tokenizer(self, systems: Sequence[System]) -> str:
        """The one that is asked for, else that of the training of the first run."""
        runs = (system.run for system in systems if system.run)
        used = (run.experiment.training.bleu_tokenize for run in runs)
        return self.tokenize or next(used, "13a")

    def _draw(self, test: Test, systems: Sequence[System], folder: Path) -> None:
        from kvnmt.evaluation.pictures import draw  # slow to import

        lines = [n for n in self.draw if n <= len(test.reference)]
        lacking = None
        try:
            lacking = draw(test, systems, lines, folder, self.picture_kind)
        except LackingError as error:
            say(f"not all can be drawn: {error}.")
        say(f"the pictures are in {folder}")
        if lacking:
            say(lacking)


def check_alone(options: Evaluate) -> None:
    """Refuses what is wrong whatever the files hold.

    Raises:
        UserError: Something is.
    """
    check_fields(options)
    check_search(options.search)
    if not options.systems:
        raise UserError("name at least one run directory or file of translations.")
    if options.tokenize:
        check_tokenizer(options.tokenize)
    if any(number < 1 for number in options.draw):
        raise UserError("--draw takes numbers of lines, from 1.")
    if options.draw != DRAWN and not options.pictures:
        raise UserError("--draw chooses lines for pictures; give --pictures too.")
    if options.picture_kind != Evaluate.picture_kind and not options.pictures:
        raise UserError("--picture-kind is of pictures; give --pictures too.")
    if options.draw != DRAWN and all(map(is_text, options.systems)):
        raise UserError(
            "--draw chooses lines whose attention is drawn, and files of "
            "translations have none; leave it out, or name a run."
        )
    if options.json and options.latex:
        raise UserError("--json and --latex print one thing in two ways; give one.")
    check_names(options.measures)
    if options.reverse and options.gold:
        check_reverse(options.reverse, *options.systems)
    if options.stem is not None and not options.gold:
        raise UserError("--stem is for adequacy by gold links, which needs --gold.")


def check_used(options: Evaluate, measures: Sequence[str]) -> None:
    """Refuses flags of measures that are not taken.

    Raises:
        UserError: There is one.
    """
    drawn = {*MEASURES["length"].uses, "gold"} if options.pictures else set[str]()
    taken = drawn.union(*(MEASURES[name].uses for name in measures))
    for name in chain.from_iterable(one.uses for one in MEASURES.values()):
        if getattr(options, name) and name not in taken:
            its = [of for of, one in MEASURES.items() if name in one.uses]
            which = "that" if len(its) == 1 else "one"
            raise UserError(
                f"{flag(name)} is for {', '.join(its)}; name {which} in --measures."
            )


def _print(options: Evaluate, taken: Iterable[tuple[str, list[Report]]]) -> None:
    # What stops a later measure takes no figure away.
    if options.json:
        done: dict[str, list[Report]] = {}
        try:
            done.update(taken)
        finally:
            print_json(_plain(done))
        return
    reports = chain.from_iterable(reports for _, reports in taken)
    for number, report in enumerate(reports):
        if number:
            print()
        if options.latex:
            print(latex(report))
        else:
            print_table(table(report), report.notes)


def _plain(reports: dict[str, list[Report]]) -> dict[str, list[dict[str, object]]]:
    return {
        name: [
            {"title": report.title, "rows": report.rows, "notes": list(report.notes)}
            for report in parts
        ]
        for name, parts in reports.items()
    }
