# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of experiments/findings/ from the results that are kept.

A module names its tables in ``TABLES``; on its page each stands between
``<!-- table NAME -->`` and ``<!-- end -->``. Results are kept in
``experiments/results/NAME/``, where ``--collect`` copies them from the folder of the
runs. A table that is deleted between its marks is made again exactly as it was.

Launch::

    python -m experiments.report                              # writes the pages
    python -m experiments.report --collect runs/multi30k      # and keeps results first
    python -m experiments.report --tables multi30k            # of these alone
    python -m experiments.report --latex --tables multi30k
"""

import importlib
import pkgutil
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

import experiments
from experiments.harness.results import HERE, KEPT, collect
from experiments.harness.summaries import Grid, Summary, grid_of
from kvnmt.console import say
from kvnmt.errors import UserError, run_program, unknown_name
from kvnmt.evaluation.base import Column
from kvnmt.evaluation.latex import tabular
from kvnmt.files import write_whole

PAGES = HERE / "findings"
STARTS = re.compile(r"^(?=.*<!--\s*table\b)", re.M)  # lines that mean to begin one
BEGIN, END = re.compile(r"<!-- table ([\w-]+) -->\n"), "<!-- end -->"
BY_COMMAND = (  # their figures come from commands that the pages name
    Summary(
        name="adequacy",
        by=("system",),
        columns=[
            Column("bleu", "BLEU", "{:.2f}"),
            Column("better_worse", "better / worse"),
            Column("p", "p, sign test", "{:.3f}"),
            Column("aer", "AER", "{:.1%}"),
            Column("dropped", "source words dropped", "{:.2%}"),
            Column("repeated", "repeated", "{:.2%}"),
            Column("invented", "output words invented", "{:.2%}"),
        ],
    ),
    Summary(
        name="benchmark",
        by=("system",),
        columns=[
            Column("parameters", "parameters", "{:,}"),
            Column("compile_seconds", "compile s", "{:.1f}"),
            Column("step_ms", "step ms", "{:,}"),
            Column("target_tokens_per_second", "target tokens/s", "{:,}"),
            Column("relative", "relative", "{:.2f}"),
            Column("memory_mib", "memory MiB", "{:,}"),
        ],
    ),
)


@dataclass(frozen=True)
class ReportOptions:
    """What is reported."""

    collect: Path | None = None  # folder of runs whose results are kept from now on
    name: str | None = None  # name of their table; default: the folder's
    latex: bool = False  # print the tables as LaTeX; pages stay
    tables: tuple[str, ...] = ()  # which are printed or written; default: all


def main(options: ReportOptions) -> None:
    """Keeps results, and writes or prints tables.

    Raises:
        UserError: A result, a table or the pages are not there.
    """
    pages = sorted(PAGES.glob("*.md"))
    if not pages:
        raise UserError(
            f"there are no pages in '{PAGES}'; report from a copy of the repository, "
            "not from an installed package."
        )
    tables = all_tables()
    for name in options.tables:
        _known(tables, name)
    if options.name and not options.collect:
        raise UserError("--name is that of the table of --collect; give both.")
    asked = [[name] for name in options.tables]  # of each of these one is on a page
    if options.collect:
        place = options.name or options.collect.resolve().name
        places = {table.place for table in tables.values()}
        if place not in places:
            raise unknown_name("table", place, places)
        for path in collect(options.collect, place, KEPT):
            say(f"kept {path}")
        asked.append([t.name for t in tables.values() if t.place == place])
    if options.latex:
        for name in options.tables or tables:
            print(latex(grid_of(_known(tables, name), KEPT)))
        return
    texts = {page: page.read_text(encoding="utf-8") for page in pages}
    made = {p: written(texts[p], tables, KEPT, options.tables) for p in pages}
    for page, text in made.items():
        if text != texts[page]:
            write_whole(page, text)
            say(f"'{page}' is written anew")
    placed = set(BEGIN.findall("".join(texts.values())))
    for names in asked:
        if placed.isdisjoint(names):
            raise UserError(
                f"table '{names[0]}' stands on no page; put '<!-- table {names[0]} "
                f"-->' and '{END}', each in a line of its own, on one in '{PAGES}'."
            )


def all_tables() -> dict[str, Summary]:
    """The tables of all modules, by name.

    Raises:
        UserError: Two have the same name.
    """
    tables = {table.name: table for table in BY_COMMAND}
    for module in pkgutil.iter_modules(experiments.__path__):
        found = importlib.import_module(f"experiments.{module.name}")
        for table in getattr(found, "TABLES", ()):
            if table.name in tables:
                raise UserError(
                    f"'{module.name}' calls a table '{table.name}', as another module "
                    "does; choose another name."
                )
            tables[table.name] = table
    return tables


def written(
    text: str,
    tables: dict[str, Summary],
    kept: Path = KEPT,
    only: Sequence[str] = (),
) -> str:
    """A page with its tables made anew from the results.

    Args:
        text: The page.
        tables: By name.
        kept: Where the results are.
        only: The tables that are made; none: all.

    Raises:
        UserError: The page asks for a table that no module has, or one has no end, or
            a line means to begin a table and is spelt otherwise.
    """
    prose, *parts = STARTS.split(text)
    made = [prose]
    for part in parts:
        begin, line = BEGIN.match(part), part.partition("\n")[0]
        if begin is None:
            raise UserError(
                f"'{line}' begins no table; write '<!-- table NAME -->' in a line of "
                "its own, and '<!-- end -->' behind the table."
            )
        name = begin[1]
        if END not in part:
            raise UserError(
                f"table '{name}' has no '{END}' before the next table begins; put it "
                "behind the last line of the table."
            )
        if not only or name in only:
            table = markdown(grid_of(_known(tables, name), kept))
            part = f"{begin[0]}{table}{part[part.index(END) :]}"
        made.append(part)
    return "".join(made)


def markdown(grid: Grid) -> str:
    """A table as Markdown, and below it what it was measured with."""
    lines = [grid.headings, ["---:" if n else "---" for n in grid.numeric], *grid.rows]
    # A bar in a cell, as in a signature of sacreBLEU, would begin another.
    whole = [[cell.replace("|", r"\|") for cell in line] for line in lines]
    table = ["".join(f"| {cell} " for cell in line) + "|" for line in whole]
    table[1] = f"|{'|'.join(lines[1])}|"
    return "\n".join([*table, "", grid.note, ""] if grid.note else [*table, ""])


def latex(grid: Grid) -> str:
    """A table as LaTeX."""
    return tabular(grid.headings, grid.numeric, grid.rows, [grid.note])


def _known(tables: dict[str, Summary], name: str) -> Summary:
    if name not in tables:
        raise unknown_name("table", name, tables)
    return tables[name]


if __name__ == "__main__":
    run_program("report", lambda: main(tyro.cli(ReportOptions, description=__doc__)))
