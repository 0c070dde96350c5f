# SPDX-License-Identifier: Apache-2.0
"""R-Drop: every pair is read twice, and both readings shall predict alike.

X. Liang, L. Wu, J. Li, Y. Wang, Q. Meng, T. Qin, W. Chen, M. Zhang, T.-Y. Liu (2021),
"R-Drop: Regularized Dropout for Neural Networks", equations 2 to 4. Two readings of a
pair differ in what dropout takes away; p and q are what they predict of a word::

    L_NLL = - log p(y) - log q(y)                                   (2)
    L_KL  = (KL(p || q) + KL(q || p)) / 2                           (3)
    L     = L_NLL + alpha L_KL                                      (4)

Here half of L is minimised, so that a loss has the size that it has without R-Drop: one
pair counts once. The readings are rows of one batch, as in the paper: the first half
of the rows are the first readings.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp

from kvnmt.layers import precise
from kvnmt.model.contract import Head
from kvnmt.training.cross_entropy import LOGITS, parts, product
from kvnmt.typing import Array, Float, Int, Key


def twice(
    source: Int[Array, "B S"], target: Int[Array, "B T"], masks: Key[Array, " B"]
) -> tuple[Int[Array, "B_2 S"], Int[Array, "B_2 T"], Key[Array, " B_2"]]:
    """The rows, then the rows again with other dropout."""
    keys = jax.vmap(jax.random.split, out_axes=1)(masks)
    return (
        jnp.concatenate([source, source]),
        jnp.concatenate([target, target]),
        keys.reshape(-1),
    )


def divergence(
    head: Head, target: Int[Array, "B_2 T"], logits: int = LOGITS
) -> Float[Array, ""]:
    """L_KL (3), summed over the real words of a batch, in nats.

    Written out it is half the sum of ``(p - q) (log p - log q)``. Logits stand for a
    part of the words at a time, and are computed again for the gradient.

    Args:
        head: The output layer and what it reads, of both readings.
        target: Words of both readings; below zero where there is none.
        logits: How many may stand at once.
    """

    def add(total: Array, part: tuple[Array, Array]) -> tuple[Array, None]:
        p, q = (
            jax.nn.log_softmax(product(x, head.layer.W[0]) + head.layer.b)
            for x in jnp.split(part[0], 2, axis=-1)
        )
        terms = jnp.sum((jnp.exp(p) - jnp.exp(q)) * (p - q), axis=-1)
        return total + jnp.sum(jnp.where(part[1] >= 0, terms, 0)) / 2, None

    pairs = len(target) // 2
    both = jnp.concatenate([head.x[:pairs], head.x[pairs:]], axis=-1)
    words = parts(replace(head, x=both), target[:pairs], logits // 2)
    zero = precise(jnp.zeros((), head.x.dtype))
    total, _ = jax.lax.scan(jax.checkpoint(add), zero, words)
    return total
