# SPDX-License-Identifier: Apache-2.0
"""Products of one array are one product, and nothing else changes."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

from kvnmt.layers import Scanning, merged, scan
from kvnmt.typing import Array
from tests.laws import cases
from tests.laws.cases import SOURCE, TARGET

B, T, D = 3, 4, 5
RNG = np.random.default_rng(3)


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(0, 0.3, shape)


PARAMS = {
    "some": normal(D, D),
    "others": normal(D, 2 * D),
    "bias": normal(D),
    "row": normal(1, D),
    "whole": normal(D, 3 * D),
}
STATE, INPUTS = normal(B, D), normal(T, B, D)
Step = Callable[[dict[str, Array], Array, Array], tuple[Array, Any]]


def with_biases(p: dict[str, Array], h: Array, x: Array) -> tuple[Array, Any]:
    """Two matrices and their biases, of which one comes first, one has no bias."""
    left = p["bias"] + h @ p["some"]
    wide = h @ p["others"]
    new = jnp.tanh(left + wide[:, :D] * wide[:, D:] + x @ p["some"])
    return new, left


def used_twice(p: dict[str, Array], h: Array, x: Array) -> tuple[Array, Any]:
    """A product that is used beside its sum, and one that is a result."""
    one, other = h @ p["some"], h @ p["whole"][:, D : 2 * D]
    return jnp.tanh(one + p["row"]) - one + x, (other, other + p["bias"])


def one_matrix_twice(p: dict[str, Array], h: Array, x: Array) -> tuple[Array, Any]:
    """As shared rounds: the same product with two biases."""
    one, other = h @ p["some"] + p["bias"], h @ p["some"] + p["row"]
    return jnp.tanh(one * other) + x, h @ p["others"]


def of_memories(p: dict[str, Array], h: Array, x: Array) -> tuple[Array, Any]:
    """Arrays with an axis more; a matrix that is computed; a bias that is not."""
    memory = jnp.sin(h)[:, None] * x[:, :, None]
    keys, more = memory @ p["some"], memory @ (2 * p["others"])
    moved = h @ p["some"] + x, h @ p["some"].T + 1.0
    return jnp.tanh(jnp.sum(keys, 1) + moved[0] * moved[1]), more + jnp.sum(keys)


def a_single_one(p: dict[str, Array], h: Array, x: Array) -> tuple[Array, Any]:
    """One matrix with a bias: its rows are what is gained."""
    return jnp.tanh(h @ p["some"] + p["bias"] + x), None


STEPS = {
    with_biases: 2,  # products that are left
    used_twice: 1,
    one_matrix_twice: 1,
    of_memories: 2,
    a_single_one: 1,
}


def results(step: Step, scanning: Scanning, params: dict[str, Array]) -> Any:
    def both(h: Array, x: Array) -> tuple[Array, Any]:
        new, more = step(params, h, x)
        return new, (new, more)

    return scan(both, STATE, INPUTS, scanning)


def products(jaxpr: Any) -> int:
    """Of a traced program, those of its loops among them; of branches none."""
    count = 0
    for equation in jaxpr.eqns:
        count += equation.primitive.name == "dot_general"
        if equation.primitive.name != "cond":
            count += sum(map(products, jaxprs_in_params(equation.params)))
    return count


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_results_and_gradients_are_the_same(step, x64):
    def total(scanning: Scanning, params: dict[str, Array]) -> Array:
        leaves = jax.tree.leaves(results(step, scanning, params))
        return sum(jnp.sum(jnp.sin(leaf + i)) for i, leaf in enumerate(leaves))

    ways = (
        Scanning(),
        Scanning(merged=True),
        Scanning("vectors", chunk=3, merged=True),
        Scanning("vectors", chunk=2, merged=True),  # of all steps: none is left
    )
    values = [jax.jit(jax.value_and_grad(total, 1), static_argnums=0) for _ in ways]
    plain, *others = (f(kept, PARAMS) for f, kept in zip(values, ways))
    for other in others:
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12),
            plain,
            other,
        )


@pytest.mark.parametrize(("step", "left"), STEPS.items(), ids=lambda x: str(x)[:20])
def test_products_are_one(step, left):
    def run(params: dict[str, Array]) -> Any:
        return results(step, Scanning(merged=True), params)

    assert products(jax.make_jaxpr(run)(PARAMS).jaxpr) == left


def test_a_state_that_is_a_result_is_written_once():
    """Of a step both are the same array, which another step has as the one before."""

    def step(state: dict[str, Array], x: Array) -> tuple[dict[str, Array], Any]:
        h = jnp.tanh(state["h"] @ PARAMS["some"] + x @ PARAMS["others"][:, :D])
        return {"h": h, "sum": state["sum"] + h}, {"new": h, "next": h + 1, "old": x}

    def run(state: dict[str, Array], reverse: bool, merged: bool) -> Any:
        return scan(step, state, INPUTS, Scanning(merged=merged), reverse)

    def handed_on(merged: bool) -> int:
        traced = jax.make_jaxpr(lambda state: run(state, False, merged))(state)
        (loop,) = (e for e in traced.jaxpr.eqns if e.primitive.name == "scan")
        (kept,) = loop.params["jaxpr"].jaxpr.eqns
        inside = kept.params["jaxpr"]
        return sum(result in inside.invars for result in inside.outvars)

    state = {"h": jnp.asarray(STATE), "sum": jnp.zeros((B, D))}
    assert handed_on(True) == handed_on(False) + 1
    for reverse in (False, True):
        plain, lean = (run(state, reverse, way) for way in (False, True))
        for name, result in plain.items():
            np.testing.assert_allclose(lean[name], result, rtol=1e-5, atol=1e-6)


def test_a_chunk_goes_forward():
    with pytest.raises(AssertionError):
        scan(lambda h, x: (h + x, h), STATE, INPUTS, Scanning(chunk=2), reverse=True)


def test_a_step_without_any_stays_what_it_is():
    def step(h: Array, x: Array) -> tuple[Array, Array]:
        return h + x @ PARAMS["some"], h

    assert merged(step, STATE, INPUTS[0]) is step


def test_what_a_step_prints_is_printed(capfd):
    def step(h: Array, x: Array) -> Array:
        jax.debug.print("h {}", jnp.sum(h))
        return h @ PARAMS["some"] + x @ PARAMS["some"] + h @ PARAMS["others"][:, :D]

    jax.block_until_ready(jax.jit(merged(step, STATE, INPUTS[0]))(STATE, INPUTS[0]))
    jax.effects_barrier()
    assert capfd.readouterr().out.startswith("h ")


def test_a_key_memory_has_eight_products_in_the_place_of_seventeen():
    """GRU1; the query's of both rounds; of each: keys, context, new state.

    What is read of the values is a branch for each kind of device, and not counted.
    """
    config = cases.CONFIGS["kvmematt-r2"]
    model, params = cases.build(config), cases.params(config, "float32")

    def count(scanning: Scanning) -> int:
        forward = jax.make_jaxpr(
            lambda p: model.forward(p, SOURCE, TARGET, None, scanning).features.context
        )(params)
        return max(
            products(equation.params["jaxpr"].jaxpr)
            for equation in forward.jaxpr.eqns
            if equation.primitive.name == "scan"
        )

    assert count(Scanning()) == 17
    assert count(Scanning(merged=True)) == 8
