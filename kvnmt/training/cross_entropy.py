# SPDX-License-Identifier: Apache-2.0
"""The cross-entropy of an output layer, without the whole of its logits.

Logits are the largest array of a train step, [B, T, V]. Here they stand for a part of
the words at a time. The gradient is computed with the loss: it is that of one sum, so
that what comes from above is a single factor, and nothing has to be computed again::

    d total / d logits = p - (1 - rate) onehot(y) - rate / V        0 at padding

The true word is chosen by comparing, not by indexing: the gradient of an index writes
into an array of the size of the logits, and does not know a vocabulary that is split
over devices.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from kvnmt.contract import Head
from kvnmt.layers import Linear, precise
from kvnmt.typing import Array, Float, Int

LOGITS = 2**26  # numbers that stand at once, about
LOOP = "cross_entropy"  # what the loop over parts is called in a traced program


def cross_entropy(
    head: Head, target: Int[Array, "B T"], rate: float = 0.0, logits: int = LOGITS
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Sums over the real words of a batch, in nats.

    Label smoothing takes ``rate`` of the mass of the true word and spreads it evenly
    over the vocabulary.

    Args:
        head: The output layer and what it reads.
        target: Words; below zero where there is none.
        rate: Of label smoothing.
        logits: How many may stand at once.

    Returns:
        What is minimised, and the negative log-likelihood, which has no gradient.
    """
    with jax.named_scope(LOOP):
        sums: Any = _sums(head, target, rate, logits)
    return sums


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _sums(
    head: Head, target: Int[Array, "B T"], rate: float, logits: int
) -> tuple[Array, Array]:
    def add(
        sums: tuple[Array, Array], part: tuple[Array, Array]
    ) -> tuple[tuple[Array, Array], None]:
        total, nats, _ = _part(head.layer, *part, rate)
        return (sums[0] + total, sums[1] + nats), None

    zero = precise(jnp.zeros((), head.x.dtype))
    sums, _ = jax.lax.scan(add, (zero, zero), _parts(head, target, logits))
    return sums


def _with_gradient(
    head: Head, target: Int[Array, "B T"], rate: float, logits: int
) -> tuple[tuple[Array, Array], Head]:
    layer, x = head.layer, head.x

    def add(
        carried: tuple[Array, Array, Linear], part: tuple[Array, Array]
    ) -> tuple[tuple[Array, Array, Linear], Array]:
        total, nats, slope = _part(layer, *part, rate)
        slope = slope.astype(x.dtype)  # of the products
        # A column of ones reads the bias: its gradient costs no pass of its own. Eight
        # of them, since products of odd widths are slow.
        columns = jnp.pad(part[0], ((0, 0), (0, 8)), constant_values=1)
        d = _product(columns.T, slope)
        carried = carried[0] + total, carried[1] + nats, _add(carried[2], d)
        return carried, _product(slope, layer.W[0].T).astype(x.dtype)

    zeros = jax.tree.map(lambda leaf: precise(jnp.zeros_like(leaf)), layer)
    start = (zeros.b[0], zeros.b[0], zeros)
    (total, nats, d_layer), d_x = jax.lax.scan(add, start, _parts(head, target, logits))
    d_x = d_x.reshape(-1, x.shape[-1])[: x.size // x.shape[-1]].reshape(x.shape)
    d_layer = jax.tree.map(lambda d, leaf: d.astype(leaf.dtype), d_layer, layer)
    return (total, nats), Head(d_layer, d_x)


def _scaled(
    rate: float, logits: int, gradient: Head, above: tuple[Array, Array]
) -> tuple[Head, None]:
    return jax.tree.map(lambda d: d * above[0].astype(d.dtype), gradient), None


_sums.defvjp(_with_gradient, _scaled)


def _parts(
    head: Head, target: Int[Array, "B T"], logits: int
) -> tuple[Float[Array, "P N L"], Int[Array, "P N"]]:
    """The words in parts of one size; the last is filled up with padding."""
    x, words = head.x.reshape(-1, head.x.shape[-1]), target.reshape(-1)
    count = max(1, round(len(words) * head.layer.b.size / logits))
    missing = -len(words) % count
    x = jnp.pad(x, ((0, missing), (0, 0)))
    words = jnp.pad(words, (0, missing), constant_values=-1)
    return x.reshape(count, -1, x.shape[-1]), words.reshape(count, -1)


def _part(
    layer: Linear, x: Float[Array, "N L"], target: Int[Array, " N"], rate: float
) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, "N V"]]:
    """What is minimised, the nats, and the slope of the former by the logits."""
    logits = _product(x, layer.W[0]) + layer.b
    size = logits.shape[-1]
    real, right = target >= 0, jnp.arange(size) == target[:, None]
    norm = jax.nn.logsumexp(logits, axis=-1)
    chosen = jnp.sum(jnp.where(right, logits, 0), axis=-1)
    nats = jnp.sum(jnp.where(real, norm - chosen, 0))
    total = nats
    if rate:
        even = jnp.sum(jnp.where(real, norm - jnp.mean(logits, axis=-1), 0))
        total = (1 - rate) * nats + rate * even
    goal = jnp.where(right, 1 - rate, 0) + rate / size
    slope = jnp.exp(logits - norm[:, None]) - goal.astype(logits.dtype)
    return total, nats, jnp.where(real[:, None], slope, 0)


def _product(a: Float[Array, "N M"], b: Float[Array, "M O"]) -> Float[Array, "N O"]:
    """Summed in float32 at least, whatever is multiplied."""
    return jnp.matmul(a, b, preferred_element_type=precise(a[:0]).dtype)


def _add(layer: Linear, d: Float[Array, "L_8 V"]) -> Linear:
    return Linear((layer.W[0] + d[:-8],), layer.b + d[-1])
