# SPDX-License-Identifier: Apache-2.0
"""Optimisers and schedules of the papers and of their successors, from optax."""

from dataclasses import dataclass
from typing import Any, Literal

import jax.numpy as jnp
import optax

RATES = {"adam": 1e-3, "adadelta": 1.0, "sgd": 1.0}  # where none is given


@dataclass(frozen=True)
class OptimizerConfig:
    """Which optimiser, and how its rate moves."""

    name: Literal["adam", "adadelta", "sgd"] = "adam"
    learning_rate: float | None = None  # none given: adam 0.001, others 1
    momentum: float = 0.0  # of sgd
    warmup: int = 0  # steps over which the rate rises from 0
    schedule: Literal["constant", "inverse_sqrt"] = "constant"  # after warm-up
    decay: float = 1.0  # the rate is multiplied by this after each epoch ...
    decay_after: int = 0  # ... from the end of this epoch on
    plateau: float = 1.0  # ... and by this where validation does not improve ...
    plateau_patience: int = 2  # ... so many times in a row
    clip: float = 1.0  # global L2 norm of the gradient; 0: no clipping


def learning_rate(config: OptimizerConfig, steps_per_epoch: int) -> optax.Schedule:
    """The rate at a step, a plateau apart: warm-up, schedule, decay by epoch.

    ``inverse_sqrt`` falls as ``sqrt(w / step)`` from the end of the warm-up of w steps
    (Vaswani et al. 2017); without one, w is 1.
    """
    peak = config.learning_rate
    falling = optax.exponential_decay(
        RATES[config.name] if peak is None else peak,
        transition_steps=steps_per_epoch,
        decay_rate=config.decay,
        transition_begin=max(config.decay_after - 1, 0) * steps_per_epoch,
        staircase=True,
    )
    warmup = config.warmup
    rising = optax.linear_schedule(0.0, 1.0, warmup) if warmup else lambda step: 1.0

    def rate(step: Any) -> Any:
        found = rising(step) * falling(step)
        if config.schedule == "inverse_sqrt":
            least = max(warmup, 1)
            found = found * jnp.sqrt(least / jnp.maximum(step, least))
        return found

    return rate


def build(
    config: OptimizerConfig, steps_per_epoch: int
) -> optax.GradientTransformation:
    """Clipping, then the optimiser.

    Adadelta has rho 0.95 and epsilon 1e-6, as all five papers that use it say.
    """
    rate = learning_rate(config, steps_per_epoch)
    if config.name == "adam":
        update = optax.adam(rate)
    elif config.name == "sgd":
        update = optax.sgd(rate, momentum=config.momentum or None)
    else:
        update = optax.adadelta(rate, rho=0.95, eps=1e-6)
    clip = optax.clip_by_global_norm(config.clip) if config.clip else optax.identity()
    return optax.chain(clip, update)
