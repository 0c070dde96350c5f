# SPDX-License-Identifier: Apache-2.0
"""Words that would make a hypothesis say the same n-gram twice."""

import jax
import jax.numpy as jnp

from kvnmt.typing import Array, Bool, Int


def repeating(
    written: Int[Array, "*N T"], t: Int[Array, ""], n: int
) -> Bool[Array, "*N T"]:
    """Which words before step t would repeat an n-gram if they were written there.

    These are the words that followed the last n - 1 words wherever they stood before.

    Args:
        written: The words so far; what stands from step t on is not looked at.
        t: The step.
        n: How many words, at least 1: all words before it, then.
    """
    places = jnp.arange(written.shape[-1])
    same = jnp.broadcast_to((n - 1 <= places) & (places < t), written.shape)
    for back in range(1, n):
        last = jax.lax.dynamic_index_in_dim(
            written, jnp.maximum(t - back, 0), axis=-1, keepdims=True
        )
        same &= jnp.roll(written, back, axis=-1) == last
    return same
