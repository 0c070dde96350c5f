# SPDX-License-Identifier: Apache-2.0
"""One step: what it minimises, what it consumes, and who shares the work."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AxisType, Mesh

from kvnmt import devices, models
from kvnmt.config import Dropout
from kvnmt.data.batches import Batch, pad, with_end
from kvnmt.errors import UserError
from kvnmt.losses import Objective
from kvnmt.models import Model
from kvnmt.systems import system
from kvnmt.training import step as steps
from kvnmt.training.optimizer import OptimizerConfig, build
from tests.helpers import SIZES

WORDS, ROWS, LENGTH = 9, 8, 6
KEY = jax.random.key(3)
OBJECTIVE = Objective(atteos=1.0)


def make_model(name: str = "rnnsearch-star-atteos", dropout: float = 0.3) -> Model:
    config = dataclasses.replace(SIZES, dropout=Dropout(output=dropout))
    return models.build(system(name).model(config), WORDS, WORDS)


def make_batch(seed: int) -> Batch:
    """Pairs of all lengths; the last row holds nothing."""
    random = np.random.default_rng(seed)

    def side() -> np.ndarray:
        sizes = random.integers(0, LENGTH, ROWS - 1)
        words = (random.integers(1, WORDS, size).tolist() for size in sizes)
        return pad([with_end(ids) for ids in words], ROWS, LENGTH)

    return Batch(side(), side())


def mesh_of(devices: int) -> Mesh:
    return jax.make_mesh(
        (devices,), ("data",), (AxisType.Auto,), devices=jax.devices()[:devices]
    )


class Trace(NamedTuple):
    """What some steps gave."""

    losses: list[float]
    norms: list[float]
    params: Any


def train(
    run: Callable[..., Any], state: steps.TrainState, mesh: Mesh, count: int
) -> Trace:
    state = devices.replicate(state, mesh)
    losses, norms = [], []
    for seed in range(count):
        state, metrics = run(state, *devices.split_rows(make_batch(seed), mesh))
        losses.append(float(metrics.loss.total))
        norms.append(float(metrics.gradient_norm))
    return Trace(losses, norms, jax.device_get(state.params))


@pytest.fixture(scope="module")
def start() -> Callable[[], steps.TrainState]:
    """Makes the same state again and again, since a step consumes it."""
    update = build(OptimizerConfig(learning_rate=0.01), 4)
    params = jax.device_get(make_model().init(jax.random.key(1)))
    return lambda: steps.init_state(jax.tree.map(jnp.array, params), update)


@pytest.fixture(scope="module")
def run() -> Callable[..., Any]:
    update = build(OptimizerConfig(learning_rate=0.01), 4)
    return steps.make_train_step(make_model(), OBJECTIVE, update, KEY)


def test_the_mesh_has_every_device():
    assert devices.data_mesh().size == jax.device_count() == 8


@pytest.mark.parametrize("rows", [1, 7, 12])
def test_rows_that_the_devices_cannot_share_are_refused(rows):
    with pytest.raises(UserError, match=f"{rows} sentences .* 8 devices"):
        devices.check_rows(devices.data_mesh(), rows)


def test_rows_that_they_can_share_are_not():
    devices.check_rows(devices.data_mesh(), 16)
    devices.check_rows(mesh_of(1), 7)


def test_eight_devices_do_what_one_does(start, run):
    """Dropout and the objective of the paper included, over five steps."""
    many, one = (train(run, start(), mesh_of(n), 5) for n in (8, 1))
    np.testing.assert_allclose(many.losses, one.losses, rtol=1e-5)
    np.testing.assert_allclose(many.norms, one.norms, rtol=1e-4)
    for ours, theirs in zip(jax.tree.leaves(many.params), jax.tree.leaves(one.params)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_a_batch_is_split_by_rows():
    source, _ = devices.split_rows(make_batch(1), devices.data_mesh())
    assert {shard.data.shape for shard in source.addressable_shards} == {(1, LENGTH)}
    assert len({shard.device for shard in source.addressable_shards}) == 8


def test_the_same_steps_give_the_same_bits(start, run):
    some, others = (train(run, start(), devices.data_mesh(), 3) for _ in range(2))
    assert some.losses == others.losses
    jax.tree.map(np.testing.assert_array_equal, some.params, others.params)


def test_masks_change_with_the_step(start, run):
    mesh, batch = mesh_of(1), make_batch(1)

    def loss(step: int) -> float:
        state = devices.replicate(start().replace(step=jnp.int32(step)), mesh)
        return float(run(state, *devices.split_rows(batch, mesh))[1].loss.nats)

    losses = [loss(step) for step in range(3)]
    assert len(set(losses)) == len(losses)
    assert loss(1) == losses[1]


def test_a_step_goes_down_the_gradient_per_real_token():
    model, batch = make_model(dropout=0.0), make_batch(5)
    params = jax.device_get(model.init(jax.random.key(1)))
    source, target = jnp.asarray(batch.source), jnp.asarray(batch.target)

    def mean(params) -> jax.Array:
        logits = model.forward(params, source, target).logits
        words = jax.nn.one_hot(target, WORDS)  # of padding: all zero
        return -jnp.sum(jax.nn.log_softmax(logits) * words) / jnp.sum(words)

    value, gradient = jax.jit(jax.value_and_grad(mean))(params)
    update = optax.sgd(1.0)
    state = steps.init_state(jax.tree.map(jnp.array, params), update)
    step = steps.make_train_step(model, Objective(), update, KEY)
    mesh = devices.data_mesh()
    new, metrics = step(
        devices.replicate(state, mesh), *devices.split_rows(batch, mesh)
    )
    sums = metrics.loss
    assert int(sums.tokens) == np.sum(batch.target >= 0)
    np.testing.assert_allclose(sums.total / sums.tokens, value, rtol=1e-5)
    np.testing.assert_allclose(
        metrics.gradient_norm, optax.tree.norm(gradient), rtol=1e-4
    )
    for before, after, slope in zip(
        *map(jax.tree.leaves, (params, new.params, gradient))
    ):
        np.testing.assert_allclose(before - after, slope, rtol=1e-3, atol=1e-6)
    assert int(new.step) == 1


def test_a_batch_without_words_changes_nothing():
    model, update = make_model(dropout=0.0), optax.sgd(1.0)
    params = jax.device_get(model.init(jax.random.key(1)))
    state = steps.init_state(jax.tree.map(jnp.array, params), update)
    nothing = Batch(*(np.full((ROWS, LENGTH), -1, np.int32),) * 2)
    mesh = devices.data_mesh()
    step = steps.make_train_step(model, Objective(), update, KEY)
    new, metrics = step(
        devices.replicate(state, mesh), *devices.split_rows(nothing, mesh)
    )
    assert float(metrics.loss.total) == 0
    for before, after in zip(*map(jax.tree.leaves, (params, new.params))):
        np.testing.assert_array_equal(before, after)


def test_a_step_consumes_its_state(start, run):
    mesh = mesh_of(1)
    state = devices.replicate(start(), mesh)
    run(state, *devices.split_rows(make_batch(1), mesh))
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(state.params))


def test_validation_is_plain_likelihood(start):
    """No dropout, no smoothing, no further objective."""
    model, batch = make_model(), make_batch(2)
    params = start().params
    sums = steps.make_eval_step(model)(params, *batch)
    logits = jax.jit(model.forward)(params, *batch).logits
    gains = jnp.take_along_axis(
        jax.nn.log_softmax(logits), jnp.maximum(batch.target, 0)[..., None], axis=-1
    )
    nats = -np.sum(np.where(batch.target >= 0, gains[..., 0], 0))
    np.testing.assert_allclose(sums.nats, nats, rtol=1e-5)
    np.testing.assert_allclose(sums.total, nats, rtol=1e-5)
    assert int(sums.tokens) == np.sum(batch.target >= 0)
