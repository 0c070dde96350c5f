# SPDX-License-Identifier: Apache-2.0
"""A history and its masks, of what looks back: members of this folder, and decoders."""

import jax
import jax.numpy as jnp
from flax import struct

from kvnmt.layers import times_vector
from kvnmt.typing import Array, Bool, DType, Float, Int, typed


@struct.dataclass
class History:
    """Rows of the past, and how many there are."""

    rows: Float[Array, "B T N"]
    count: Int[Array, " B"]


def empty(rows: int, length: int, width: int, dtype: DType) -> History:
    """Histories of ``rows`` sentences with room for ``length`` vectors each."""
    vectors = jnp.zeros((rows, length, width), dtype)
    return History(vectors, jnp.zeros(rows, jnp.int32))


def append(history: History, row: Float[Array, "B N"]) -> History:
    """The history with one more row, in the place of the oldest where it is full."""
    sentences, place = jnp.arange(row.shape[0]), history.count % history.rows.shape[1]
    rows = history.rows.at[sentences, place].set(row)
    return History(rows, history.count + 1)


def present(history: History) -> Bool[Array, "B T"]:
    """Which rows are there."""
    return jnp.arange(history.rows.shape[1]) < history.count[:, None]


def earlier(
    steps: int, *, itself: bool, window: int | None = None
) -> Bool[Array, "T T"]:
    """``[t, i]``: whether step t may look at step i.

    Args:
        steps: T.
        itself: Whether i = t is allowed.
        window: How many steps before t at most; None: all.
    """
    back = jnp.arange(steps)[:, None] - jnp.arange(steps)  # t - i
    allowed = back >= (0 if itself else 1)
    return allowed if window is None else allowed & (back <= window)


def by_word(weights: Float[Array, "B T T"]) -> Float[Array, "B T T"]:
    """Weights of the states of earlier steps, with a column before the first word."""
    return jnp.pad(weights[:, :, :-1], ((0, 0), (0, 0), (1, 0)))


@jax.custom_vjp
def energies(
    past: Float[Array, "*P A"], now: Float[Array, "*N A"], v: Float[Array, " A"]
) -> Float[Array, "..."]:
    """``v . tanh(past + now)``, the two spread over each other's axes of length 1.

    The tanh of all pairs of steps, [B, T, T, A], is never written out: the sum fuses
    with it, and the gradient, in which it is computed again, takes one pass over it.
    """
    return times_vector(jnp.tanh(past + now), v)


@typed
def mix(
    weights: Float[Array, "B T I"], rows: Float[Array, "B I N"]
) -> Float[Array, "B T N"]:
    """``sum_i w_{t,i} row_i``."""
    return jnp.einsum("bti,bin->btn", weights, rows)


def _energies(
    past: Array, now: Array, v: Array
) -> tuple[Array, tuple[Array, Array, Array]]:
    return energies(past, now, v), (past, now, v)


def _gradient(
    kept: tuple[Array, Array, Array], above: Array
) -> tuple[Array, Array, Array]:
    # Behind a barrier, or XLA keeps the tanh of the way forward. A CPU may keep it:
    # there it takes longer to compute than to read.
    past, now, v, above = jax.lax.platform_dependent(
        *kept, above, cpu=_same, default=_behind_barrier
    )
    hidden, slope = jnp.tanh(past + now), above[..., None]
    inner = slope * (1 - hidden**2)
    d_v = jnp.sum(slope * hidden, axis=tuple(range(above.ndim)))
    return v * _gathered(inner, past), v * _gathered(inner, now), d_v


def _same(*arrays: Array) -> tuple[Array, ...]:
    return arrays


def _behind_barrier(*arrays: Array) -> tuple[Array, ...]:
    return jax.lax.optimization_barrier(arrays)


def _gathered(x: Array, part: Array) -> Array:
    """Sums over the axes over which a part was spread."""
    spread = (n for n, size in enumerate(part.shape) if size == 1 < x.shape[n])
    return jnp.sum(x, axis=tuple(spread), keepdims=True)


energies.defvjp(_energies, _gradient)
