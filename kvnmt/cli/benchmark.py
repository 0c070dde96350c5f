# SPDX-License-Identifier: Apache-2.0
"""The command that measures speed."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

from kvnmt.benchmark import compare, report, table
from kvnmt.benchmark.config import BenchmarkConfig
from kvnmt.cli.flags import FLAT
from kvnmt.console import error_console, print_table, say


@dataclass(frozen=True)
class Benchmark:
    """Measure the speed of systems beside each other on this device."""

    config: Annotated[BenchmarkConfig, FLAT] = field(default_factory=BenchmarkConfig)
    compare: Path | None = None  # what --json printed before: faster, slower, or as was
    json: bool = False  # print one JSON document instead of tables

    def __call__(self) -> None:
        """Measures."""
        old = report.read(self.compare) if self.compare else None
        with error_console().status("") as status:
            measured = report.measure(self.config, status.update)
        changes = []
        if self.compare and old:
            changes = compare.changes(measured, old, self.compare)
        if self.json:
            compared = {"changes": [asdict(change) for change in changes]}
            plain = report.to_plain(measured) | (compared if self.compare else {})
            print(json.dumps(plain, indent=1))
            return
        for part in table.tables(measured, changes):
            print_table(part)
            print()
        for note in table.notes(measured, changes):
            say(note)
