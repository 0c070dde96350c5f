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

Where every row stands twice, behind two dropout masks, the two distributions p1 and p2
of a word may be drawn together (`Objective.consistency`). With its logits z1 and z2::

    KL(p1, p2) + KL(p2, p1) = D = sum (p1 - p2) (z1 - z2)
    d D / d z1 = (p1 - p2) + p1 ((z1 - z2) - sum p1 (z1 - z2))         so of z2
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from kvnmt.contract import Head
from kvnmt.layers import Linear, precise
from kvnmt.typing import Array, Float, Int

LOGITS = 2**26  # numbers that stand at once, about
LOOP = "cross_entropy"  # what the loop over parts is called in a traced program


class Smoothing(NamedTuple):
    """What is minimised beside the negative log-likelihood."""

    rate: float = 0.0  # of label smoothing
    consistency: float = 0.0  # of D; rows B/2 + 1 to B are the first ones again


def cross_entropy(
    head: Head,
    target: Int[Array, "B T"],
    smoothing: Smoothing = Smoothing(),
    logits: int = LOGITS,
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Sums over the real words of a batch, in nats.

    Label smoothing takes ``rate`` of the mass of the true word and spreads it evenly
    over the vocabulary. D, the symmetric divergence of the two halves of the batch,
    weighs ``consistency``.

    Args:
        head: The output layer and what it reads.
        target: Words; below zero where there is none.
        smoothing: What is minimised, too.
        logits: How many may stand at once.

    Returns:
        What is minimised, and the negative log-likelihood, which has no gradient.
    """
    with jax.named_scope(LOOP):
        sums: Any = _sums(head, target, smoothing, logits)
    return sums


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _sums(
    head: Head, target: Int[Array, "B T"], smoothing: Smoothing, logits: int
) -> tuple[Array, Array]:
    def add(
        sums: tuple[Array, Array], part: tuple[Array, Array]
    ) -> tuple[tuple[Array, Array], None]:
        logits = _product(part[0], head.layer.W[0]) + head.layer.b
        norm = jax.nn.logsumexp(logits, axis=-1)
        total, nats = _values(logits, norm, part[1], smoothing.rate)
        if smoothing.consistency:
            p = jnp.exp(logits - norm[:, None])
            total += smoothing.consistency * _divergence(logits, p, part[1])[0]
        return (sums[0] + total, sums[1] + nats), None

    zero = precise(jnp.zeros((), head.x.dtype))
    parts = _parts(head, target, smoothing, logits)
    sums, _ = jax.lax.scan(add, (zero, zero), parts)
    return sums


def _with_gradient(
    head: Head, target: Int[Array, "B T"], smoothing: Smoothing, logits: int
) -> tuple[tuple[Array, Array], Head]:
    layer, x = head.layer, head.x
    # Ones beside a factor give the sums of the other: what would be a pass of its own.
    # Eight of them, since products of odd widths are slow.
    wide = jnp.pad(layer.W[0], ((0, 8), (0, 0)), constant_values=1)

    def add(
        carried: tuple[Array, Array, Array], part: tuple[Array, Array]
    ) -> tuple[tuple[Array, Array, Array], Array]:
        total, nats, slope, mean = _part(wide, layer.b, *part, smoothing)
        columns = jnp.pad(part[0], ((0, 0), (0, 8)), constant_values=1)
        d = carried[2] + _product(columns.T, slope.astype(x.dtype))
        return (carried[0] + total, carried[1] + nats, d), mean

    zeros = precise(jnp.zeros_like(wide))
    start = (zeros[0, 0], zeros[0, 0], zeros)
    parts = _parts(head, target, smoothing, logits)
    (total, nats, d), means = jax.lax.scan(add, start, parts)
    layers = Linear((d[:-8].astype(layer.W[0].dtype),), d[-1].astype(layer.b.dtype))
    means = _whole(means, x, smoothing)
    goal = _goal(layer, target, smoothing.rate)
    d_x = jnp.where((target >= 0)[..., None], means - goal, 0)
    return (total, nats), Head(layers, d_x.astype(x.dtype))


def _scaled(
    smoothing: Smoothing, logits: int, gradient: Head, above: tuple[Array, Array]
) -> tuple[Head, None]:
    return jax.tree.map(lambda d: d * above[0].astype(d.dtype), gradient), None


_sums.defvjp(_with_gradient, _scaled)


def _parts(
    head: Head, target: Int[Array, "B T"], smoothing: Smoothing, logits: int
) -> tuple[Float[Array, "P N L"], Int[Array, "P N"]]:
    """The words in parts of one size; the last is filled up with padding.

    Where rows stand twice, both halves of a part are of the same words.
    """
    views = _views(smoothing)
    x, words = head.x.reshape(views, -1, head.x.shape[-1]), target.reshape(views, -1)
    count = max(1, round(words.size * head.layer.b.size / logits))
    missing = -words.shape[1] % count
    x = jnp.pad(x, ((0, 0), (0, missing), (0, 0)))
    words = jnp.pad(words, ((0, 0), (0, missing)), constant_values=-1)
    x = x.reshape(views, count, -1, x.shape[-1]).swapaxes(0, 1)
    words = words.reshape(views, count, -1).swapaxes(0, 1)
    return x.reshape(count, -1, x.shape[-1]), words.reshape(count, -1)


def _whole(
    parts: Float[Array, "P N L"], x: Float[Array, "B T L"], smoothing: Smoothing
) -> Float[Array, "B T L"]:
    """The words of all parts where they stand in ``x``."""
    views, (rows, steps, width) = _views(smoothing), x.shape
    whole = parts.reshape(len(parts), views, -1, width).swapaxes(0, 1)
    whole = whole.reshape(views, -1, width)
    return whole[:, : rows * steps // views].reshape(x.shape)


def _views(smoothing: Smoothing) -> int:
    return 2 if smoothing.consistency else 1


def _part(
    wide: Float[Array, "L_8 V"],
    b: Float[Array, " V"],
    x: Float[Array, "N L"],
    target: Int[Array, " N"],
    smoothing: Smoothing,
) -> tuple[
    Float[Array, ""], Float[Array, ""], Float[Array, "N V"], Float[Array, "N L"]
]:
    """What is minimised, the nats, the slope of the former by the logits, and p W'.

    To the last the slope of D times W' is added.
    """
    rate, weight = smoothing
    logits = _product(x, wide[:-8]) + b
    largest = jnp.max(logits, axis=-1, keepdims=True)
    q = jnp.exp(logits - largest)
    read = _product(q.astype(x.dtype), wide.T)
    sums = read[:, -1:]
    norm = largest + jnp.log(sums)
    total, nats = _values(logits, norm[:, 0], target, rate)
    right = jnp.arange(b.size) == target[:, None]
    goal = jnp.where(right, 1 - rate, 0) + rate / b.size
    p = q / sums
    slope = jnp.where((target >= 0)[:, None], p - goal.astype(q.dtype), 0)
    mean = read[:, :-8] / sums
    if weight:
        divergence, push = _divergence(logits, p, target)
        total, slope = total + weight * divergence, slope + weight * push
        mean += weight * _product(push.astype(x.dtype), wide[:-8].T)
    return total, nats, slope, mean


def _divergence(
    logits: Float[Array, "N V"], p: Float[Array, "N V"], target: Int[Array, " N"]
) -> tuple[Float[Array, ""], Float[Array, "N V"]]:
    """D, of the first half of the words and the second, and its slope by the logits."""
    real = (target >= 0)[: len(target) // 2, None]
    (z1, z2), (p1, p2) = jnp.split(logits, 2), jnp.split(p, 2)
    apart = jnp.where(real, z1 - z2, 0)
    more = jnp.where(real, p1 - p2, 0)
    far1, far2 = (jnp.sum(p * apart, axis=-1, keepdims=True) for p in (p1, p2))
    slopes = more + p1 * (apart - far1), -more - p2 * (apart - far2)
    return jnp.sum(far1 - far2), jnp.concatenate(slopes)


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
    goal = (1 - rate) * W[jnp.maximum(target, 0)]
    return goal + rate * jnp.mean(W, axis=0) if rate else goal


def _product(a: Float[Array, "N M"], b: Float[Array, "M O"]) -> Float[Array, "N O"]:
    """Summed in float32 at least, whatever is multiplied."""
    return jnp.matmul(a, b, preferred_element_type=precise(a[:0]).dtype)
