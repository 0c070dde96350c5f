# SPDX-License-Identifier: Apache-2.0
"""The commands that print tables about systems: benchmark and systems."""

import json
from dataclasses import dataclass, field
from typing import Annotated

from rich.console import Console

from kvnmt.cli.flags import FLAT
from kvnmt.console import print_table
from kvnmt.systems import costs as overview
from kvnmt.systems import speed as benchmark


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
    """List the named systems and the mechanisms that they are made of."""

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
