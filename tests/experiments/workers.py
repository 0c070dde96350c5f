# SPDX-License-Identifier: Apache-2.0
"""Workers in processes of their own, on one table, with a training that takes no time.

None depends on how fast the machine is: they wait for each other by files.
"""

import multiprocessing
import os
import signal
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

from rich.console import Console

from experiments.harness.claims import Pace
from experiments.harness.rows import Row, Trained
from experiments.harness.table import work
from kvnmt.errors import run_program
from kvnmt.runs.config import Experiment
from kvnmt.training.loop import Result
from tests.experiments.fake import RESULT, leave

IMPORTED = ["tests.experiments.workers"]
PACE = Pace(beat=0.05, late=3600, look=0.05)  # silence alone is believed too late
DEADLINE = 300  # seconds


def start(name: str, folder: Path, rows: list[Row], dies: bool = False) -> BaseProcess:
    """Begins a worker; one that dies does so in its first training."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    process = context.Process(target=_work, args=(name, folder, rows, dies))
    process.start()
    return process


def wait_for(*paths: Path) -> None:
    """Waits until files are there."""
    end = time.monotonic() + DEADLINE
    while not all(path.exists() for path in paths):
        assert time.monotonic() < end, f"there is no {paths}"
        time.sleep(0.01)


def row_of(folder: Path, experiment: Experiment) -> Row:
    """A row of which nothing is measured."""
    return Row(
        folder=folder, system=folder.name, experiment=experiment, measure=nothing
    )


def nothing(trained: Trained) -> dict[str, float]:
    """The measure of a row."""
    return {}


def _work(name: str, folder: Path, rows: list[Row], dies: bool) -> None:
    def train(
        experiment: Experiment, run: Path, *, resume: bool, console: Console
    ) -> Result:
        (folder / f"{run.name}.{name}.{resume}").touch()
        leave(folder / "trained", experiment, run)
        if dies:
            wait_for(folder / "b" / "result.json", folder / "c" / "result.json")
            os.kill(os.getpid(), signal.SIGKILL)
        if run.name in "bc":  # two workers train at a time
            (folder / f"{run.name}.begun").touch()
            wait_for(folder / "b.begun", folder / "c.begun")
        return RESULT

    with (folder / f"{name}.log").open("w") as log:
        console = Console(file=log)
        failures: dict[str, str] = {}
        run_program("work", lambda: failures.update(work(rows, train, console, PACE)))
    raise SystemExit(1 if failures else 0)
