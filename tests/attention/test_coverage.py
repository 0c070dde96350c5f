# SPDX-License-Identifier: Apache-2.0
"""Linguistic coverage is an account of what was read."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvnmt.attention import Attended, Moment, linguistic_coverage
from kvnmt.attention.linguistic_coverage import Options
from kvnmt.initializers import gaussian
from kvnmt.typing import Sizes

SIZES = Sizes(embedding=3, encoder=4, annotation=8, state=5, alignment=6)
READ = np.array([[0.5, 0.5, 0.0], [0.25, 0.0, 0.75]], np.float32)


@pytest.mark.parametrize(
    "options, start, sign",
    [
        (Options(), 0, 1),
        (Options(subtractive=True), 1, -1),
        (Options(max_fertility=3.0), 0, 1),
    ],
    ids=["plain", "subtractive", "fertility"],
)
def test_what_is_read_is_booked(options, start, sign, key):
    attention = linguistic_coverage.build(options)
    params = attention.init(key, SIZES, gaussian(1.0))
    annotations = jax.random.normal(key, (2, 3, 8))
    source = attention.prepare(params, annotations, jnp.ones((2, 3), bool))
    state = first = attention.initial_state(params, source)
    np.testing.assert_array_equal(first.coverage, np.full((2, 3, 1), start))
    share = np.ones((2, 3))
    if options.max_fertility is not None:
        assert params.fertility is not None
        bias = params.fertility.replace(b=jnp.asarray([0.5]))
        source = attention.prepare(
            params.replace(fertility=bias), annotations, READ < 2
        )
        hidden = annotations @ bias.W[0] + 0.5
        share = 3 / (1 + np.exp(-np.asarray(hidden)[..., 0]))  # N sig(U_f h + b_f)
    zero = jnp.zeros((2, 5))
    looked = Attended(jnp.zeros((2, 8)), jnp.asarray(READ))
    moment = Moment(zero, jnp.zeros((2, 3)), zero, attended=looked)
    for n in (1, 2):
        state = attention.write(params, source, state, moment)
        want = start + sign * n * READ / share
        np.testing.assert_allclose(state.coverage[..., 0], want, rtol=1e-5)
