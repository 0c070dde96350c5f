# SPDX-License-Identifier: Apache-2.0
"""Steps on a small batch, and what they leave."""

import dataclasses
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import AxisType, Mesh

from kvnmt import devices
from kvnmt.data.batches import LinkedBatch, pad, with_end
from kvnmt.model import assembly
from kvnmt.model.assembly import Model
from kvnmt.model.config import Dropout
from kvnmt.systems.named import system
from kvnmt.training import step as steps
from kvnmt.training.losses import Objective
from kvnmt.training.optimizer import OptimizerConfig, build
from kvnmt.training.step import StepOptions
from tests.helpers import SIZES

WORDS, ROWS, LENGTH = 9, 8, 6
KEY = jax.random.key(3)
OBJECTIVE = Objective(atteos=1.0, guided=0.5)


def make_model(
    name: str = "rnnsearch-star-atteos", dropout: float = 0.3, **changes: Any
) -> Model:
    config = dataclasses.replace(SIZES, dropout=Dropout(output=dropout), **changes)
    return assembly.build(system(name).model(config), WORDS, WORDS)


def make_batch(seed: int) -> LinkedBatch:
    """Pairs of all lengths; the last row holds nothing."""
    random = np.random.default_rng(seed)

    def side() -> np.ndarray:
        sizes = random.integers(0, LENGTH, ROWS - 1)
        words = (random.integers(1, WORDS, size).tolist() for size in sizes)
        return pad([with_end(ids) for ids in words], ROWS, LENGTH)

    source, target = side(), side()
    there = (target >= 0)[:, :, None] & (source >= 0)[:, None, :]
    return LinkedBatch(source, target, there & (random.random(there.shape) < 0.4))


def mesh_of(devices: int) -> Mesh:
    return jax.make_mesh(
        (devices,), ("data",), (AxisType.Auto,), devices=jax.devices()[:devices]
    )


class Trace(NamedTuple):
    """What some steps gave."""

    losses: list[float]
    norms: list[float]
    params: Any
    mean: Any


def train(
    run: Callable[..., Any],
    state: steps.TrainState,
    mesh: Mesh,
    count: int,
    place: bool = True,
) -> Trace:
    state = devices.replicate(state, mesh) if place else state
    losses, norms = [], []
    for seed in range(count):
        state, metrics = run(state, *devices.split_rows(make_batch(seed), mesh))
        losses.append(float(metrics.loss.total))
        norms.append(float(metrics.gradient_norm))
    return Trace(losses, norms, *jax.device_get((state.params, state.mean)))


@cache
def stepper(count: int, **options: Any) -> Callable[..., Any]:
    """The compiled step on so many devices."""
    update = build(OptimizerConfig(learning_rate=0.01), 4)
    chosen = StepOptions(**options)
    mesh = mesh_of(count)
    return steps.make_train_step(make_model(), OBJECTIVE, update, KEY, chosen, mesh)
