# SPDX-License-Identifier: Apache-2.0
"""What a training writes to: checkpoints, records, and who may ask it to leave."""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

from kvnmt import devices
from kvnmt.console import Pulse
from kvnmt.errors import StoppedError, UserError
from kvnmt.files import make_folder
from kvnmt.training import records
from kvnmt.training.checkpoints.folder import Keep, only_writer
from kvnmt.training.checkpoints.writer import Checkpoints
from kvnmt.training.job import Job
from kvnmt.training.leaving import Leaving
from kvnmt.training.loop_state import LoopState, is_over, restore
from kvnmt.training.profile import Profile
from kvnmt.training.shared_folder import check_shared
from kvnmt.training.signals import Signals
from kvnmt.training.step import TrainState


class Outputs(NamedTuple):
    """What training writes to, and who may ask it to leave."""

    checkpoints: Checkpoints
    log: records.Log | None  # of the first process
    leaving: Leaving
    pulse: Pulse  # says how far it is, where no bar is shown
    profile: Profile


def open_outputs(
    stack: ExitStack,
    job: Job,
    state: LoopState,
    start: Callable[[], TrainState],
    resume: bool,
    begin: Callable[[bool], object],
) -> Outputs:
    """Opens what is written to, and brings the state to where training begins.

    Args:
        stack: Closes it again.
        job: What is trained.
        state: Moved to the last checkpoint, if training goes on.
        start: Makes the arrays to begin with, where it should and there is none.
        resume: Whether it does.
        begin: Called by the first process, as `kvnmt.training.loop.fit` says.

    Raises:
        UserError: Another training writes there, a process does not see the folder, the
            checkpoint is of other pairs, or something cannot be written.
    """
    keep = Keep(job.config.keep_last, job.config.keep_every, job.config.keep_best)
    devices.first_does(lambda: make_folder(job.folder))
    check_shared(job.folder)
    only = only_writer(job.folder, job.tell)
    devices.first_does(lambda: stack.enter_context(only))
    ended = stack.enter_context(ExitStack())

    def begun(goes_on: bool) -> None:
        begin(goes_on)
        ended.push(partial(_log_end, job.folder))

    if not resume:
        devices.first_does(lambda: begun(True))
    signals = stack.enter_context(Signals(job.tell))
    checkpoints = stack.enter_context(
        Checkpoints(job.folder / "checkpoints", keep=keep, tell=job.tell)
    )
    if resume:
        restore(job, state, checkpoints, start)
        goes_on = not is_over(job, state)
        devices.first_does(lambda: begun(goes_on))

    def open_log() -> records.Log:
        log = records.Log(job.folder, state.step, state.progress.validated)
        stack.callback(log.close)
        return log

    log = devices.first_does(open_log)
    pulse = Pulse("step", job.steps, job.tell)
    leaving = Leaving(signals, job.mesh, 60 * job.config.save_minutes)
    traced = job.config.profile if devices.part()[0] == 0 else 0
    profile = Profile(job.folder / "profile", traced, job.tell)
    stack.callback(profile.close)
    return Outputs(checkpoints, log, leaving, pulse, profile)


def _log_end(folder: Path, kind: object, error: object, trace: object) -> None:
    """Adds to the log of a run why it does not end by itself."""
    if isinstance(error, (UserError, StoppedError)):
        records.log_told(folder, str(error))
