# SPDX-License-Identifier: Apache-2.0
"""The three cells of the FUTURE layer: Zheng et al. (2018), section 3.

What was just translated, c, is taken out of what is still to be translated, F::

    gru      F' = GRU(F, c)
    outside  F' = GRU(F, tanh(W (W_a F - W_b c) + b))
    inside   r, u as in a GRU on (F, c);
             n = tanh(W (W_h F - r * (W_c c)) + b);   F' = u F + (1 - u) n
"""

from typing import Literal, TypeAlias

import jax
import jax.numpy as jnp
from flax import struct

from kvnmt.initializers import Weights
from kvnmt.layers import (
    GRU,
    gru,
    init_gru,
    input_product,
    recurrent_inputs,
    recurrent_product,
)
from kvnmt.typing import Array, Float, Key

Cell: TypeAlias = Literal["inside", "outside", "gru"]


@struct.dataclass
class Future:
    """The FUTURE layer; what its cell does not use is None."""

    gates: GRU  # inside: its candidate's W and U are W_c and W_h
    subtract: tuple[Float[Array, "_ D"], ...]  # W_a, W_b of the outside form
    W: Float[Array, "D D"] | None
    b: Float[Array, " D"] | None  # of the outside form


def init_future(
    key: Key[Array, ""], cell: Cell, context: int, size: int, weights: Weights
) -> Future:
    """Makes the layer for a context and a state of these widths."""
    key_gates, key_squash, key_a, key_b = jax.random.split(key, 4)
    read = size if cell == "outside" else context
    gates = init_gru(key_gates, [read], size, weights)
    if cell == "gru":
        return Future(gates, (), None, None)
    W = weights.matrix(key_squash, (size, size), jnp.float32)
    if cell == "inside":
        return Future(gates, (), W, None)
    W_a = weights.matrix(key_a, (size, size), jnp.float32)
    W_b = weights.matrix(key_b, (context, size), jnp.float32)
    return Future(gates, (W_a, W_b), W, jnp.zeros(size, jnp.float32))


def take_out(
    cell: Cell,
    params: Future,
    old: Float[Array, "B D"],
    context: Float[Array, "B C"],
) -> Float[Array, "B D"]:
    """The next F."""
    gates = params.gates
    if cell == "gru":
        return gru(gates, old, recurrent_inputs(gates, context))
    assert params.W is not None
    if cell == "outside":
        assert params.b is not None
        W_a, W_b = params.subtract
        z = jnp.tanh((old @ W_a - context @ W_b) @ params.W + params.b)
        return gru(gates, old, recurrent_inputs(gates, z))
    D = old.shape[-1]
    recurrent = recurrent_product(gates, old)
    read = input_product(gates, 0, context)
    both = jax.nn.sigmoid((recurrent + read + gates.b)[:, : 2 * D])
    r, u = both[:, :D], both[:, D:]
    left = recurrent[:, 2 * D :] - r * read[:, 2 * D :]
    candidate = jnp.tanh(left @ params.W + gates.b[2 * D :])
    return u * old + (1 - u) * candidate
