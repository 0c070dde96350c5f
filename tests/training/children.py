# SPDX-License-Identifier: Apache-2.0
"""Trainings in processes of their own, which end themselves at a moment that is set.

They are forked from a process that has imported all and used nothing: imports are a
third of a start. The learning curve is left out and, of one process, what is checked
before a training of any kind: others look at them. `quick` makes a start shorter still.
None depends on how fast the machine is: a training is killed before a change of the
files of its run that is counted, and asked to leave before a step that is counted.
"""

import atexit
import errno
import gc
import itertools
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax

from kvnmt import companions
from kvnmt.errors import UserError, run_program
from kvnmt.pictures import charts
from kvnmt.runs import train
from kvnmt.runs.config import Experiment
from kvnmt.training import shared_folder, steps
from kvnmt.training.checkpoints.orbax_arrays import AllWritten
from tests.lowering import share_contexts

IMPORTED = [
    "kvnmt.runs.train",
    "kvnmt.pictures.charts",
    # What is otherwise imported on the way.
    *("grain", "sacrebleu", "scipy.linalg", "tests.training.children"),
    *("jaxlib.mlir.dialects.mhlo", "rich._emoji_replace"),
]
KILLED = -signal.SIGKILL


class Cluster(NamedTuple):
    """Where a training in several processes meets."""

    port: int
    process: int
    processes: int = 2
    devices: int = 2  # of each


@dataclass(frozen=True)
class End:
    """When a training ends itself, and how; by default it does not."""

    kill_at: int = 0  # the change of a file of the run, from 1
    leave_at: int = 0  # the step of this process, from 1, before which it is asked to
    signals: tuple[int, ...] = ()  # by which it is asked
    full_at: int = 0  # the checkpoint, from 1, of which it cannot write its part
    fails: bool = False  # at its first validation, and no other process does


class Started(NamedTuple):
    """A training in a process of its own."""

    process: BaseProcess
    log: Path  # what it says

    def end(self, status: int) -> str:
        """Waits until it ends, with this status; what it said."""
        self.process.join(300)
        said = self.log.read_text()
        assert self.process.exitcode == status and "Traceback" not in said, said
        return said


def quick(exp: Experiment) -> Experiment:
    """The same without orthogonal matrices, whose programs are many.

    It says nothing at first: not for tests of what is translated.
    """
    return replace(exp, model=replace(exp.model, initializer="wide"))


def start(
    log: Path,
    folder: Path,
    exp: Experiment,
    *,
    end: End = End(),
    cluster: Cluster | None = None,
) -> Started:
    """Begins or goes on, as whatever restarts killed jobs would."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    resume = (folder / "config.json").exists()
    arguments = (log, folder, exp, resume, end, cluster)
    process = context.Process(target=_train, args=arguments)
    process.start()
    return Started(process, log)


def _train(
    log: Path,
    folder: Path,
    exp: Experiment,
    resume: bool,
    end: End,
    cluster: Cluster | None,
) -> None:
    """What the process does, to the end of its interpreter."""
    with log.open("w") as file:
        os.dup2(file.fileno(), sys.stderr.fileno())
    share_contexts()
    gc.freeze()
    gc.disable()  # it is over in seconds
    charts.learning_curve = lambda records, path: path.write_bytes(b"")
    if not cluster:
        train.check_step = lambda *_, **__: None  # traces loss and search for messages
    else:
        jax.config.update("jax_num_cpu_devices", cluster.devices)
        where = f"localhost:{cluster.port}"
        companions.join(where, cluster.processes, cluster.process)
        if cluster.process:  # clocks differ, and what processes agree on does not
            steps.time = SimpleNamespace(monotonic=lambda: 100 * time.monotonic())
    if end.kill_at:
        sys.addaudithook(_killing(folder, end.kill_at))
    if end.leave_at:
        train.fit = _leaving(end.leave_at, end.signals)
    if end.full_at:
        AllWritten.result = _full(end.full_at)
    if end.fails:
        train.fit = partial(_failing, train.fit)
    companions.GRACE = shared_folder.PATIENCE = 1.0

    def run() -> None:
        with companions.together():
            train.run(exp, folder, resume=resume)

    try:
        run_program("kvnmt", run)
    finally:
        atexit._run_exitfuncs()


def _killing(folder: Path, at: int) -> Callable[[str, tuple[Any, ...]], None]:
    """Kills this process before that change of a file or a folder of the run."""
    count = itertools.count(1)
    changes = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree")

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        writes = event == "open" and set(str(arguments[1])) & {*"wax+"}
        if writes or event in changes:
            is_of_run = str(arguments[0]).startswith(f"{folder}/")
            if is_of_run and next(count) == at:
                os.kill(os.getpid(), signal.SIGKILL)

    return hook


def _full(at: int) -> Callable[..., None]:
    """A wait for what is written of a checkpoint, of which that one finds no room."""
    wait, count = AllWritten.result, itertools.count(1)

    def result(written: AllWritten, timeout: float | None = None) -> None:
        wait(written, timeout)
        if next(count) == at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    return result


def _failing(fit: Callable[..., Any], job: Any, draw: Any, **choices: Any) -> Any:
    """A `fit` whose validation is a mistake."""

    def validate(params: Any) -> dict[str, float]:
        raise UserError("the validation text is gone.")

    return fit(replace(job, validate=validate), draw, **choices)


def _leaving(at: int, signals: tuple[int, ...]) -> Callable[..., Any]:
    """A `fit` that sends signals to this process before that step."""
    fit, count = train.fit, itertools.count(1)

    def asked(step: Any) -> Any:
        def send(*inputs: Any) -> Any:
            if next(count) == at:
                for number in signals:
                    signal.raise_signal(number)
            return step(*inputs)

        send.lower = step.lower
        return send

    def fit_until(job: Any, draw: Any, **choices: Any) -> Any:
        return fit(replace(job, train_step=asked(job.train_step)), draw, **choices)

    return fit_until
