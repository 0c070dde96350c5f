# SPDX-License-Identifier: Apache-2.0
"""Laws of every target context: over time = step by step, and nothing from later."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvnmt.layers import gaussian
from kvnmt.target_context import CATALOGUE
from kvnmt.typing import Sizes

SIZES = Sizes(embedding=3, encoder=4, annotation=8, state=5, alignment=6)
B, T = 2, 4


@pytest.fixture(params=CATALOGUE, name="context")
def _context(request):
    return CATALOGUE.build(CATALOGUE[request.param].Options())


def inputs(key: jax.Array) -> tuple[jax.Array, jax.Array]:
    states = jax.random.normal(key, (B, T, SIZES.state))
    return states, jax.random.normal(key, (B, T, SIZES.embedding))


def test_over_time_equals_steps(context, key):
    params = context.init(key, SIZES, gaussian(1.0))
    states, embedded = inputs(key)
    want = context.over_time(params, states, embedded)
    assert tuple(x.shape for x in want) == tuple(
        (B, T, w) for w in context.widths(SIZES)
    )
    memory = context.initial_state(params, states[:, 0], T)
    for t in range(T):
        memory, got = context.step(params, memory, states[:, t], embedded[:, t])
        for one, all_steps in zip(got, want, strict=True):
            np.testing.assert_allclose(one, all_steps[:, t], rtol=1e-5)


def test_nothing_from_later_steps(context, key):
    params = context.init(key, SIZES, gaussian(1.0))
    states, embedded = inputs(key)

    def first_two(states: jax.Array, embedded: jax.Array) -> jax.Array:
        seen = context.over_time(params, states, embedded)
        return jnp.asarray(sum(jnp.sum(x[:, :2]) for x in seen))

    for slope in jax.grad(first_two, argnums=(0, 1))(states, embedded):
        assert np.any(np.asarray(slope[:, :2]) != 0)
        assert not np.any(np.asarray(slope[:, 2:]))
