# SPDX-License-Identifier: Apache-2.0
"""Tables of kept results: a row for each system and start, its seeds put together."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from experiments.results import KEPT, Figures, kept_results
from kvnmt.errors import UserError
from kvnmt.evaluation.base import Column
from kvnmt.systems.named import SYSTEMS

NOT_RUN = "not run"


@dataclass(frozen=True)
class Summary:
    """A table of experiments/README.md: what of which results it shows."""

    name: str  # in the README
    columns: Sequence[Column]  # a key of two parts is of that data alone
    folder: str = ""  # of its results; by default its name
    by: tuple[str, ...] = ("system", "start")  # what tells its rows apart
    published: Mapping[str, str] = field(default_factory=dict)  # by the row's name
    published_as: str = "published"
    differences: Mapping[str, str] = field(default_factory=dict)  # by the row's name

    @property
    def place(self) -> str:
        """The name of its folder of results."""
        return self.folder or self.name


class Grid(NamedTuple):
    """A table as text."""

    headings: list[str]
    numeric: list[bool]  # which columns hold numbers
    rows: list[list[str]]
    note: str  # what the figures were measured with


def grid_of(summary: Summary, kept: Path = KEPT) -> Grid:
    """The table of what is kept.

    Args:
        summary: Which table.
        kept: Has a folder of results for every table.

    Raises:
        UserError: A result cannot be read.
    """
    results = _of_columns(summary, kept_results(summary.place, kept))
    groups: dict[tuple[str, ...], list[Figures]] = {}
    for name in summary.published:
        groups[tuple(name.split(", "))] = []
    for result in results:
        names = tuple(str(result.get(key, "")) for key in summary.by)
        groups.setdefault(names, []).append(result)
    order = sorted(groups, key=_order)
    columns = [[_named(names[i]) for names in order] for i in range(len(summary.by))]
    headings = [*summary.by]
    if summary.published:
        headings.append(summary.published_as)
        columns.append([summary.published.get(", ".join(names), "") for names in order])
    for column in summary.columns:
        cells = [_cell(column, groups[names]) for names in order]
        if any(cells):
            headings.append(column.heading)
            columns.append(cells)
    headings.append("seeds")
    columns.append([_seeds(groups[names]) for names in order])
    numeric = [place >= len(summary.by) for place in range(len(headings))]
    if summary.differences:
        headings.append("differences")
        numeric.append(False)
        of_rows = [summary.differences.get(", ".join(names), "") for names in order]
        columns.append(of_rows)
    return Grid(headings, numeric, [list(row) for row in zip(*columns)], _note(results))


def mean_and_spread(values: Sequence[float], form: str) -> str:
    """The mean of some seeds and its standard deviation; spaces part thousands."""
    text = form.format(statistics.fmean(values) if len({*values}) > 1 else values[0])
    if len({*values}) > 1:
        text += f" ± {form.format(statistics.stdev(values))}"
    return text.replace(",", " ")


def _of_columns(summary: Summary, results: list[Figures]) -> list[Figures]:
    """The results that have a figure for the columns, if those are of some data."""
    keys = [c.key for c in summary.columns if not isinstance(c.key, str)]
    if len(keys) < len(summary.columns):
        return results
    return [
        result
        for result in results
        if any(
            result.get("data") == data and result.get(key) is not None
            for data, key in keys
        )
    ]


def _seeds(group: Sequence[Figures]) -> str:
    """How many seeds a row has."""
    if not group:
        return NOT_RUN
    return str(len({result["seed"] for result in group if "seed" in result}) or "")


def _cell(column: Column, group: Sequence[Figures]) -> str:
    """The figure of a column, over the seeds.

    Raises:
        UserError: There are two figures of a seed.
    """
    data, key = (None, column.key) if isinstance(column.key, str) else column.key
    by_seed: dict[int | None, Any] = {}
    for result in group:
        if result.get(key) is None or data not in (None, result.get("data")):
            continue
        if by_seed.setdefault(result.get("seed"), result[key]) is not result[key]:
            raise UserError(
                f"two results of '{result['system']}' with seed {result.get('seed')} "
                f"hold '{key}'; delete the older below experiments/results/."
            )
    values = list(by_seed.values())
    if not values:
        return ""
    if isinstance(values[0], str):
        return "; ".join(dict.fromkeys(values))
    return mean_and_spread(values, column.form)


def _order(names: tuple[str, ...]) -> tuple[Any, ...]:
    """Systems as in the catalogue, from scratch first; all others last."""
    known = list(SYSTEMS)
    is_other = names[0] not in known
    place = 0 if is_other else known.index(names[0])
    # 8 stands before 10.
    others = [(len(name), name) for name in names[1:]]
    return is_other, "warm" in names, place, names[0], others


def _named(name: str) -> str:
    return f"`{name}`" if name in SYSTEMS else name


def _note(results: Sequence[Figures]) -> str:
    """When, with which code and where all figures were measured."""
    ways = []
    for result in results:
        commit = result.get("commit")
        code = f"commit {commit[:12]}" if commit else "commit not noted"
        ways.append(f"{result['measured']} ({code}) on {result['device']}")
    return f"Measured {'; '.join(dict.fromkeys(ways))}." if ways else ""
