# SPDX-License-Identifier: Apache-2.0
"""The command that prints a table of run directories."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from kvnmt.console import print_json, print_table
from kvnmt.runs import overview


@dataclass(frozen=True)
class Runs:
    """List run directories: how far each is, its best score, whether it trains."""

    # such as runs/*; what is no run directory is left out
    folders: tyro.conf.Positional[tuple[Path, ...]]
    json: bool = False  # print a line of JSON for each instead of a table

    def __call__(self) -> None:
        """Lists."""
        found = overview.states(self.folders)
        if not self.json:
            print_table(overview.table(found))
            return
        for one in found:
            print_json(one._asdict())
