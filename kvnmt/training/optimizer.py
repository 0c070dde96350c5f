# SPDX-License-Identifier: Apache-2.0
"""Optimisers and schedules of the papers and of their successors, from optax."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from kvnmt.errors import OptionError
from kvnmt.fields import at_least, between, check_fields, idle_while


@dataclass(frozen=True)
class OptimizerConfig:
    """Which optimiser, and how its rate moves."""

    name: Literal["adam", "adadelta", "sgd"] = "adam"  # the optimiser
    # the learning rate; None: 0.001 of adam, 1 of the others
    learning_rate: Annotated[float | None, at_least(0)] = None
    momentum: Annotated[float, between(0, 0.999999)] = 0.0  # momentum of sgd
    # decay of adam's mean of gradients
    beta1: Annotated[float, between(0, 0.999999)] = 0.9
    # decay of adam's mean of squared gradients; 0.98 is common for Transformers
    beta2: Annotated[float, between(0, 0.999999)] = 0.999
    # added to adam's root of mean squares; Vaswani et al. (2017): 1e-9
    epsilon: Annotated[float, between(1e-12, 1)] = 1e-8
    # steps of linear warm-up, from 1/N of the rate to the whole rate; 0: none
    warmup: Annotated[int, at_least(0)] = 0
    # how the rate moves after warm-up
    schedule: Literal["constant", "inverse_sqrt", "linear", "cosine"] = "constant"
    # the step at which linear or cosine reaches 0
    schedule_steps: Annotated[
        int | None, at_least(1), idle_while(schedule=("constant", "inverse_sqrt"))
    ] = None
    # the rate is multiplied by this after each epoch from epoch decay_after on
    decay: Annotated[float, between(0.000001, 1)] = 1.0
    # the epoch after which the rate falls by decay for the first time
    decay_after: Annotated[int, at_least(0), idle_while(decay=1)] = 0
    # the rate is multiplied by this when plateau_patience validations in a row have not
    # improved; 1: never
    plateau: Annotated[float, between(0.000001, 1)] = 1.0
    # validations without a better score before the rate falls by plateau
    plateau_patience: Annotated[int, at_least(1), idle_while(plateau=1)] = 2
    # largest global L2 norm of the gradient; 0: no clipping
    clip: Annotated[float, at_least(0)] = 1.0
    # each step of adam subtracts this share of every matrix, times the rate
    # (Loshchilov and Hutter 2019)
    weight_decay: Annotated[float, at_least(0)] = 0.0

    @property
    def ends(self) -> bool:
        """Whether the schedule reaches 0, at ``schedule_steps``."""
        return self.schedule in ("linear", "cosine")


def learning_rate(
    config: OptimizerConfig, steps_per_epoch: int, arrays: Any = jnp
) -> optax.Schedule:
    """The rate at a step, a plateau apart: warm-up, schedule, decay by epoch.

    A warm-up of w steps rises from 1 / w to 1. ``inverse_sqrt`` falls as ``sqrt(w /
    step)`` from its end on (Vaswani et al. 2017); without one, w is 1. ``linear`` and
    ``cosine`` (Loshchilov and Hutter 2017, without restarts) fall from its end to 0
    at `schedule_steps`. ``arrays`` is the library that computes it: with NumPy no
    device is asked, nor waited for.

    Raises:
        OptionError: A schedule that ends has no end.
    """
    ends = config.ends  # a schedule that was given up may have left its steps
    end = config.schedule_steps or 0
    if ends and end <= config.warmup:
        raise OptionError(
            f"{{0}} {config.schedule} ends at {{1}}, which is {config.schedule_steps}; "
            "give a number of steps beyond {2}, such as that of all steps.",
            *(f"optimizer.{name}" for name in ("schedule", "schedule_steps", "warmup")),
        )
    peak = config.learning_rate
    peak = KINDS[config.name].rate if peak is None else peak
    before = max(config.decay_after - 1, 0)
    warmup = config.warmup

    def rate(step: Any) -> Any:
        # Integers: a compiled quotient of floats may be a little less than whole.
        falls = arrays.maximum(step // steps_per_epoch - before, 0)
        value = peak * config.decay ** falls.astype(arrays.float32)
        number = step + 1  # the first step is no waste
        if warmup:
            value = value * arrays.minimum(number / warmup, 1.0)
        if config.schedule == "inverse_sqrt":
            least = max(warmup, 1)
            value = value * arrays.sqrt(least / arrays.maximum(number, least))
        if ends:
            share = arrays.clip((step - warmup) / (end - warmup), 0.0, 1.0)
            cosine = (1 + arrays.cos(arrays.pi * share)) / 2
            value = value * (cosine if config.schedule == "cosine" else 1 - share)
        return value

    return rate


def build(
    config: OptimizerConfig, steps_per_epoch: int
) -> optax.GradientTransformation:
    """Clipping, then the optimiser; the same arguments give the same for a while.

    Adadelta has rho 0.95 and epsilon 1e-6, as all five papers that use it say.

    Raises:
        UserError: An option is not what it may be, or is of another optimiser.
    """
    check_fields(config, "optimizer.")
    return _build(config, steps_per_epoch)


@lru_cache(maxsize=32)
def _build(
    config: OptimizerConfig, steps_per_epoch: int
) -> optax.GradientTransformation:
    for name, kind in KINDS.items():
        for option in kind.options if name != config.name else ():
            if getattr(config, option) != getattr(OptimizerConfig, option):
                raise OptionError(
                    f"{{0}} goes with {name}, not with {config.name}; leave it out, "
                    f"or set {{1}} to {name}.",
                    *(f"optimizer.{option}", "optimizer.name"),
                )
    rate = learning_rate(config, steps_per_epoch)
    update = KINDS[config.name].make(config, rate)
    clip = optax.clip_by_global_norm(config.clip) if config.clip else optax.identity()
    return optax.chain(clip, update)


class Kind(NamedTuple):
    """One kind of optimiser."""

    rate: float  # where none is given
    options: tuple[str, ...]  # of the config, that no other kind has
    make: Callable[[OptimizerConfig, optax.Schedule], optax.GradientTransformation]


def _adam(config: OptimizerConfig, rate: optax.Schedule) -> Any:
    means = config.beta1, config.beta2, config.epsilon
    if not config.weight_decay:
        return optax.adam(rate, *means)
    return optax.adamw(
        rate,
        *means,
        weight_decay=config.weight_decay,
        mask=lambda params: jax.tree.map(lambda leaf: leaf.ndim > 1, params),
    )


def _sgd(config: OptimizerConfig, rate: optax.Schedule) -> Any:
    return optax.sgd(rate, momentum=config.momentum or None)


def _adadelta(config: OptimizerConfig, rate: optax.Schedule) -> Any:
    return optax.adadelta(rate, rho=0.95, eps=1e-6)


KINDS = {
    "adam": Kind(1e-3, ("weight_decay", "beta1", "beta2", "epsilon"), _adam),
    "adadelta": Kind(1.0, (), _adadelta),
    "sgd": Kind(1.0, ("momentum",), _sgd),
}
