# SPDX-License-Identifier: Apache-2.0
"""Steps of training: sent off to the devices, their figures read some steps later."""

import math
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax

from kvnmt import devices
from kvnmt.console import is_watched
from kvnmt.data.batches import AnyBatch
from kvnmt.data.stream import BatchAt, WorkerDiedError
from kvnmt.errors import reason_of
from kvnmt.training import device_memory, display
from kvnmt.training.ahead import Shape, shape_of
from kvnmt.training.bad_numbers import report, too_many
from kvnmt.training.job import Job
from kvnmt.training.leaving import Leaving
from kvnmt.training.loop_state import LoopState, last_rate
from kvnmt.training.outputs import Outputs
from kvnmt.training.progress import Progress, Sums, together
from kvnmt.training.step import Metrics


class Sent(NamedTuple):
    """A step that was sent off, whose figures are not read yet."""

    step: int  # from 0
    shape: Shape  # of this process's part of the batch
    metrics: Metrics
    waited: float  # seconds for its batch


def train_until(
    until: int,
    job: Job,
    state: LoopState,
    outputs: Outputs,
    batches: Iterator[AnyBatch],
) -> None:
    """Makes steps up to this one, or until a signal asks.

    Args:
        until: The step to stop after.
        job: What is trained.
        state: Where it stands; it is moved on.
        outputs: What is written to.
        batches: Those that follow the state's step.
    """
    sent, leaving = list[Sent](), outputs.leaving
    per_epoch, progress = job.plan.per_epoch, state.progress
    epoch, done = divmod(state.step, per_epoch)
    with display.bar(job.console, epoch + 1, done, per_epoch) as bar:
        (task,) = bar.task_ids
        clock = time.monotonic()
        most = 2
        while state.step < until:
            asked = time.monotonic()
            try:
                batch = next(batches)
            except WorkerDiedError:
                _read(job, state, outputs, sent)
                raise
            waited, shape = time.monotonic() - asked, shape_of(*batch[:2])
            if not _is_ready(job, shape, leaving):
                _read(job, state, outputs, sent)
                return
            is_new = shape not in state.shapes
            state.shapes.add(shape)
            metrics = _send(job, state, batch, shape)
            sent.append(Sent(state.step - 1, shape, metrics, waited))
            outputs.profile.sent(state.arrays)
            bar.advance(task)
            read_all = is_new or state.step == until or leaving.asked_alone
            if not read_all and len(sent) < most:
                continue
            # The step just sent off may still run: read the ones before it.
            cut = len(sent) if read_all else len(sent) - 1
            before, since = clock, None if is_new else clock
            clock = _read(job, state, outputs, sent[:cut], since)
            sent = sent[cut:]
            # Seconds of a step are told of those whose program was compiled already.
            each = 0.0 if is_new else (clock - before) / cut
            bar.update(task, note=_note(progress))
            if not is_watched(job.console):
                outputs.pulse.beat(state.step, _note(progress))
            if leaving.agree(each):
                _read(job, state, outputs, sent)
                return
            # Several processes must read at the same steps: the slowest one tells.
            most = together(leaving.step_seconds) or most


def record(job: Job, progress: Progress, step: int, sums: Sums) -> dict[str, Any]:
    """What is written down of some steps, of which this was the last."""
    return {
        "step": step,
        "epoch": step / job.plan.per_epoch,
        **sums.figures(job.objective),
        "learning_rate": last_rate(job, progress, step),
        "skipped": progress.skipped,
        "tokens_per_second": sums.rate or progress.rate,
        "waiting": sums.waiting,
    }


def _is_ready(job: Job, shape: Shape, leaving: Leaving) -> bool:
    """Waits for the program of a step, for minutes perhaps; a signal ends that."""
    try:
        with leaving.breaking():
            job.wait(shape)
    except KeyboardInterrupt:
        return False
    return True


def _send(job: Job, state: LoopState, batch: AnyBatch, shape: Shape) -> Metrics:
    """Sends a step off to the devices, without waiting for it."""
    arrays = devices.split_rows(batch, job.mesh)
    try:
        with jax.transfer_guard("disallow"):
            state.arrays, metrics = job.train_step(state.arrays, *arrays)
    except jax.errors.JaxRuntimeError as error:
        raise device_memory.explained(error, *shape) from None
    state.step += 1
    return metrics


def _read(
    job: Job,
    state: LoopState,
    outputs: Outputs,
    sent: list[Sent],
    since: float | None = None,
) -> float:
    """Waits for steps and takes their figures; returns when they were there.

    Args:
        job: What is trained.
        state: Where it stands.
        outputs: What is written to.
        sent: The steps.
        since: When they began, by this clock; None: they are not timed.
    """
    progress = state.progress
    try:
        figures = jax.device_get([each.metrics for each in sent])
    except jax.errors.JaxRuntimeError as error:  # an accelerator ran short of memory
        largest = max((each.shape for each in sent), key=math.prod)
        raise device_memory.explained(error, *largest) from None
    now = time.monotonic()
    took = 0.0 if since is None else (now - since) / len(sent)
    for (step, shape, _, waited), metrics in zip(sent, figures):
        if took:
            progress.time(int(metrics.loss.tokens), took, waited)
        positions = shape.rows * shape.target * devices.part()[1]
        progress.sums.add(metrics, positions)
        progress.logged.add(metrics, positions)
        _check_numbers(job, progress, step, bool(metrics.skipped))
        if job.config.log_every and (step + 1) % job.config.log_every == 0:
            _log(job, progress, outputs, step + 1)
    return now


def _check_numbers(job: Job, progress: Progress, step: int, skipped: bool) -> None:
    """Counts steps that changed nothing; stops after too many in a row."""
    progress.skipped += skipped
    progress.skipped_last = progress.skipped_last + 1 if skipped else 0
    if progress.skipped_last >= job.config.skip_at_most:
        seed = job.config.seed
        lines = BatchAt(job.corpora.train, job.plan, seed).lines(step).tolist()
        devices.first_does(
            lambda: report(job.folder, job.corpora, lines, step=step + 1, seed=seed)
        )
        raise too_many(job.folder, progress.skipped_last, step + 1)


def _log(job: Job, progress: Progress, outputs: Outputs, step: int) -> None:
    """Writes down the figures of the steps since the last such line.

    No process waits for another, nor does training end where it cannot be written.
    """
    figures = record(job, progress, step, progress.logged)
    progress.logged = Sums()
    if outputs.log is None:
        return
    try:
        outputs.log.add_steps(figures)
    except OSError as error:
        reason = reason_of(error)
        job.tell(f"no line on step {step} could be written: {reason}; training goes on")


def _note(progress: Progress) -> str:
    sums = progress.sums
    rate = sums.rate or progress.rate
    return display.running(sums.loss, progress.skipped, sums.padding, rate)
