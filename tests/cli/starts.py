# SPDX-License-Identifier: Apache-2.0
"""Runs that a command line may start from."""

import json
from pathlib import Path
from typing import Any

from kvnmt.cli.defaults import parse
from kvnmt.cli.main import COMMANDS, load
from kvnmt.inference.program import SearchConfig
from kvnmt.runs.config import Experiment, to_plain
from kvnmt.systems.named import system

MINE, OTHER, THIRD = 7, 3, 4  # beams that tell runs apart
# Of a run: nothing of it does anything until another flag asks for it.
WAITING = {
    "temperature": 0.5,
    "seed": 3,
    "diversity": 1.0,
    "normalization": "none",
    "alpha": 0.5,
    "max_length": 5,
    "min_length": 9,
}


def saved(folder: Path, beam: int, name: str = "rnnsearch-star", **search) -> Path:
    """Writes what the flags start from: a config."""
    folder.mkdir()
    search = SearchConfig(beam, **search)
    experiment = Experiment(system(name).model(), search=search)
    (folder / "config.json").write_text(json.dumps(to_plain(experiment)))
    return folder


def read(command: str, line: str, places: dict[str, Path]) -> Any:
    for name, place in places.items():
        line = line.replace(name, str(place))
    runs = COMMANDS[command].runs
    return parse(load(command), line.split(), prog=f"kvnmt {command}", runs=runs)
