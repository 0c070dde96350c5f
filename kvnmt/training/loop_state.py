# SPDX-License-Identifier: Apache-2.0
"""What changes while training, and how it comes back from a checkpoint."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import cattrs
import jax.numpy as jnp
import numpy as np

from kvnmt import devices
from kvnmt.data.vocabularies import check_digests
from kvnmt.errors import OptionError, UserError
from kvnmt.training.ahead import Shape
from kvnmt.training.checkpoints.folder import DAMAGED
from kvnmt.training.checkpoints.writer import Checkpoints
from kvnmt.training.freezing import at_mean
from kvnmt.training.job import Job
from kvnmt.training.losses import TERMS
from kvnmt.training.optimizer import learning_rate
from kvnmt.training.progress import Progress, Sums
from kvnmt.training.step import TrainState


@dataclass
class LoopState:
    """What changes while training."""

    arrays: TrainState  # until a checkpoint is read: shapes
    step: int = 0  # steps made
    saved: int = 0  # the step of the last checkpoint
    progress: Progress = field(default_factory=Progress)
    shapes: set[Shape] = field(default_factory=set)  # compiled already
    start: float = field(default_factory=time.monotonic)  # less the time of runs before

    def count_time(self) -> None:
        """Notes how long the training has taken so far."""
        self.progress.elapsed = time.monotonic() - self.start


def restore(
    job: Job,
    state: LoopState,
    checkpoints: Checkpoints,
    start: Callable[[], TrainState],
) -> None:
    """Brings the state to where the last whole checkpoint is.

    Without any it begins with the arrays of ``start``, which is called then alone.

    Raises:
        UserError: The checkpoint is of other pairs, validation text or vocabularies, or
            all are damaged.
    """
    if devices.agree(bool(checkpoints.folder.steps())):
        manifest = checkpoints.find("last")
        trained = manifest.about.get("vocabularies")
        check_digests(trained, job.corpora.vocabularies, job.folder)
        arrays = checkpoints.restore(job.shapes, manifest.step)
        if arrays.mean is not None and job.config.frozen:
            params = at_mean(arrays.params, arrays.mean, job.config.frozen)
            arrays = replace(arrays, params=params)
        state.arrays = arrays
        _check_same_text(job, manifest.about)
        state.progress = cattrs.structure(manifest.progress, Progress)
        state.start -= state.progress.elapsed
        _keep_sums(job, state, manifest.about)
        _keep_falls(job, state, manifest.about)
        set_scale(job, state)
    elif (job.folder / DAMAGED).exists():
        raise UserError(
            f"'{job.folder}' has no checkpoint left that is whole, see "
            f"'{job.folder / DAMAGED}'; begin another run."
        )
    else:
        state.arrays = start()
    state.step = state.saved = int(state.arrays.step)
    job.tell(f"resuming after step {state.step}")


def is_stale(job: Job, state: LoopState) -> bool:
    """Whether so many validations were not better that training ends early."""
    progress, least = state.progress, job.config.min_epochs * job.plan.per_epoch
    return progress.since_best >= job.config.patience and progress.validated >= least


def is_due(job: Job, state: LoopState) -> bool:
    """Whether it is time for a validation."""
    return is_awaited(job, state) and is_sound(job, state)


def is_awaited(job: Job, state: LoopState) -> bool:
    """Whether the place of a validation was reached; it waits for a sound step."""
    every = job.config.validate_every or job.plan.per_epoch
    validated = state.progress.validated
    last = state.step == job.steps and state.step > validated
    return last or state.step // every > validated // every


def is_sound(job: Job, state: LoopState) -> bool:
    """Whether the last step changed something, or none is left that could.

    After a skipped step perhaps all later steps are skipped. Then earlier checkpoints
    are needed, and no new one may take their place.
    """
    return not state.progress.skipped_last or state.step == job.steps


def is_over(job: Job, state: LoopState) -> bool:
    """Whether neither a step nor a validation is left to do."""
    ended = state.step >= job.steps or is_stale(job, state)
    return ended and not is_due(job, state)


def last_rate(job: Job, progress: Progress, step: int) -> float:
    """The learning rate of the last update that the first so many steps made."""
    made = max(step - progress.skipped, 1)  # updates, which the optimiser counts
    rate: Any = learning_rate(job.optimizer, job.plan.per_epoch, np)(made - 1)
    return float(rate) * progress.scale


def _keep_sums(job: Job, state: LoopState, before: Mapping[str, Any]) -> None:
    """Drops sums of steps that had other losses: a loss is of the steps it was in."""
    former = before.get("config", {}).get("objective")
    if former and (
        former.get("atteos_rounds") != job.objective.atteos_rounds
        or any(bool(former.get(n)) != bool(getattr(job.objective, n)) for n in TERMS)
    ):
        state.progress.sums, state.progress.logged = Sums(), Sums()


def _keep_falls(job: Job, state: LoopState, before: Mapping[str, Any]) -> None:
    """Takes the falls on plateaus back where the rate or their factor is given anew."""
    scale = state.progress.scale
    former = before.get("config", {}).get("optimizer")
    given = former and any(
        former.get(name) != getattr(job.optimizer, name)
        for name in ("learning_rate", "plateau")
    )
    if given and scale < 1:
        state.progress.scale, state.progress.since_fall = 1.0, 0
        job.tell(
            f"the rate is given anew: its falls on plateaus ({scale:.2g}) are over"
        )


def _check_same_text(job: Job, before: Mapping[str, Any]) -> None:
    def differs(name: str) -> bool:
        """Former versions do not tell everything."""
        return before.get(name) not in (None, job.about[name])

    place = "so its place among them means nothing here"
    other_pairs = before.get("batches") != job.about["batches"] or differs("pairs")
    for is_other, did in (
        (
            other_pairs,
            "was trained on other pairs, or batched for other devices, for other parts "
            f"or by another version, {place}",
        ),
        (
            differs("order"),
            f"shuffled pairs as another version does, kvnmt's or NumPy's, {place}",
        ),
        (
            differs("validation") or differs("validation_pairs"),
            "was validated on other text, so that its scores would not be those of its "
            "checkpoints",
        ),
    ):
        if is_other:
            raise OptionError(
                f"the run in '{job.folder}' {did}; put that back, or begin another run "
                "with {0}.",
                "training.warm_start",
            )


def set_scale(job: Job, state: LoopState) -> None:
    """Lets the arrays know how far the learning rate has fallen on plateaus."""
    scale = devices.replicate(jnp.float32(state.progress.scale), job.mesh)
    state.arrays = replace(state.arrays, scale=scale)
