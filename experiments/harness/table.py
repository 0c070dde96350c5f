# SPDX-License-Identifier: Apache-2.0
"""The harness of the experiments: a table of rows, its flags, and how it is launched.

A module says what its rows are, what is measured of them and which columns are shown;
all else is here. Any number of the same processes may work on one table.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from pathlib import Path
from typing import Any, TypeVar, get_args

import tyro
from rich.console import Console

from experiments.harness import preview
from experiments.harness.claims import Pace
from experiments.harness.results import Figures, commit
from experiments.harness.row_flags import check_known, with_flags
from experiments.harness.rows import AnyRow, Row, Train
from experiments.harness.texts import Text, check_key, prepare
from experiments.harness.worker import Worker
from kvnmt.cli.flag_files import common_flags, expanded
from kvnmt.cli.flags import check_lists
from kvnmt.cli.large_pages import use_large_pages
from kvnmt.cli.own_code import run_first
from kvnmt.cli.program_cache import keep_programs
from kvnmt.console import people_console, print_json, print_table, say
from kvnmt.data.sources import Split, open_text
from kvnmt.errors import UserError, flag, run_program
from kvnmt.evaluation.base import Column, Report, table
from kvnmt.evaluation.latex import latex
from kvnmt.fields import check_fields
from kvnmt.runs import train as training
from kvnmt.runs.config import Experiment

VIEWS = "list", "show", "latex", "json", "dry_run"
OptionsT = TypeVar("OptionsT", bound="Options")
FLAGS = (
    "Where a model of kvnmt is trained, every flag of kvnmt train that is a field of "
    "its config is a flag here too, but --training.seed and --training.warm-start, and "
    "--training.epochs where --epochs is one."
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """What every table takes from the command line."""

    workdir: Path  # where the run directories are
    seeds: tuple[int, ...] = (1,)
    list: bool = False  # show the rows and their state, and leave
    show: bool = False  # show the table of what is done so far, and leave
    latex: bool = False  # the same as LaTeX
    json: bool = False  # the result of every row as a line of JSON
    # show what would be trained, as JSON, and leave; text that is made up is written
    dry_run: bool = False
    # Flags of the configuration, for every row.
    config: tyro.conf.Suppress[tuple[str, ...]] = ()

    @property
    def looks(self) -> bool:
        """Whether it only tells what is there, for which no text is needed."""
        return self.list or self.tells

    @property
    def tells(self) -> bool:
        """Whether it only shows the figures that are there."""
        return self.show or self.latex or self.json


@dataclass(frozen=True)
class Table:
    """The rows of an experiment, and how they are shown."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[AnyRow]
    notes: Sequence[str] = ()
    texts: Sequence[Text] = ()
    # Further rows, which are made of these as their flags change them.
    derived: Callable[[list[AnyRow]], Sequence[AnyRow]] = lambda rows: ()
    # From the results of the rows to what is shown.
    lines: Callable[[list[Figures]], list[Figures]] = list


def launch(
    kind: type[OptionsT], main: Callable[[OptionsT], Any], about: str | None
) -> None:
    """Runs an experiment as a program.

    Args:
        kind: Its options.
        main: What it does.
        about: Its docstring.
    """
    use_large_pages()
    commit()  # that of now: a pull may come while rows are trained
    name = Path(sys.argv[0]).stem

    def work() -> None:
        description = f"{about or ''}\n\n{FLAGS}"
        everything, filed = expanded(sys.argv[1:])
        for flags, said in product((kind, Experiment), (sys.argv[1:], filed)):
            check_lists(flags, said)
        sys.argv[1:] = everything  # so that results tell every flag
        common, words = common_flags(sys.argv[1:])
        run_first(common.own_code)
        options, others = tyro.cli(
            kind,
            prog=f"python -m experiments.{name}",
            args=words,
            description=description,
            return_unknown_args=True,
        )
        check_known(kind, others)
        check_named(options)
        check_fields(options)
        keep_programs(common.program_cache)
        main(replace(options, config=tuple(others)))

    run_program(name, work)


def check_named(options: Options) -> None:
    """Refuses a flag that names nothing, since the table would have no rows.

    Two views at once are refused, too.

    Raises:
        UserError: There is one.
    """
    for field in fields(options):
        if field.default and getattr(options, field.name) == ():
            name = flag(field.name)
            raise UserError(
                f"{name} names nothing; name at least one, or leave it out."
            )
    views = [flag(name) for name in VIEWS if getattr(options, name)]
    if len(views) > 1:
        raise UserError(f"{' and '.join(views)} show different things; give one.")


def make_table(
    options: Options, made: Table, train: Train = training.run
) -> list[Figures]:
    """Does what the options ask for with a table.

    Args:
        options: Those of the experiment.
        made: The table.
        train: Trains a row.

    Returns:
        The results of all rows that are measured.

    Raises:
        UserError: A flag is none of this table, a row failed twice, or cannot begin.
        StoppedError: A signal asked for it; nothing is lost.
    """
    if options.workdir.exists() and not options.workdir.is_dir():
        raise UserError(f"'{options.workdir}' is no folder; choose another --workdir.")
    rows = with_flags(made.rows, options.config)
    rows += made.derived(rows)
    check_rows(rows)
    for text in made.texts:
        check_key(options.workdir, text)
    if options.list:
        preview.show_states(rows)
        return []
    made = replace(made, title=", ".join([made.title, *_settings(rows)]))
    if options.tells:
        results, notes = preview.usable(rows)
        _show_some(made, results, len(rows), notes, options)
        return results
    for text in made.texts:
        prepare(options.workdir, text)
    check_text(rows)
    if options.dry_run:
        preview.show_plans(rows)
        return []
    failures = work(rows, train)
    results, wrong = preview.usable(rows)
    notes = [why for why in wrong if why not in failures.values()]  # of other workers
    _show_some(made, results, len(rows) - len(failures), notes)
    refuse(failures, len(rows))
    return results


def _settings(rows: Sequence[AnyRow]) -> list[str]:
    """What rows have that a flag may change and no column shows, by their data."""
    by_data: dict[str, list[Experiment]] = {}
    for row in rows:
        if isinstance(row, Row):
            by_data.setdefault(row.data, []).append(row.experiment)
    told = {data: _setting(experiments) for data, experiments in by_data.items()}
    if len(set(told.values())) <= 1:
        return [*told.values()][:1]
    return [f"{data}: {setting}" for data, setting in told.items()]


def _setting(experiments: Sequence[Experiment]) -> str:
    beams = {e.search.beam for e in experiments if e.model.reads_source}
    settings = {
        "beam {}": beams,
        "at most {} epochs": {e.training.epochs for e in experiments},
    }
    return ", ".join(
        what.format(" or ".join(map(str, sorted(values))))
        for what, values in settings.items()
        if values
    )


def _show_some(
    made: Table,
    results: list[Figures],
    count: int,
    notes: Sequence[str] = (),
    view: Options | None = None,
) -> None:
    """Prints the results of so many rows, and how many are missing."""
    missing = count - len(results)
    notes = [*made.notes, *notes]
    if missing:
        notes.append(f"{missing} of {count} rows are not done; --list shows them")
    report = Report(made.title, made.columns, made.lines(results), notes)
    if view and view.latex:
        print(latex(report))
    elif view and view.json:
        for line in report.rows:
            print_json(line)
        for note in notes:
            say(note)
    else:
        print_table(table(report), notes)


def work(
    rows: Sequence[AnyRow],
    train: Train,
    console: Console | None = None,
    pace: Pace = Pace(),
) -> dict[str, str]:
    """Does the rows that nobody else has done or is doing; gives why rows failed."""
    for row in rows:
        row.result()  # one that cannot be read is told before any work
    return Worker(rows, train, console or people_console(stderr=False), pace).work()


def refuse(failures: dict[str, str], count: int) -> None:
    """Ends an experiment some of whose rows failed.

    Raises:
        UserError: There are failures; each is named with its reason.
    """
    if failures:
        reasons = "; ".join(f"'{name}': {why}" for name, why in failures.items())
        raise UserError(f"{len(failures)} of {count} rows failed. {reasons}")


def check_rows(rows: Sequence[AnyRow]) -> None:
    """Makes sure that there are rows, each within bounds, no two of them alike.

    Raises:
        UserError: There is none, a number is out of bounds, or two have one folder or
            train the same.
    """
    if not rows:
        raise UserError("there is no row to make; name a seed, and what is measured.")
    trained: dict[Experiment, str] = {}
    for row in rows:
        if isinstance(row, Row):
            check_fields(row.experiment)
            first = trained.setdefault(row.experiment, row.folder.name)
            if first != row.folder.name:
                raise UserError(
                    f"the rows '{first}' and '{row.folder.name}' train the same; "
                    "leave out one of them, or the flag that makes them alike."
                )
    folders = [row.folder for row in rows]
    if twice := {folder.name for folder in folders if folders.count(folder) > 1}:
        names = ", ".join(sorted(twice))
        raise UserError(f"{names} would be run twice; name every seed and system once.")


def check_text(rows: Sequence[AnyRow]) -> None:
    """Makes sure, before any work, that the text of all rows can be read.

    Raises:
        UserError: It cannot.
    """
    trained = (row for row in rows if isinstance(row, Row) and not row.awaits_text)
    for config in {row.experiment.data for row in trained if not row.result()}:
        for split in get_args(Split):
            open_text(config, split)
