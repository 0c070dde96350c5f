# SPDX-License-Identifier: Apache-2.0
"""The command that measures speed."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

from kvnmt.benchmark import against, compare, report, table
from kvnmt.benchmark.config import (
    AgainstConfig,
    BenchmarkConfig,
    check,
    check_alone,
    check_used,
)
from kvnmt.benchmark.published import MENG
from kvnmt.cli.flags import FLAT
from kvnmt.console import people_console, print_table, say
from kvnmt.devices import use_cores
from kvnmt.errors import UserError


@dataclass(frozen=True)
class Benchmark:
    """Measure the speed of systems beside each other on this device.

    With --against, compare the first system with another program; each is run by its
    own command.
    """

    config: Annotated[BenchmarkConfig, FLAT] = field(default_factory=BenchmarkConfig)
    peer: Annotated[AgainstConfig, FLAT] = field(default_factory=AgainstConfig)
    compare: Path | None = None  # earlier --json output: shows what is faster or slower
    json: bool = False  # print one JSON document instead of tables

    def __call__(self) -> None:
        """Measures."""
        if self.compare and self.peer.against:
            raise UserError("--compare is for systems; leave it out with --against.")
        if not self.peer.against:
            check_alone(self.peer)
            check(self.config)
            check_used(self.config)
        if self.config.decode and not (self.config.train or self.peer.against):
            use_cores()  # as kvnmt translate does
        old = None
        if self.compare:
            old = report.read(self.compare)
            compare.check_sizes(self.config, old, self.compare)
        with people_console().status("") as status:
            if self.peer.against:
                both = against.measure(self.config, self.peer, status.update)
                self._show(asdict(both), table.of_both(both))
                return
            size = old.get("yardstick_size") if old else None
            measured = report.measure(self.config, status.update, size)
        plain = report.to_plain(measured) | {"published": MENG._asdict()}
        changes = []
        if self.compare and old:
            changes = compare.changes(measured, old)
            plain["changes"] = [asdict(change) for change in changes]
        self._show(plain, table.of_systems(measured, changes))

    def _show(self, plain: dict[str, Any], shown: table.Shown) -> None:
        if self.json:
            plain["notes"] = [*shown.notes]
            print(json.dumps(plain, indent=1, default=str))
            return
        for part in shown.tables:
            print_table(part)
            print()
        for note in shown.notes:
            say(note)
