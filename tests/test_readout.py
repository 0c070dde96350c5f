# SPDX-License-Identifier: Apache-2.0
from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvnmt import readout
from kvnmt.initializers import gaussian
from kvnmt.readout import Readout

INPUTS = {"state": 3, "word": 2, "context": 4}
SIZE = 5


def made(kind: Readout, low_rank: int | None = None, unread: int = 0) -> readout.Params:
    key = jax.random.key(0)
    given = (kind, INPUTS, SIZE, low_rank, unread, gaussian(1.0))
    params = readout.init(key, *given)
    if params.b is None:
        return params
    return params.replace(b=jnp.linspace(-1.0, 1.0, params.b.size))


def inputs() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(3).normal
    return {
        name: draw(0, 1, (2, 6, n)).astype(np.float32) for name, n in INPUTS.items()
    }


def total(params: readout.Params) -> np.ndarray:
    """``sum_i W_i z_i + b``, from inputs in another order."""
    assert params.b is not None
    given = reversed(inputs().items())
    return np.asarray(params.b) + sum(z @ np.asarray(params.W[n]) for n, z in given)


@pytest.mark.parametrize("low_rank", [None, 2])
@pytest.mark.parametrize("kind", get_args(Readout))
def test_readout(kind, low_rank):
    params = made(kind, low_rank)
    if kind == "none":
        want = inputs()["state"]
        assert params.W == {} and params.b is None
    elif kind == "tanh":
        want = np.tanh(total(params))
    else:
        tt = total(params)  # o_i = max(tt_{2i-1}, tt_{2i})
        want = np.maximum(tt[..., 0::2], tt[..., 1::2])
    if low_rank is not None:
        want = want @ np.asarray(params.low_rank)
    got = readout.apply(kind, params, inputs())
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    assert readout.output_size(kind, INPUTS, SIZE, low_rank) == want.shape[-1]
    assert want.shape[-1] == (low_rank or (3 if kind == "none" else SIZE))


@pytest.mark.parametrize("kind", ["tanh", "maxout"])
def test_columns_of_the_context_may_start_unread(kind):
    params, plain = made(kind, unread=3), made(kind)
    assert not np.any(np.asarray(params.W["context"][:3]))
    np.testing.assert_array_equal(params.W["context"][3:], plain.W["context"][3:])
    assert np.all(np.asarray(plain.W["context"]) != 0)
    for name in ("state", "word"):
        np.testing.assert_array_equal(params.W[name], plain.W[name])
