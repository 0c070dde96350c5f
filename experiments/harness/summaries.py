# SPDX-License-Identifier: Apache-2.0
"""Tables of kept results: a row for each system and start, its seeds put together."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from experiments.harness.results import KEPT, Figures, kept_results
from experiments.harness.significance import (
    LEAST_SEEDS,
    Against,
    p_over_both,
    p_over_seeds,
    p_over_sentences,
)
from kvnmt.errors import UserError
from kvnmt.evaluation.base import Column
from kvnmt.systems.named import SYSTEMS

NOT_RUN = "not run"


@dataclass(frozen=True)
class Summary:
    """A table of experiments/findings/: what of which results it shows."""

    name: str  # on its page
    columns: Sequence[Column]  # a key of two parts is of that data alone
    folder: str = ""  # of its results; by default its name
    data: str = ""  # of results that name none, and of what is published
    by: tuple[str, ...] = ("system", "start")  # what tells its rows apart
    published: Mapping[str, str] = field(default_factory=dict)  # by the row's name
    published_as: str = "published"
    published_with: str = ""  # setting of what is published, where ours is another
    differences: Mapping[str, str] = field(default_factory=dict)  # by the row's name
    against: Against | None = None  # what rows are tested against

    @property
    def place(self) -> str:
        """The name of its folder of results."""
        return self.folder or self.name

    @property
    def is_of_columns(self) -> bool:
        """Whether columns, not rows, tell data apart."""
        return any(not isinstance(column.key, str) for column in self.columns)


class _Name(NamedTuple):
    """What tells a row of a table apart."""

    names: tuple[str, ...]
    data: str  # empty where columns tell it


class Grid(NamedTuple):
    """A table as text."""

    headings: list[str]
    numeric: list[bool]  # which columns hold numbers
    rows: list[list[str]]
    note: str  # what the figures were published and measured with


def grid_of(summary: Summary, kept: Path = KEPT) -> Grid:
    """The table of what is kept.

    Args:
        summary: Which table.
        kept: Has a folder of results for every table.

    Raises:
        UserError: A result cannot be read, or a row is named in fewer parts.
    """
    for name in (*summary.published, *summary.differences):
        more = len(name.split(", ")) - len(summary.by)
        if more < 0 or (more and name in summary.published):  # names may have ", "
            raise UserError(
                f"table '{summary.name}' names a row '{name}', but rows have "
                f"{len(summary.by)} parts, {' and '.join(summary.by)}; join these by "
                "', ', an empty one too."
            )
    results = _of_columns(summary, kept_results(summary.place, kept))
    groups = _groups(summary, results)
    order = sorted(groups, key=lambda row: (row.data != summary.data, _order(row)))
    columns = [[_named(row.names[i]) for row in order] for i in range(len(summary.by))]
    headings = [*summary.by]
    if len({row.data for row in order}) > 1:
        headings.append("data")
        columns.append([row.data for row in order])
    named = len(headings)
    if summary.published:
        headings.append(summary.published_as)
        columns.append([_told(summary.published, summary, row) for row in order])
    for column in summary.columns:
        cells = [_cell(column, groups[row]) for row in order]
        if any(cells):
            headings.append(column.heading)
            columns.append(cells)
    for heading, cells in _tests(summary, groups, order):
        headings.append(heading)
        columns.append(cells)
    headings.append("seeds")
    columns.append([_seeds(groups[row]) for row in order])
    numeric = [place >= named for place in range(len(headings))]
    if summary.differences:
        headings.append("differences")
        numeric.append(False)
        columns.append([_told(summary.differences, summary, row) for row in order])
    told = f"Published with {summary.published_with}." if summary.published_with else ""
    note = " ".join(filter(None, (told, _note(results))))
    return Grid(headings, numeric, [list(row) for row in zip(*columns)], note)


def mean_and_spread(values: Sequence[float], form: str) -> str:
    """The mean of some seeds and its standard deviation; spaces part thousands."""
    if len({*values}) == 1:
        text = form.format(values[0])
    elif len(values) < LEAST_SEEDS:
        text = "; ".join(map(form.format, values))
    else:
        unsigned = form.replace(":+", ":")
        spread = unsigned.format(statistics.stdev(values))
        text = f"{form.format(statistics.fmean(values))} ± {spread}"
    return text.replace(",", " ")


def _groups(summary: Summary, results: list[Figures]) -> dict[_Name, list[Figures]]:
    """The results of every row, and none of rows that others published alone."""
    data = "" if summary.is_of_columns else summary.data
    groups: dict[_Name, list[Figures]] = {
        _Name(tuple(name.split(", ")), data): [] for name in summary.published
    }
    for result in results:
        names = tuple(str(result.get(key, "")) for key in summary.by)
        of_row = data if summary.is_of_columns else result.get("data") or data
        groups.setdefault(_Name(names, of_row), []).append(result)
    return groups


def _told(texts: Mapping[str, str], summary: Summary, row: _Name) -> str:
    """What is said of a row, on the data that it is said of."""
    is_other = not summary.is_of_columns and row.data != summary.data
    return "" if is_other else texts.get(", ".join(row.names), "")


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
    return str(len(_seeds_of(group)) or "")


def _seeds_of(group: Sequence[Figures]) -> set[int]:
    return {result["seed"] for result in group if "seed" in result}


def _tests(
    summary: Summary, groups: Mapping[_Name, list[Figures]], order: Sequence[_Name]
) -> Iterator[tuple[str, list[str]]]:
    """The columns of tests against the baseline, if they have a figure."""
    against = summary.against
    if against is None:
        return
    named = [(key, value) for key, value in against.baseline.items() if value]
    told = [value if key == "system" else f"{key} {value}" for key, value in named]
    name = ", ".join(told)
    seeds, sentences, both = list[str](), list[str](), list[str]()
    for row in order:
        names = zip(summary.by, row.names)
        others = tuple(against.baseline.get(key, own) for key, own in names)
        baseline = row._replace(names=others)
        found = groups.get(baseline, []) if baseline != row else []
        for cells, test in (seeds, p_over_seeds), (both, p_over_both):
            p = test(groups[row], found, against)
            cells.append("" if p is None else f"{p:.3f}")
        several = p_over_sentences(groups[row], found, against)
        fewer = 0 < len(several) < len(_seeds_of(groups[row]))
        told = " / ".join(f"{p:.3f}" for p in several)
        sentences.append(f"{told} ({len(several)})" if fewer else told)
    if any(seeds):
        yield f"p against {name}, seeds", seeds
    if any(sentences):
        yield f"p against {name}, sentences", sentences
    if any(both):
        yield f"p against {name}, both", both


def _cell(column: Column, group: Sequence[Figures]) -> str:
    """The figure of a column over the seeds; in brackets how many, if fewer have it.

    Raises:
        UserError: There are two figures of a seed, or seeds of two settings.
    """
    data, key = (None, column.key) if isinstance(column.key, str) else column.key
    by_seed: dict[int | None, Figures] = {}
    for result in group:
        if result.get(key) is None or data not in (None, result.get("data")):
            continue
        first = by_seed.setdefault(result.get("seed"), result)
        if first is not result:
            raise UserError(
                f"'{first['file']}' and '{result['file']}' both hold '{key}' of "
                f"'{result['system']}' with seed {result.get('seed')}; delete the "
                "older, or its line in a file of several, below experiments/results/."
            )
    _check_alike(list(by_seed.values()))
    values = [result[key] for result in by_seed.values()]
    if not values:
        return ""
    if column.form == "{}" and all(isinstance(value, str) for value in values):
        return "; ".join(dict.fromkeys(values))
    for result in by_seed.values():
        if not isinstance(result[key], int | float) or not math.isfinite(result[key]):
            raise UserError(
                f"'{key}' of '{result['file']}' is no number but {result[key]!r}; "
                "delete that file below experiments/results/ and measure it again."
            )
    text = mean_and_spread(values, column.form)
    fewer = None not in by_seed and len(by_seed) < len(_seeds_of(group))
    return f"{text} ({len(by_seed)})" if fewer else text


def _check_alike(seeds: Sequence[Figures]) -> None:
    """Makes sure that seeds differ in nothing else, as far as they tell."""
    parts = ("setting", "settings"), ("text", "texts"), ("own_code", "code")
    for what, plural in parts:
        for other in seeds[1:]:
            first = seeds[0]
            if other.get(what) != first.get(what):
                raise UserError(
                    f"'{first['file']}' and '{other['file']}' are in one cell but of "
                    f"different {plural}; keep one of them, or one's line in a file of "
                    "several, below experiments/results/."
                )


def _order(row: _Name) -> tuple[Any, ...]:
    """Systems as in the catalogue, from scratch first; all others last."""
    known, names = list(SYSTEMS), row.names
    is_other = names[0] not in known
    place = 0 if is_other else known.index(names[0])
    # 8 stands before 10.
    others = [(len(name), name) for name in names[1:]]
    return row.data, is_other, "warm" in names, place, names[0], others


def _named(name: str) -> str:
    return f"`{name}`" if name in SYSTEMS else name


def _note(results: Sequence[Figures]) -> str:
    """When, with which code and where all figures were measured."""
    days: dict[str, dict[str, list[str]]] = {}  # by device, then by day
    for result in results:
        commit = result.get("commit")
        code = commit[:12] if commit else "not noted"
        if commit and commit.endswith("-dirty"):
            code += " with changes"
        of_device = days.setdefault(result["device"], {})
        of_device.setdefault(result["measured"], []).append(code)
    ways = []
    for device, of_device in days.items():
        told = []
        for day, codes in sorted(of_device.items()):
            commits = [*dict.fromkeys(codes)]
            plural = "s" * (len(commits) > 1)
            told.append(f"{day} (commit{plural} {', '.join(commits)})")
        ways.append(f"{', '.join(told)} on {device}")
    return f"Measured {'; '.join(ways)}." if ways else ""
