# SPDX-License-Identifier: Apache-2.0
"""Laws of assembled systems: of `MEMBERS`, where every file of a catalogue is met once.

Those that need nothing but the compiled forward pass stand in `test_agreement.py`.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvnmt.model.assembly import Params
from kvnmt.training.losses import Objective, loss
from kvnmt.training.step_options import StepOptions
from tests.laws import cases
from tests.laws.cases import SOURCE, TARGET

close = {"rtol": 1e-10, "atol": 1e-10}
T = TARGET.shape[1]


MEMBERS = cases.cover(
    {name: cases.parts(config) for name, config in cases.CONFIGS.items()},
    "kvmematt-r2",  # rounds that write
    "attn",  # attention after the scan
    "past-future-losses",  # predictors after the scan
    "transformer-tied",  # no scan
    "transformer-each-r2",  # a scan in every layer
)

# Parameters that a loss cannot reach, with the reason.
UNREACHED = {
    # A score without tanh adds the same to every cell, and the softmax drops it.
    "memdec-linear": [".decoder.memory.U_state"],
}


def test_members_have_every_part():
    for field, catalogue in cases.CATALOGUES.items():
        met = {cases.chosen(cases.CONFIGS[name])[field][0] for name in MEMBERS}
        assert met == set(catalogue)
    assert UNREACHED.keys() <= set(MEMBERS)


@pytest.mark.parametrize("name", MEMBERS[:2])
def test_jit_equals_eager(name, x64):
    """All others are compared with NumPy, compiled."""
    config = cases.CONFIGS[name]
    params = cases.params(config, "float64")
    source, target = jnp.asarray(SOURCE), jnp.asarray(TARGET)
    want = cases.build(config).forward(params, source, target)
    got = cases.forward(config)(params, SOURCE, TARGET)
    np.testing.assert_allclose(got.logits, want.logits, **close)
    got = got.replace(mean=None)
    for eager, jitted in zip(jax.tree.leaves(want), jax.tree.leaves(got), strict=True):
        np.testing.assert_allclose(jitted, eager, **close)


@pytest.mark.parametrize("name", MEMBERS)
def test_scan_equals_steps_over_a_beam(name, x64):
    """Search and training see one function, and hypotheses share one source."""
    config = cases.CONFIGS[name]
    model, params = cases.build(config), cases.params(config, "float64")
    beams = np.stack([TARGET, TARGET[[1, 0, 3, 2]], (TARGET + 2) % 9], axis=1)

    @jax.jit
    def start(params: Params):
        source = model.encode(params, SOURCE)
        return source, model.initial_state(params, source, T)

    source, state = start(params)
    state = jax.device_get(state)  # to be repeated there
    state = jax.tree.map(lambda x: np.repeat(x[:, None], beams.shape[1], axis=1), state)
    traces = []

    def step(state, tokens):
        state, prediction = model.step(params, source, state, tokens)
        read = [head.x for head in prediction.heads]
        return state, (prediction.logits, prediction.features, read)

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
        want = (want.logits, want.features, [head.x for head in want.heads])
        each = jax.tree.map(lambda x, k=k: x[:, k], got)
        for left, right in zip(
            jax.tree.leaves(each), jax.tree.leaves(want), strict=True
        ):
            np.testing.assert_allclose(left, right, **close)


@pytest.mark.parametrize("name", MEMBERS)
def test_gradient(name, x64):
    """Finite with empty rows, reaches every parameter, is the slope of the loss.

    It is computed as on an accelerator, which predicts what a CPU does; all else here
    is tested as on a CPU.
    """
    config = cases.CONFIGS[name]
    model, params = cases.build(config), cases.params(config, "float64")
    scanning = StepOptions().scanning("gpu")
    source, target = jnp.asarray(SOURCE), jnp.asarray(TARGET)

    @jax.jit
    def value_and_gradient(params: Params):
        def total(params: Params) -> tuple[jax.Array, jax.Array]:
            prediction = model.forward(params, source, target, None, scanning)
            objective = Objective(
                label_smoothing=0.1,
                atteos=0.5 if prediction.features.alignments else 0.0,
                subtractive=0.3 if len(prediction.heads) > 1 else 0.0,
                guided=0.4 if prediction.features.alignments else 0.0,
            )
            links = (target >= 0)[:, :, None] & (source >= 0)[:, None, :]
            sums = loss(objective, prediction, source, target, links)
            return sums.total, prediction.logits

        return jax.value_and_grad(total, has_aux=True)(params)

    (_, logits), gradient = value_and_gradient(params)
    want = cases.forward(config)(params, SOURCE, TARGET).logits
    np.testing.assert_allclose(logits, want, **close)
    gradient = jax.tree.map(np.asarray, gradient)
    unreached = []
    for path, leaf in jax.tree.leaves_with_path(gradient):
        assert np.isfinite(leaf).all(), jax.tree_util.keystr(path)
        if leaf.size and np.abs(leaf).max() < 1e-12:
            unreached.append(jax.tree_util.keystr(path))
    assert unreached == UNREACHED.get(name, [])
    rng, h = np.random.default_rng(0), 1e-6
    direction = jax.tree.map(lambda x: rng.normal(0, 1, x.shape), params)

    def moved(h: float) -> Params:
        return jax.tree.map(lambda x, d: np.asarray(x) + h * d, params, direction)

    (after, _), (before, _) = (value_and_gradient(moved(x))[0] for x in (h, -h))
    products = jax.tree.map(lambda g, d: float(np.sum(g * d)), gradient, direction)
    slope = sum(jax.tree.leaves(products))
    np.testing.assert_allclose((after - before) / (2 * h), slope, rtol=1e-6)


@pytest.mark.parametrize("name", MEMBERS)
def test_no_silent_change_of_type(name):
    """Tracing under the strict rules raises where two types are mixed."""
    model = cases.build(cases.CONFIGS[name])
    source, target = jnp.asarray(SOURCE), jnp.asarray(TARGET)

    def everything(key: jax.Array):
        params = model.init(key)
        constants = model.encode(params, source, key)
        state = model.initial_state(params, constants, T)
        prediction = model.forward(params, source, target, key)
        atteos = 1.0 if prediction.features.alignments else 0.0
        subtractive = 1.0 if len(prediction.heads) > 1 else 0.0
        objective = Objective(0.1, atteos, "mean", subtractive, guided=atteos)
        links = jnp.ones((*target.shape, source.shape[1]), bool)
        return (
            loss(objective, prediction, source, target, links),
            model.step(params, constants, state, target[:, 0]),
        )

    with jax.numpy_dtype_promotion("strict"):
        jax.eval_shape(everything, jax.random.key(0))
