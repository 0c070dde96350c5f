# SPDX-License-Identifier: Apache-2.0
"""Memories of m slots with a key and a value each, written by gates.

Every vector is written to every slot, by an amount of the slot's own; a query reads the
slots by a softmax over their keys::

    K <- Diag(a) K + f k^T        V <- Diag(a) V + f v^T        [m, d_k], [m, d_v]
    p = softmax(K q)              o = V^T p

====  ======================================  ========================================
gsa   a = sig(W x)^(1 / tau), f = 1 - a       Y. Zhang, S. Yang et al. (2024), "Gated
                                              Slot Attention for Efficient Linear-Time
                                              Sequence Modeling", section 3, arXiv
                                              2409.07146
abc   f_t = exp(u_t) / z_t, u = W x,          H. Peng et al. (2022), "ABC: Attention
      a_t = z_{t-1} / z_t, z_t = sum          with Bounded-memory Control", section 3,
      exp(u_i) of i <= t                      arXiv 2110.02488
====  ======================================  ========================================

k, v and q are W x. Slots are sums of what was written, so o is one too, of the v_j with
the weights ``sum_m p_m c_mj``, where ``c_mj = f_mj prod_{i > j} a_mi``. They are not
negative; those of abc sum to 1, those of gsa to less by what has faded.

Departures: the papers have several heads; gated slot attention also passes q, k, v and
what is read through swish, and normalises the latter. Here there is one head, and none
of that, so that the gates alone differ. The papers read and write one sequence as it
goes on; an attention writes the source before it is read.
"""

from typing import Literal, TypeAlias

import jax
import jax.numpy as jnp
from flax import struct

from kvnmt.initializers import Weights
from kvnmt.layers.basic import precise
from kvnmt.layers.write_chunks import NOTHING
from kvnmt.typing import Array, Bool, Float, Key

Gate: TypeAlias = Literal["gsa", "abc"]


@struct.dataclass
class Writer:
    """Makes keys, values and amounts of a vector; no biases."""

    W_key: Float[Array, "I K"]
    W_value: Float[Array, "I V"]
    W_gate: Float[Array, "I M"]


def init_writer(
    key: Key[Array, ""],
    width: int,
    keys: int,
    values: int,
    slots: int,
    weights: Weights,
) -> Writer:
    """Makes the writer of vectors of some width."""
    key_k, key_v, key_m = jax.random.split(key, 3)
    return Writer(
        W_key=weights.matrix(key_k, (width, keys), jnp.float32),
        W_value=weights.matrix(key_v, (width, values), jnp.float32),
        W_gate=weights.matrix(key_m, (width, slots), jnp.float32),
    )


def gates(
    gate: Gate,
    writer: Writer,
    x: Float[Array, "*B T I"],
    tau: float,
    mask: Bool[Array, "*B T"] | None = None,
) -> tuple[Float[Array, "*B T M"], Float[Array, "*B T M"]]:
    """f, and the sum of log a so far, of writes over time; padding writes nothing."""
    u = precise(x @ writer.W_gate)
    real = True if mask is None else mask[..., None]
    if gate == "abc":
        u = jnp.where(real, u, jnp.finfo(u.dtype).min)
        log_total = jax.lax.cumlogsumexp(u, axis=u.ndim - 2)  # log z
        f, faded = jnp.exp(u - log_total), -log_total
    else:
        log_a = jnp.where(real, _log_decay(u, tau), 0)
        f, faded = -jnp.expm1(log_a), jnp.cumsum(log_a, axis=-2)
    return jnp.where(real, f, 0), faded


def next_gates(
    writer: Writer,
    x: Float[Array, "*B I"],
    tau: float,
    log_total: Float[Array, "*B M"] | None,
) -> tuple[Array, Array, Float[Array, "*B M"] | None]:
    """f, log a and the next log z of one write; log z is None of gsa."""
    u = precise(x @ writer.W_gate)
    if log_total is None:
        log_a = _log_decay(u, tau)
        return -jnp.expm1(log_a), log_a, None
    total = jnp.logaddexp(log_total, u)
    return jnp.exp(u - total), log_total - total, total


def _log_decay(u: Float[Array, "..."], tau: float) -> Float[Array, "..."]:
    """Log a, no less than what leaves nothing: a sum of more would round others."""
    return jnp.maximum(jax.nn.log_sigmoid(u) / tau, NOTHING)


def rewrite(
    slots: Float[Array, "*B M _"],
    f: Float[Array, "*B M"],
    log_a: Float[Array, "*B M"],
    new: Float[Array, "*B _"],
) -> Float[Array, "*B M _"]:
    """``Diag(a) K + f k^T``: one write of a key, or of a value."""
    return jnp.exp(log_a)[..., None] * slots + f[..., None] * precise(new)[..., None, :]


def choose(
    keys: Float[Array, "*B M K"], query: Float[Array, "*B K"]
) -> Float[Array, "*B M"]:
    """``softmax(K q)``."""
    return jax.nn.softmax(jnp.einsum("...mk,...k->...m", keys, query))
