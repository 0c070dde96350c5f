# SPDX-License-Identifier: Apache-2.0
"""Many writes to a linear memory at once, and what is read between them.

The WY form of S. Yang, B. Wang, Y. Zhang, Y. Shen, Y. Kim (2024), section 3, with
decays as in S. Yang, J. Kautz, A. Hatamizadeh (2025), section 3. Let G_i be the product
of the decays to i, T the strictly lower matrix ``T_ij = (b_i * k_i * G_i / G_j) . k_j``
and ``P = (I + T)^{-T} K'`` with rows ``k'_j = G_L / G_j * k_j``. Then L writes are::

    M <- G_L M + P^T (U - B M)      rows u_i = w_i * v_i and G_i * b_i * k_i

and what lies between them is read alike, with the weights of the earlier writes for P.
Quotients of decays are made pair by pair: they are at most 1, where a quotient of two
products may be 0 / 0.
"""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from kvnmt.layers.linear_memory import Writes
from kvnmt.typing import Array, Float

CHUNK = 16  # writes at once; with more, pairs of channels take more room than steps
NOTHING = -100.0  # logarithm of a decay that leaves nothing


def fill(made: Writes, chunk: int = CHUNK) -> Float[Array, "*N K V"]:
    """The memory after writes [*N, T, _] to an empty one."""
    return _run(made, None, chunk)[0]


def source_weights(made: Writes, chunk: int = CHUNK) -> Float[Array, "*N K T"]:
    """``[p_1 .. p_T]``: the exact weight of the j-th write in a read is ``q . p_j``."""
    T = made.key.shape[-2]
    units = jnp.broadcast_to(
        jnp.eye(T, dtype=made.value.dtype), (*made.key.shape[:-1], T)
    )
    return fill(replace(made, value=units), chunk)


def reads(
    made: Writes, asked: Float[Array, "*N T K"], chunk: int = CHUNK
) -> Float[Array, "*N T V"]:
    """What each query reads before the write of its step, from an empty memory on."""
    result = _run(made, asked, chunk)[1]
    assert result is not None
    return result


@struct.dataclass
class _Chunk:
    """What L writes do to a memory, and what L queries read on the way."""

    value: Float[Array, "*N L V"]  # u_i
    erase: Float[Array, "*N L K"] | None  # G_i * b_i * k_i
    decay: Float[Array, "*N _"]  # G_L
    left: Float[Array, "*N L K"]  # P
    query: Float[Array, "*N L K"] | None  # q_i * G_{i-1}
    read: Float[Array, "*N L L"] | None  # weights of the writes before each query


def _run(
    made: Writes, asked: Float[Array, "*N T K"] | None, chunk: int
) -> tuple[Array, Array | None]:
    """The memory after all writes, and what was read before each."""
    T = made.key.shape[-2]
    length = min(chunk, T)
    count = -(-T // length)

    def split(x: Array) -> Array:
        pad = [(0, 0)] * (x.ndim - 2) + [(0, count * length - T), (0, 0)]
        parts = jnp.pad(x, pad).reshape(*x.shape[:-2], count, length, x.shape[-1])
        return jnp.moveaxis(parts, -3, 0)

    chunks = _chunks(*jax.tree.map(split, (made, asked)))
    memory, first = _first(jax.tree.map(lambda x: x[0], chunks))
    if count == 1:
        return memory, first
    rest = jax.tree.map(lambda x: x[1:], chunks)
    memory, others = jax.lax.scan(_next, memory, rest)
    if first is None or others is None:
        return memory, None
    found = jnp.moveaxis(jnp.concatenate([first[None], others]), 0, -3)
    return memory, found.reshape(*found.shape[:-3], -1, found.shape[-1])[..., :T, :]


def _chunks(made: Writes, asked: Array | None) -> _Chunk:
    """Everything of chunks [*N, L, _] that needs no memory."""
    # What is nothing may not cost the sums their digits.
    g = jnp.cumsum(jnp.maximum(made.log_decay, NOTHING), axis=-2)  # log G_i
    left = made.key * jnp.exp(g[..., -1:, :] - g)
    # log G_{i-1}; not g less the last decay, which would round after a strong one.
    before = jnp.pad(g[..., :-1, :], [(0, 0)] * (g.ndim - 2) + [(1, 0), (0, 0)])
    query = look = erase = None
    if asked is not None:
        query, look = asked * jnp.exp(before), _lower(asked, before, made.key, g)
    if made.erase is not None:
        erase = made.erase * jnp.exp(g)
        T = _lower(made.erase, g, made.key, g)
        left = _undo(T, left)
        if look is not None:
            look = jnp.swapaxes(_undo(T, jnp.swapaxes(look, -1, -2)), -1, -2)
    return _Chunk(made.value, erase, jnp.exp(g[..., -1, :]), left, query, look)


def _lower(x: Array, g_x: Array, y: Array, g_y: Array) -> Float[Array, "*N L L"]:
    """``sum_c x_ic y_jc exp(g_x_ic - g_y_jc)`` for j < i, else 0."""
    lower = jnp.tril(jnp.ones((x.shape[-2],) * 2, bool), -1)
    if g_x.shape[-1] == 1:
        apart = jnp.where(lower, g_x - jnp.swapaxes(g_y, -1, -2), -jnp.inf)
        return jnp.einsum("...ic,...jc->...ij", x, y) * jnp.exp(apart)
    apart = g_x[..., :, None, :] - g_y[..., None, :, :]
    apart = jnp.where(lower[..., None], apart, -jnp.inf)
    return jnp.einsum("...ic,...jc,...ijc->...ij", x, y, jnp.exp(apart))


def _undo(T: Float[Array, "*N L L"], x: Float[Array, "*N L _"]) -> Array:
    """``(I + T)^{-T} x`` for a strictly lower T, by products of matrices alone.

    The inverse X of the blocks of n on the diagonal gives that of blocks of 2 n: it is
    ``X - X T' X``, with T' what lies left of the diagonal within the larger blocks. No
    triangular solve of a library is called: that of jaxlib for CPUs blocks a thread of
    the pool that it waits for, and two at once on two cores wait for ever. The products
    that the inverse is made of are exact on accelerators, too: each feeds the next.
    """
    product = partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)
    L = T.shape[-1]
    inverse = jnp.broadcast_to(jnp.eye(L, dtype=T.dtype), T.shape)
    for n in (2**level for level in range((L - 1).bit_length())):
        block = np.arange(L) // n
        larger = block // 2
        within = (larger[:, None] == larger) & (block[:, None] > block)
        left = product(inverse, jnp.where(within, T, 0))
        inverse = inverse - product(left, inverse)
    return jnp.swapaxes(inverse, -1, -2) @ x


def _first(chunk: _Chunk) -> tuple[Array, Array | None]:
    """An empty memory after a chunk."""
    memory = jnp.einsum("...lk,...lv->...kv", chunk.left, chunk.value)
    return memory, None if chunk.read is None else chunk.read @ chunk.value


def _next(memory: Array, chunk: _Chunk) -> tuple[Array, Array | None]:
    fresh = chunk.value
    if chunk.erase is not None:
        fresh = fresh - chunk.erase @ memory
    found = None
    if chunk.query is not None and chunk.read is not None:
        found = chunk.query @ memory + chunk.read @ fresh
    kept = chunk.decay[..., None] * memory
    return kept + jnp.einsum("...lk,...lv->...kv", chunk.left, fresh), found
