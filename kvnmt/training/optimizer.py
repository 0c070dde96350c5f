# SPDX-License-Identifier: Apache-2.0
"""Optimisers of the papers, from optax."""

from dataclasses import dataclass
from typing import Literal

import optax


@dataclass(frozen=True)
class OptimizerConfig:
    """Which optimiser, and how its rate moves."""

    name: Literal["adam", "adadelta"] = "adam"
    learning_rate: float | None = None  # none given: 0.001 for adam, 1 for adadelta
    decay: float = 1.0  # the rate is multiplied by this after each epoch ...
    decay_after: int = 0  # ... from the end of this epoch on
    warmup: int = 0  # steps over which the rate rises from 0
    clip: float = 1.0  # global L2 norm of the gradient; 0: no clipping


def learning_rate(config: OptimizerConfig, steps_per_epoch: int) -> optax.Schedule:
    """The rate at a step: warm-up, then constant or decaying by epoch."""
    peak = config.learning_rate
    if peak is None:
        peak = 1e-3 if config.name == "adam" else 1.0
    falling = optax.exponential_decay(
        peak,
        transition_steps=steps_per_epoch,
        decay_rate=config.decay,
        transition_begin=max(config.decay_after - 1, 0) * steps_per_epoch,
        staircase=True,
    )
    if not config.warmup:
        return falling
    rising = optax.linear_schedule(0.0, 1.0, config.warmup)
    return lambda step: rising(step) * falling(step)


def build(
    config: OptimizerConfig, steps_per_epoch: int
) -> optax.GradientTransformation:
    """Clipping, then the optimiser.

    Adadelta has rho 0.95 and epsilon 1e-6, as all five papers that use it say.
    """
    rate = learning_rate(config, steps_per_epoch)
    if config.name == "adam":
        update = optax.adam(rate)
    else:
        update = optax.adadelta(rate, rho=0.95, eps=1e-6)
    clip = optax.clip_by_global_norm(config.clip) if config.clip else optax.identity()
    return optax.chain(clip, update)
