# SPDX-License-Identifier: Apache-2.0
"""Trainings of which a test replaces a part."""

import io
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from rich.console import Console

from kvnmt.data.corpus import load_corpora
from kvnmt.data.vocabularies import load_vocabularies, save_vocabularies
from kvnmt.model import assembly
from kvnmt.model.assembly import Params
from kvnmt.runs.config import Experiment, to_plain
from kvnmt.training.job import Job, make_job
from kvnmt.training.loop import Result, fit
from kvnmt.training.losses import Loss
from kvnmt.training.step import Metrics, TrainState
from kvnmt.training.validation import Validation
from kvnmt.typing import Array
from tests.helpers import quiet

Figures = dict[str, float]


class Killed(BaseException):
    """Ends a training as a kill does: nothing catches it."""


def job_of(exp: Experiment, folder: Path) -> tuple[Job, TrainState]:
    """What a run of this experiment trains; a run in the folder lends its words."""
    job, draw = job_and_draw(exp, folder)
    return job, job.start(draw())


def job_and_draw(exp: Experiment, folder: Path) -> tuple[Job, Callable[[], Params]]:
    """The same, with what makes the parameters."""
    words = load_vocabularies(folder) if folder.exists() else None
    corpora = load_corpora(exp.data, words, quiet())
    model = assembly.build(exp.model, *map(len, corpora.vocabularies))
    job = make_job(
        model=model,
        corpora=corpora,
        training=exp.training,
        objective=exp.objective,
        optimizer=exp.optimizer,
        folder=folder,
        about={"config": to_plain(exp)},
        console=quiet(),
        search=exp.search,
    )
    return job, partial(model.init, jax.random.key(exp.training.seed))


def fit_with(
    exp: Experiment,
    folder: Path,
    *,
    step: Callable[[Any], Any] = lambda step: step,
    validate: Callable[[Params], Figures] | None = None,
    resume: bool = False,
    console: Console | None = None,
) -> Result:
    """Trains in a run directory with another step, or another validation.

    Args:
        exp: What to train.
        folder: Run directory, made unless it is there.
        step: Makes the step from the one that the run would take.
        validate: Gives the figures instead of the run's own.
        resume: Go on from the last checkpoint.
        console: Where people read.
    """
    job, draw = job_and_draw(exp, folder)
    if not folder.exists():
        save_vocabularies(job.corpora.vocabularies, folder / "vocabulary")
        (folder / "config.json").write_text(json.dumps(to_plain(exp)))
    job = replace(
        job,
        console=console or job.console,
        train_step=step(job.train_step),
        validate=(lambda params: Validation(validate(params), []))
        if validate
        else job.validate,
    )
    return fit(job, draw, resume=resume)


def killed_after(count: int) -> Callable[[Any], Any]:
    """Makes a step that is the end of the process after so many."""

    def make(step: Any) -> Any:
        left = iter(range(count))

        def killed(*inputs: Any) -> Any:
            if next(left, None) is None:
                raise Killed
            return step(*inputs)

        return with_lower(killed, step)

    return make


@jax.jit
def _only_counted(
    state: TrainState, source: Array, target: Array
) -> tuple[TrainState, Metrics]:
    one = jnp.ones(())
    loss = Loss(*(one for _ in fields(Loss)))
    counted = replace(state, step=state.step + 1)
    return counted, Metrics(loss, one, jnp.bool_(False))


def idle(step: Any) -> Any:
    """Makes a step that learns nothing: no optimiser has to be compiled for it."""
    return _only_counted


def with_lower(other: Any, step: Any) -> Any:
    """Lets another step tell of its memory what the real one does."""
    other.lower = step.lower
    return other


def watching(act: Callable[[], None]) -> Console:
    """A console on which a training says what it validated; this is done then."""

    class Watcher(io.StringIO):
        def write(self, text: str) -> int:
            if "valid loss" in text:
                act()
            return super().write(text)

    return Console(file=Watcher())


@contextmanager
def compiling() -> Iterator[list[str]]:
    """Gives the names of the programs that are compiled while it is open."""
    names: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            message = record.getMessage()
            if message.startswith("Compiling"):
                names.append(message.split()[1])

    logger, listener = logging.getLogger("jax"), Listener()
    propagate, logger.propagate = logger.propagate, False
    logger.addHandler(listener)
    jax.config.update("jax_log_compiles", True)  # in all threads
    try:
        yield names
    finally:
        jax.config.update("jax_log_compiles", False)
        logger.removeHandler(listener)
        logger.propagate = propagate
