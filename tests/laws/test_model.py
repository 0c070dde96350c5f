# SPDX-License-Identifier: Apache-2.0
"""Laws of every assembled system."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvnmt.losses import Objective, loss
from kvnmt.models import Params
from tests.laws import cases
from tests.laws.cases import SOURCE, TARGET

close = {"rtol": 1e-10, "atol": 1e-10}
NAMES = [name for name in cases.DISTINCT if name in cases.NAMED]
# Two rounds show what one and three do, where compiling takes long.
LIGHT = [name for name in NAMES if name not in ("kvmematt-r1", "kvmematt-r3")]
T = TARGET.shape[1]


@pytest.mark.parametrize("name", NAMES)
def test_jit_equals_eager(name, x64):
    config = cases.CONFIGS[name]
    params = cases.params(config, "float64")
    source, target = jnp.asarray(SOURCE), jnp.asarray(TARGET)
    want = cases.build(config).forward(params, source, target)
    got = cases.forward(config)(params, SOURCE, TARGET)
    for eager, jitted in zip(jax.tree.leaves(want), jax.tree.leaves(got), strict=True):
        np.testing.assert_allclose(jitted, eager, **close)


@pytest.mark.parametrize("name", NAMES)
def test_scan_equals_steps_over_a_beam(name, x64):
    """Search and training see one function, and hypotheses share one source."""
    config = cases.CONFIGS[name]
    model, params = cases.build(config), cases.params(config, "float64")
    beams = np.stack([TARGET, TARGET[[1, 0, 3, 2]], (TARGET + 2) % 9], axis=1)
    source = jax.jit(model.encode)(params, SOURCE)
    state = jax.tree.map(
        lambda x: jnp.repeat(x[:, None], beams.shape[1], axis=1),
        model.initial_state(params, source, T),
    )
    step = partial(model.step, params, source)
    traces = []

    @jax.jit
    def advance(state, tokens):
        traces.append(None)
        return jax.vmap(step, in_axes=1, out_axes=1)(state, tokens)

    predictions, tokens = [], np.full(beams.shape[:2], -1, np.int32)
    for t in range(T):
        state, prediction = advance(state, tokens)
        predictions.append(prediction)
        tokens = beams[:, :, t]
    assert len(traces) == 1  # a State of the same types goes in and comes out
    got = jax.tree.map(lambda *steps: np.stack(steps, axis=2), *predictions)
    for k in range(beams.shape[1]):
        want = cases.forward(config)(params, SOURCE, beams[:, k])
        each = jax.tree.map(lambda x, k=k: x[:, k], got)
        for left, right in zip(
            jax.tree.leaves(each), jax.tree.leaves(want), strict=True
        ):
            np.testing.assert_allclose(left, right, **close)


@pytest.mark.parametrize("name", NAMES)
def test_scan_equals_steps_of_one_word(name, x64):
    config = cases.CONFIGS[name]
    model, params = cases.build(config), cases.params(config, "float64")
    step = jax.jit(model.step)
    source = jax.jit(model.encode)(params, SOURCE)
    state = model.initial_state(params, source, T)
    want = cases.forward(config)(params, SOURCE, TARGET).logits
    previous = np.pad(TARGET, ((0, 0), (1, 0)), constant_values=-1)
    for t in range(T):
        state, prediction = step(params, source, state, previous[:, t])
        np.testing.assert_allclose(prediction.logits, want[:, t], **close)


@pytest.mark.parametrize("name", LIGHT)
def test_no_word_sees_itself_or_a_later_one(name):
    config = cases.CONFIGS[name]
    params = cases.params(config)
    words = [5, 2, 7, 3]  # all different: a row of the table is a place in time

    def sums(table: jax.Array) -> jax.Array:
        given = params.replace(target_embedding=table)
        target = jnp.asarray([words], jnp.int32)
        logits = cases.build(config).forward(given, jnp.asarray(SOURCE[:1]), target)
        return jnp.sum(jnp.sin(logits.logits[0]), axis=-1)  # [T]

    jacobian = jax.jit(jax.jacrev(sums))(params.target_embedding)  # [T, V, E]
    reach = np.any(np.asarray(jacobian) != 0, axis=-1)[:, words]
    np.testing.assert_array_equal(reach, np.tril(np.ones((4, 4), bool), k=-1))


@pytest.mark.parametrize("name", LIGHT)
def test_gradient(name, x64):
    """Finite with empty rows, reaches every parameter, is the slope of the loss."""
    config = cases.CONFIGS[name]
    model, params = cases.build(config), cases.params(config, "float64")
    source, target = jnp.asarray(SOURCE), jnp.asarray(TARGET)
    objective = Objective(label_smoothing=0.1, atteos=0.5)

    @jax.jit
    def value_and_gradient(params: Params):
        def total(params: Params) -> jax.Array:
            prediction = model.forward(params, source, target)
            return loss(objective, prediction, source, target).total

        return jax.value_and_grad(total)(params)

    _, gradient = value_and_gradient(params)
    gradient = jax.tree.map(np.asarray, gradient)
    for path, leaf in jax.tree.leaves_with_path(gradient):
        assert np.isfinite(leaf).all(), jax.tree_util.keystr(path)
        assert np.any(leaf != 0), jax.tree_util.keystr(path)
    rng, h = np.random.default_rng(0), 1e-6
    direction = jax.tree.map(lambda x: rng.normal(0, 1, x.shape), params)

    def moved(h: float) -> Params:
        return jax.tree.map(lambda x, d: np.asarray(x) + h * d, params, direction)

    rise = value_and_gradient(moved(h))[0] - value_and_gradient(moved(-h))[0]
    products = jax.tree.map(lambda g, d: float(np.sum(g * d)), gradient, direction)
    slope = sum(jax.tree.leaves(products))
    np.testing.assert_allclose(rise / (2 * h), slope, rtol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_second_call_compiles_nothing(name, x64, caplog):
    config = cases.CONFIGS[name]
    params = cases.params(config, "float64")
    cases.forward(config)(params, SOURCE, TARGET)
    with jax.log_compiles():
        again = jax.jit(cases.build(config).forward)
        again(params, (SOURCE + 1) % 7, (TARGET + 2) % 9)
        assert not caplog.records
        jax.jit(lambda x: x + 1)(SOURCE)
        assert caplog.records  # compiling does leave a record


@pytest.mark.parametrize("name", NAMES)
def test_no_silent_change_of_type(name):
    """Tracing under the strict rules raises where two types are mixed."""
    model = cases.build(cases.CONFIGS[name])
    source, target = jnp.asarray(SOURCE), jnp.asarray(TARGET)

    def everything(key: jax.Array):
        params = model.init(key)
        constants = model.encode(params, source, key)
        state = model.initial_state(params, constants, T)
        prediction = model.forward(params, source, target, key)
        return (
            loss(Objective(0.1, 1.0), prediction, source, target),
            model.step(params, constants, state, target[:, 0]),
        )

    with jax.numpy_dtype_promotion("strict"):
        jax.eval_shape(everything, jax.random.key(0))
