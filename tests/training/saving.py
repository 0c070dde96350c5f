# SPDX-License-Identifier: Apache-2.0
"""States of a few numbers, saved at some steps."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

from kvnmt.model import assembly
from kvnmt.systems.named import system
from kvnmt.training import step as steps
from kvnmt.training.checkpoints.folder import Keep
from kvnmt.training.checkpoints.writer import Checkpoints
from kvnmt.training.optimizer import OptimizerConfig, build
from kvnmt.training.step import StepOptions
from tests.helpers import DEVICES, SIZES

# The optimisers and a parameter tree with members that may be missing.
CASES = [
    ("rnnsearch-star", OptimizerConfig(), StepOptions(), DEVICES),
    ("kvmematt-r2", OptimizerConfig(name="adadelta", clip=0.0), StepOptions(), 1),
    ("rnnsearch", OptimizerConfig(name="sgd"), StepOptions(ema=0.5), DEVICES),
]
ABOUT = {"vocabularies": {"source": "1"}}


@cache
def shapes_of(
    name: str, optimizer: OptimizerConfig, options: StepOptions
) -> steps.TrainState:
    """What a training keeps, found once for all tests."""
    model = assembly.build(system(name).model(SIZES), 10, 10)
    update = build(optimizer, 4)
    return jax.eval_shape(
        lambda key: steps.init_state(model.init(key), update, options),
        jax.random.key(0),
    )


def make_state(
    name: str, optimizer: OptimizerConfig, options: StepOptions, seed: int
) -> steps.TrainState:
    """Random in every float, at step 7."""
    normal = np.random.default_rng(seed).normal

    def fill(leaf: jax.ShapeDtypeStruct) -> jax.Array:
        if jnp.issubdtype(leaf.dtype, jnp.integer):
            return jnp.asarray(np.full(leaf.shape, seed, leaf.dtype))
        return jnp.asarray(normal(size=leaf.shape), leaf.dtype)

    state = jax.tree.map(fill, shapes_of(name, optimizer, options))
    return state.replace(step=jnp.int32(7), scale=jnp.float32(1))


def simple(seed: int = 1) -> steps.TrainState:
    return make_state(*CASES[0][:3], seed)


SMALL = steps.init_state({"W": jnp.arange(6.0).reshape(2, 3)}, optax.sgd(0.1))


def small(seed: int) -> steps.TrainState:
    """Where no array is looked at."""
    return SMALL


def save_at(
    folder: Path,
    *numbers: int,
    keep: Keep = Keep(9),
    rate: bool = True,
    made: Callable[[int], steps.TrainState] = simple,
):
    """Saves a state for each step; the scores rise."""
    with Checkpoints(folder, keep=keep) as checkpoints:
        for number in numbers:
            state = made(number).replace(step=jnp.int32(number))
            checkpoints.save(state, {"at": number}, ABOUT)
            if rate:
                checkpoints.rate(number, number / 10, {"at": number})


def shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def files(folder: Path) -> list[str]:
    names = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return sorted(map(str, names))
