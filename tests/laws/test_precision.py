# SPDX-License-Identifier: Apache-2.0
"""With products in bfloat16, systems compute nearly what they do in float32."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvnmt.attention import Moment, kv_memory
from kvnmt.layers import init_lstm, lstm
from kvnmt.training.losses import Objective, loss
from tests.laws import cases
from tests.laws.cases import SOURCE, TARGET
from tests.laws.test_agreement import reference
from tests.laws.test_model import MEMBERS


def mean_loss(name: str):
    """The loss per token as a function of parameters, which stay float32."""
    model = cases.build(cases.CONFIGS[name])
    source, target = jnp.asarray(SOURCE), jnp.asarray(TARGET)

    def mean(params):
        low = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params)
        prediction = model.forward(low, source, target)
        assert prediction.features.state.dtype == jnp.bfloat16
        sums = loss(Objective(), prediction, source, target)
        assert prediction.logits.dtype == sums.total.dtype == jnp.float32
        return sums.total / sums.tokens

    return mean


@pytest.mark.parametrize("name", MEMBERS)
def test_bfloat16_is_near_float32(name):
    """And near the reference: float32 is, by the laws of agreement, nearer."""
    config = cases.CONFIGS[name]
    with jax.enable_x64(True):
        nats = sum(result.nll for result in reference(config))
    params = cases.params(config, "float32")
    plain = nats / np.sum(TARGET >= 0)
    np.testing.assert_allclose(jax.jit(mean_loss(name))(params), plain, rtol=0.02)


@pytest.mark.parametrize("name", ["rnnsearch-star", "kvmematt-r2"])
def test_so_is_its_gradient(name):
    config = cases.CONFIGS[name]
    params = cases.params(config, "float32")
    low = jax.device_get(jax.jit(jax.grad(mean_loss(name)))(params))
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(low))
    step = 1e-2  # along it the loss in float32 falls as it says
    norm = sum(float(np.sum(leaf**2)) for leaf in jax.tree.leaves(low)) ** 0.5
    params = jax.device_get(params)
    moved = jax.tree.map(lambda p, g: p - step * g / norm, params, low)
    model, words = cases.build(config), (jnp.asarray(SOURCE), jnp.asarray(TARGET))

    @jax.jit
    def exact(params):
        sums = loss(Objective(), model.forward(params, *words), *words)
        return sums.total / sums.tokens

    fall = float(exact(params) - exact(moved))
    np.testing.assert_allclose(fall, step * norm, rtol=0.05)


MEMORIES = [
    ("kvmematt-r2", "keys"),
    ("interactive", "keys"),
    ("memdec", "cells"),
    ("memdec", "reading"),
    ("gated-delta-memory", "own"),
    ("slot-residual", "values"),
    ("attn", "cells"),
    ("coverage-neural", "coverage"),
    ("coverage-linguistic", "coverage"),
    ("coverage-subtractive", "coverage"),
]


@pytest.mark.parametrize(("name", "memory"), MEMORIES)
def test_memories_are_written_in_float32(name, memory):
    config = cases.CONFIGS[name]
    model, params = cases.build(config), cases.params(config, "float32")

    def step(params):
        low = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params)
        source = model.encode(low, SOURCE)
        state = model.initial_state(low, source, 4)
        return model.step(low, source, state, jnp.asarray(TARGET[:, 0]))[0]

    written = {
        leaf.dtype
        for path, leaf in jax.tree_util.tree_flatten_with_path(
            jax.eval_shape(step, params)
        )[0]
        if f".{memory}" in jax.tree_util.keystr(path)
    }
    assert written == {jnp.dtype("float32")}


def test_a_little_may_be_forgotten():
    """Less than bfloat16 tells from nothing, beside 1."""
    attention = kv_memory.build(kv_memory.Options(add="tanh"))
    sizes, S = cases.BASE.sizes, 50
    params = attention.init(jax.random.key(0), sizes, cases.BASE.weights)
    params = jax.tree.map(lambda leaf: jnp.zeros_like(leaf, jnp.bfloat16), params)
    params = params.replace(forget=params.forget.replace(b=params.forget.b - 3))
    source = attention.prepare(
        params, jnp.ones((1, S, sizes.annotation), jnp.bfloat16), jnp.ones((1, S), bool)
    )
    state = jnp.zeros((1, sizes.state), jnp.bfloat16)
    moment = Moment(state, state, state, state)
    before = attention.initial_state(params, source)
    after = attention.write(params, source, before, moment)
    share = 1 / (1 + np.exp(3)) / S
    np.testing.assert_allclose(before.keys - after.keys, share, rtol=0.01)


def test_so_may_a_little_of_a_cell():
    unit = init_lstm(jax.random.key(0), [1], 2, cases.BASE.weights)
    unit = jax.tree.map(lambda leaf: jnp.zeros_like(leaf, jnp.bfloat16), unit)
    inputs = jnp.full((1, 8), 7.0, jnp.bfloat16).at[:, 6:].set(0)  # g is 0
    cell = jnp.ones((1, 2), jnp.float32)
    _, now = lstm(unit, jnp.zeros((1, 2), jnp.bfloat16), cell, inputs)
    np.testing.assert_allclose(now, 1 / (1 + np.exp(-7)), rtol=1e-6)


def test_so_is_the_cell_of_an_encoder():
    config = cases.CONFIGS["attn"]
    low = jax.tree.map(
        lambda leaf: leaf.astype(jnp.bfloat16), cases.params(config, "float32")
    )
    traced = jax.make_jaxpr(cases.build(config).encode)(low, SOURCE)
    scans = [e for e in traced.jaxpr.eqns if e.primitive.name == "scan"]
    for each in scans:
        state, cell = each.outvars[: each.params["num_carry"]]
        assert (state.aval.dtype, cell.aval.dtype) == (jnp.bfloat16, jnp.float32)
    assert scans
