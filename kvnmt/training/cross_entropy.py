# SPDX-License-Identifier: Apache-2.0
"""The cross-entropy of an output layer, without the whole of its logits.

Logits are the largest array of a train step, [B, T, V]. Here they stand for a part of
the words at a time. The gradient is computed with the loss: it is that of one sum, so
that what comes from above is a single factor, and nothing has to be computed again::

    d total / d logits = p - (1 - rate) onehot(y) - rate / V        0 at padding
    d total / d x      = p W' - (1 - rate) W'[y] - rate mean(W')

With ``q = exp(logits - max)`` and ``p = q / sum(q)`` the product ``q [W' 1]`` gives
``q W'`` and the sum: the logits are gone over once less than for a softmax. The logit
of the true word is chosen by comparing: an index would know no vocabulary that is split
over devices. ``W'[y]`` is looked up as an embedding is, for all words at once.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from kvnmt.layers import Linear, precise
from kvnmt.model.contract import Head
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
        What is minimised, and the negative log-likelihood, which has a gradient
        without label smoothing alone, where both are the same.
    """
    with jax.named_scope(LOOP):
        sums: Any = _sums(head, target, rate, logits)
    return sums


def word_nats(
    head: Head, target: Int[Array, "B T"], logits: int = LOGITS
) -> Float[Array, "B T"]:
    """The negative log-likelihood of every word, in nats; 0 where there is none.

    Logits stand for a part of the words at a time here, too, and are computed once more
    for the gradient.
    """

    @jax.checkpoint
    def nats(layer: Linear, x: Array, words: Array) -> Array:
        logits = _product(x, layer.W[0]) + layer.b
        right = jnp.arange(layer.b.size) == words[:, None]
        chosen = jnp.sum(jnp.where(right, logits, 0), axis=-1)
        return jnp.where(words >= 0, jax.nn.logsumexp(logits, axis=-1) - chosen, 0)

    def body(_: None, part: tuple[Array, Array]) -> tuple[None, Array]:
        return None, nats(head.layer, *part)

    _, several = jax.lax.scan(body, None, _parts(head, target, logits))
    return several.reshape(-1)[: target.size].reshape(target.shape)


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _sums(
    head: Head, target: Int[Array, "B T"], rate: float, logits: int
) -> tuple[Array, Array]:
    def add(
        sums: tuple[Array, Array], part: tuple[Array, Array]
    ) -> tuple[tuple[Array, Array], None]:
        logits = _product(part[0], head.layer.W[0]) + head.layer.b
        norm = jax.nn.logsumexp(logits, axis=-1)
        total, nats = _values(logits, norm, part[1], rate)
        return (sums[0] + total, sums[1] + nats), None

    zero = precise(jnp.zeros((), head.x.dtype))
    sums, _ = jax.lax.scan(add, (zero, zero), _parts(head, target, logits))
    return sums


def _with_gradient(
    head: Head, target: Int[Array, "B T"], rate: float, logits: int
) -> tuple[tuple[Array, Array], Head]:
    layer, x = head.layer, head.x
    # Columns of ones beside a factor give the sums of the other, which would otherwise
    # take a pass of their own. There are eight: products of odd widths are slow.
    wide = jnp.pad(layer.W[0], ((0, 8), (0, 0)), constant_values=1)

    def add(
        carried: tuple[Array, Array, Array], part: tuple[Array, Array]
    ) -> tuple[tuple[Array, Array, Array], Array]:
        total, nats, slope, mean = _part(wide, layer.b, *part, rate)
        columns = jnp.pad(part[0], ((0, 0), (0, 8)), constant_values=1)
        d = carried[2] + _product(columns.T, slope.astype(x.dtype))
        return (carried[0] + total, carried[1] + nats, d), mean

    zeros = precise(jnp.zeros_like(wide))
    start = (zeros[0, 0], zeros[0, 0], zeros)
    (total, nats, d), means = jax.lax.scan(add, start, _parts(head, target, logits))
    layers = Linear((d[:-8].astype(layer.W[0].dtype),), d[-1].astype(layer.b.dtype))
    means = means.reshape(-1, x.shape[-1])[: target.size].reshape(x.shape)
    d_x = jnp.where((target >= 0)[..., None], means - _goal(layer, target, rate), 0)
    return (total, nats), Head(layers, d_x.astype(x.dtype))


def _scaled(
    rate: float, logits: int, gradient: Head, above: tuple[Array, Array]
) -> tuple[Head, None]:
    # Without smoothing both sums are the same, so that either may be minimised.
    slope = above[0] if rate else above[0] + above[1]
    return jax.tree.map(lambda d: d * slope.astype(d.dtype), gradient), None


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
    wide: Float[Array, "L_8 V"],
    b: Float[Array, " V"],
    x: Float[Array, "N L"],
    target: Int[Array, " N"],
    rate: float,
) -> tuple[
    Float[Array, ""], Float[Array, ""], Float[Array, "N V"], Float[Array, "N L"]
]:
    """What is minimised, the nats, the slope of the former by the logits, and p W'."""
    logits = _product(x, wide[:-8]) + b
    largest = jnp.max(logits, axis=-1, keepdims=True)
    q = jnp.exp(logits - largest)
    read = _product(q.astype(x.dtype), wide.T)
    sums = read[:, -1:]
    norm = largest + jnp.log(sums)
    total, nats = _values(logits, norm[:, 0], target, rate)
    right = jnp.arange(b.size) == target[:, None]
    goal = jnp.where(right, 1 - rate, 0) + rate / b.size
    slope = jnp.where((target >= 0)[:, None], q / sums - goal.astype(q.dtype), 0)
    return total, nats, slope, read[:, :-8] / sums


def _values(
    logits: Float[Array, "N V"],
    norm: Float[Array, " N"],
    target: Int[Array, " N"],
    rate: float,
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """What is minimised, and the nats."""
    real, right = target >= 0, jnp.arange(logits.shape[-1]) == target[:, None]
    chosen = jnp.sum(jnp.where(right, logits, 0), axis=-1)
    nats = jnp.sum(jnp.where(real, norm - chosen, 0))
    if not rate:
        return nats, nats
    even = jnp.sum(jnp.where(real, norm - jnp.mean(logits, axis=-1), 0))
    return (1 - rate) * nats + rate * even, nats


def _goal(
    layer: Linear, target: Int[Array, "B T"], rate: float
) -> Float[Array, "B T L"]:
    """What p W' is where the loss is least; anything at padding."""
    W = layer.W[0].T
    goal = (1 - rate) * precise(W[jnp.maximum(target, 0)])  # less p W', nearly nothing
    return goal + rate * jnp.mean(W, axis=0, dtype=goal.dtype) if rate else goal


def _product(a: Float[Array, "N M"], b: Float[Array, "M O"]) -> Float[Array, "N O"]:
    """Summed in float32 at least, whatever is multiplied."""
    return jnp.matmul(a, b, preferred_element_type=precise(a[:0]).dtype)
