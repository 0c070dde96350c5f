# SPDX-License-Identifier: Apache-2.0
"""Runs that tests of training share; their text is short.

No epoch of it pays for the program of a shape.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from kvnmt.data import shapes
from kvnmt.data.config import DataConfig
from kvnmt.training import step as steps
from kvnmt.training.optimizer import OptimizerConfig, build
from tests.helpers import tiny, toy_data
from tests.training.runs import kept
from tests.training.stepping import make_model


@pytest.fixture(scope="module", autouse=True)
def every_shape_from_the_start() -> Iterator[None]:
    """As with long text."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shapes, "COMPILE_COST", 0)
        yield


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    return tmp_path_factory.getbasetemp()


@pytest.fixture(scope="module")
def data(base) -> DataConfig:
    """Four batches an epoch, the last of which is not full."""
    return toy_data(base / "loop-text")


@pytest.fixture(scope="module")
def whole(base, data) -> Path:
    """A run of three epochs that never stopped."""
    return kept(tiny(data, epochs=3), base / "whole")


@pytest.fixture(scope="module", name="once")
def _once(base, data) -> Path:
    """A run of one epoch; nobody writes in it."""
    return kept(tiny(data, epochs=1), base / "once")


@pytest.fixture(name="one")
def _one(once, tmp_path) -> Path:
    """A copy of it."""
    return shutil.copytree(once, tmp_path / "run")


@pytest.fixture(scope="module")
def start() -> Callable[[], steps.TrainState]:
    """Makes the same state again and again, since a step consumes it."""
    update = build(OptimizerConfig(learning_rate=0.01), 4)
    params = jax.device_get(make_model().init(jax.random.key(1)))
    return lambda: steps.init_state(jax.tree.map(jnp.array, params), update)
