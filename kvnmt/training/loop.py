# SPDX-License-Identifier: Apache-2.0
"""The training loop: steps, saves, validation, early stop, and leaving when asked.

`Job` is what does not change, `LoopState` is what does, and `Outputs` is where it is
written to.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, replace
from typing import NamedTuple, NoReturn

import jax

from kvnmt import devices
from kvnmt.companions import gathered
from kvnmt.data.batches import AnyBatch
from kvnmt.data.stream import BatchAt, WorkerDiedError, stream
from kvnmt.model.assembly import Params
from kvnmt.training import display, records, steps
from kvnmt.training.config import TrainingConfig
from kvnmt.training.job import Job
from kvnmt.training.loop_state import (
    LoopState,
    is_awaited,
    is_due,
    is_sound,
    is_stale,
    set_scale,
)
from kvnmt.training.outputs import Outputs, open_outputs
from kvnmt.training.programs import Programs
from kvnmt.training.step import TrainState
from kvnmt.training.warnings import warnings


class Result(NamedTuple):
    """What a finished training has to say."""

    steps: int
    best_step: int
    epochs: float
    best_epoch: float
    best: dict[str, float]  # validation figures of the best checkpoint
    tokens_per_second: float  # real target tokens, compiling and validating apart
    minutes: float
    stopped_early: bool


def fit(
    job: Job,
    draw: Callable[[], Params],
    *,
    resume: bool = False,
    begin: Callable[[bool], object] = lambda goes_on: None,
) -> Result:
    """Trains to the end or to an early stop, and keeps the best and the last.

    Args:
        job: What to train.
        draw: Makes the parameters to start from, unless there is a checkpoint to go
            on from; meanwhile the first program is compiled.
        resume: Go on from the last checkpoint, if there is one.
        begin: Called by the first process, once no other training writes to the
            folder and what there is to go on from was accepted; told whether there
            is anything left to train.

    Raises:
        StoppedError: A signal asked for it; everything is saved.
        UserError: What to start from cannot be used, the largest batch does not fit,
            a checkpoint cannot be written, or too many steps in a row had numbers that
            are not finite.
    """
    with ExitStack() as stack:
        batch_at = BatchAt(job.corpora.train, job.plan, job.config.seed, devices.part())
        programs = Programs(job, batch_at)
        # Until signals are heard, whatever ends the training does not wait for these.
        stack.callback(programs.step.cancel)

        def start() -> TrainState:
            programs.begin(0, most=1)
            return job.start(draw())

        state = LoopState(job.shapes if resume else start())
        outputs = open_outputs(stack, job, state, start, resume, begin)
        stack.enter_context(programs.step)
        for line in warnings(job, state):
            job.tell(line)
        if state.step < job.steps and not is_stale(job, state):
            job.tell("compiling programs for the first batches")
            programs.begin(state.step)
            if job.config.workers:
                batch_at.forget()  # they plan for themselves
            ahead = {"wait": programs.wait, "validate": programs.validate}
            job = replace(job, train_step=programs, **ahead)
        batches = stack.enter_context(stream(batch_at, state.step, job.config.workers))
        train(job, state, outputs, batches)
    per_epoch, progress = job.plan.per_epoch, state.progress
    return Result(
        steps=state.step,
        best_step=progress.best_step,
        epochs=state.step / per_epoch,
        best_epoch=progress.best_step / per_epoch,
        best=progress.figures,
        tokens_per_second=progress.rate,
        minutes=progress.elapsed / 60,
        stopped_early=state.step < job.steps,
    )


def train(
    job: Job, state: LoopState, outputs: Outputs, batches: Iterator[AnyBatch]
) -> None:
    """Trains, saves and validates in alternation, until all is done.

    Args:
        job: What to train.
        state: Where it stands; it is moved on.
        outputs: What is written to.
        batches: Those that follow the state's step.
    """
    config, leaving = job.config, outputs.leaving
    while True:
        state.count_time()
        if is_due(job, state):
            _validate(job, state, outputs)
        if state.step >= job.steps or is_stale(job, state):
            return
        if leaving.asked_alone:
            _leave(job, state, outputs)
        try:
            steps.train_until(_next_stop(job, state), job, state, outputs, batches)
        except WorkerDiedError:
            state.count_time()
            if jax.process_count() == 1:  # several would have to save together
                if state.step > state.saved:
                    _save(job, state, outputs)
                outputs.checkpoints.wait()
            raise
        state.count_time()
        if leaving.decided:
            _leave(job, state, outputs)
        awaited = is_awaited(job, state) or _save_awaited(config, state)
        if (awaited or leaving.save_due) and is_sound(job, state):
            _save(job, state, outputs)


def _save_awaited(config: TrainingConfig, state: LoopState) -> bool:
    """Whether the place of a save was reached since the last."""
    saves = filter(None, (config.save_every, config.keep_every))
    return any(state.step // every > state.saved // every for every in saves)


def _next_stop(job: Job, state: LoopState) -> int:
    """Where training stops to validate or to save; no later than an epoch."""
    config, step = job.config, state.step
    if is_awaited(job, state) or _save_awaited(config, state):
        return step + 1  # the last was skipped
    saves = config.save_every, config.keep_every
    every = (config.validate_every, *saves, job.plan.per_epoch)
    return min(job.steps, *((step // n + 1) * n for n in every if n))


def _validate(job: Job, state: LoopState, outputs: Outputs) -> None:
    """Validates, writes the figures down, and rates the checkpoint of this step."""
    try:
        with outputs.leaving.breaking():
            measured = job.validate(state.arrays.served)
            # Of the first process in all: rounding may differ.
            figures = json.loads(gathered(json.dumps(measured.figures))[0])
    except KeyboardInterrupt:
        _leave(job, state, outputs)
    state.count_time()
    progress, optimizer, step = state.progress, job.optimizer, state.step
    record = steps.record(job, progress, step, progress.sums) | figures
    score, _ = records.score(job.config.metric, figures)
    better = progress.rated(step, score, figures)
    if optimizer.plateau < 1 and progress.since_fall >= optimizer.plateau_patience:
        progress.since_fall, progress.scale = 0, progress.scale * optimizer.plateau
        set_scale(job, state)

    def write() -> None:
        if outputs.log:
            outputs.log.add(record, measured.translations)

    devices.first_does(write)
    job.tell(display.validated(record, better))
    outputs.checkpoints.rate(step, score, asdict(progress))


def _save(job: Job, state: LoopState, outputs: Outputs) -> None:
    outputs.checkpoints.save(state.arrays, asdict(state.progress), job.about)
    state.saved = state.step
    outputs.leaving.saved()


def _leave(job: Job, state: LoopState, outputs: Outputs) -> NoReturn:
    """Saves if there is anything new, and ends the run."""
    if state.step > state.saved:
        _save(job, state, outputs)
    outputs.checkpoints.wait()
    raise outputs.leaving.stopped(state.step)
