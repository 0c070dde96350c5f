# SPDX-License-Identifier: Apache-2.0
"""The command that prints tables about systems and mechanisms."""

import json
from dataclasses import dataclass, field
from typing import Annotated

from kvnmt.cli.flags import FLAT
from kvnmt.console import print_table
from kvnmt.systems import costs, mechanisms


@dataclass(frozen=True)
class Systems:
    """List the named systems and the mechanisms that they are made of.

    --json prints a line for every system, then a line for every mechanism.
    """

    config: Annotated[costs.OverviewConfig, FLAT] = field(
        default_factory=costs.OverviewConfig
    )
    json: bool = False  # print JSON lines instead of a table

    def __call__(self) -> None:
        """Lists."""
        rows = costs.overview(self.config)
        members = mechanisms.mechanisms()
        if self.json:
            for row in rows:
                figures = row.costs and row.costs._asdict()
                print(json.dumps(row._asdict() | {"costs": figures}))
            for member in members:
                options = [option._asdict() for option in member.options]
                print(json.dumps(member._asdict() | {"options": options}))
            return
        print_table(costs.table(rows, self.config))
        print()
        print_table(mechanisms.table(members))
