# SPDX-License-Identifier: Apache-2.0
"""Checkpoints come back as they were saved, bit for bit, on any devices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvnmt import devices, models
from kvnmt.errors import UserError
from kvnmt.systems import system
from kvnmt.training import step as steps
from kvnmt.training.checkpoint import Checkpoints
from kvnmt.training.optimizer import OptimizerConfig, build
from tests.helpers import SIZES

# The optimisers and a parameter tree with members that may be missing.
CASES = [
    ("rnnsearch-star", OptimizerConfig(), 8),
    ("kvmematt-r2", OptimizerConfig(name="adadelta", clip=0.0), 1),
]


def make_state(name: str, optimizer: OptimizerConfig, seed: int) -> steps.TrainState:
    """Random in every float, at step 7."""
    model = models.build(system(name).model(SIZES), 10, 10)
    update = build(optimizer, 4)
    shapes = jax.eval_shape(
        lambda key: steps.init_state(model.init(key), update), jax.random.key(0)
    )
    normal = np.random.default_rng(seed).normal

    def fill(leaf: jax.ShapeDtypeStruct) -> jax.Array:
        if jnp.issubdtype(leaf.dtype, jnp.integer):
            return jnp.full(leaf.shape, seed, leaf.dtype)
        return jnp.asarray(normal(size=leaf.shape), leaf.dtype)

    return jax.tree.map(fill, shapes).replace(step=jnp.int32(7))


def check_same(ours, theirs) -> None:
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    jax.tree.map(np.testing.assert_array_equal, *map(jax.device_get, (ours, theirs)))


@pytest.mark.parametrize(("name", "optimizer", "count"), CASES)
def test_a_state_comes_back_bit_for_bit(tmp_path, name, optimizer, count):
    state = make_state(name, optimizer, 1)
    placed = devices.replicate(state, devices.data_mesh()) if count == 8 else state
    record = {"best": -np.inf, "figures": {"valid_bleu": 0.1}, "steps": 3}
    with Checkpoints(tmp_path / "checkpoints") as checkpoints:
        checkpoints.save(placed, 0.5, record)
    like = make_state(name, optimizer, 2)
    with Checkpoints(tmp_path / "checkpoints") as checkpoints:
        assert checkpoints.last_step() == checkpoints.best_step() == 7
        found, progress = checkpoints.restore(like)
        check_same(found, state)
        assert progress == record
        check_same(checkpoints.restore_params(like.params), state.params)


def test_parameters_are_read_without_arrays_to_compare(tmp_path):
    """Shapes suffice, and the result lies on one device."""
    state = make_state(*CASES[0][:2], 1)
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(devices.replicate(state, devices.data_mesh()), 0.5, {})
    like = jax.eval_shape(lambda: state.params)
    with Checkpoints(tmp_path, read_only=True) as checkpoints:
        found = checkpoints.restore_params(like)
    check_same(found, state.params)
    assert all(leaf.devices() == {jax.devices()[0]} for leaf in jax.tree.leaves(found))


def test_what_is_restored_lies_where_it_is_wanted(tmp_path):
    state = make_state(*CASES[0][:2], 1)
    mesh = devices.data_mesh()
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(state, 0.5, {})
    with Checkpoints(tmp_path) as checkpoints:
        found, _ = checkpoints.restore(devices.replicate(state, mesh))
    assert all(len(leaf.devices()) == 8 for leaf in jax.tree.leaves(found))


def test_nothing_saved_is_told(tmp_path):
    state = make_state(*CASES[0][:2], 1)
    with Checkpoints(tmp_path) as checkpoints:
        assert checkpoints.last_step() is None
        assert checkpoints.best_step() is None
        with pytest.raises(UserError, match=f"'{tmp_path}' holds no finished"):
            checkpoints.restore(state)
        with pytest.raises(UserError, match="no finished checkpoint"):
            checkpoints.restore_params(state.params)


def test_reading_changes_nothing(tmp_path):
    state = make_state(*CASES[0][:2], 1)
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(state, 0.5, {})
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    with Checkpoints(tmp_path, read_only=True) as checkpoints:
        checkpoints.restore_params(state.params)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
