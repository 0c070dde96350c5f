# SPDX-License-Identifier: Apache-2.0
"""The command that measures speed."""

from dataclasses import dataclass, field
from typing import Annotated

from kvnmt.benchmark import report, table
from kvnmt.benchmark.config import BenchmarkConfig
from kvnmt.cli.flags import FLAT
from kvnmt.console import error_console, print_table, say


@dataclass(frozen=True)
class Benchmark:
    """Measure the speed of systems beside each other on this device."""

    config: Annotated[BenchmarkConfig, FLAT] = field(default_factory=BenchmarkConfig)
    json: bool = False  # print one JSON document instead of tables

    def __call__(self) -> None:
        """Measures."""
        with error_console().status("") as status:
            measured = report.measure(self.config, status.update)
        if self.json:
            print(report.to_json(measured))
            return
        for part in table.tables(measured):
            print_table(part)
            print()
        for note in table.notes(measured):
            say(note)
