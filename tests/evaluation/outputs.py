# SPDX-License-Identifier: Apache-2.0
"""Systems that said something, and what is reported of them."""

from pathlib import Path

from kvnmt.evaluation import MEASURES, Report, System, Test
from kvnmt.runs.directory import load_run
from tests.helpers import toy_lines

LINES = ["", "a", *toy_lines(5, 2)]


def outputs(lines: list[str], *runs: Path) -> list[System]:
    """A perfect system, one that says nothing, and runs that say nothing either."""
    silent = [""] * len(lines)
    made = [
        System("perfect", lambda: [line.upper() for line in lines]),
        System("silent", lambda: silent),
    ]
    return made + [System(run.name, lambda: silent, load_run(run)) for run in runs]


def reports(name: str, test: Test, systems: list[System]) -> list[Report]:
    return MEASURES[name](test, systems)


def given(**systems: list[str]) -> list[System]:
    """Systems that are files of translations."""
    return [System(name, lambda own=own: own) for name, own in systems.items()]
