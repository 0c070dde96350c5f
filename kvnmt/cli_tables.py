# SPDX-License-Identifier: Apache-2.0
"""The commands that print tables about systems: benchmark and systems."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table

from kvnmt import benchmark, overview

WIDTH, FAR = 160, 10_000  # characters: what a file has at least, and at most
FLAT = tyro.conf.arg(name="")  # an argument whose fields carry no prefix


@dataclass(frozen=True)
class Benchmark:
    """Measure the training speed of systems beside each other on this device."""

    config: Annotated[benchmark.BenchmarkConfig, FLAT] = field(
        default_factory=benchmark.BenchmarkConfig
    )
    json: bool = False  # print JSON lines instead of a table

    def __call__(self) -> None:
        """Measures."""
        with Console(stderr=True).status("") as status:
            rows = benchmark.measure(self.config, status.update)
        if self.json:
            for row in rows:
                print(json.dumps(row._asdict()))
            return
        print_table(benchmark.table(rows, self.config))


@dataclass(frozen=True)
class Systems:
    """List the named systems: what they are made of and what they cost."""

    config: Annotated[overview.OverviewConfig, FLAT] = field(
        default_factory=overview.OverviewConfig
    )
    json: bool = False  # print JSON lines instead of a table

    def __call__(self) -> None:
        """Lists."""
        rows = overview.overview(self.config)
        if self.json:
            for row in rows:
                costs = row.costs and row.costs._asdict()
                print(json.dumps(row._asdict() | {"costs": costs}))
            return
        print_table(overview.table(rows, self.config))


def print_table(table: Table, notes: Sequence[str] = ()) -> None:
    """Prints a table on standard output; a file is as wide as what is put there."""
    console = Console()
    if not console.is_terminal:
        wide = Console(width=FAR)
        console = Console(width=max(WIDTH, wide.measure(table).maximum))
    console.print(table)
    for note in notes:
        console.print(note, style="dim", markup=False, highlight=False, soft_wrap=True)
