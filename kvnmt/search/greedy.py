# SPDX-License-Identifier: Apache-2.0
"""Greedy search: the most probable next word, again and again."""

import jax
import jax.numpy as jnp

from kvnmt.search.base import DecodeStep, Hypotheses
from kvnmt.typing import Array, Bool, Float, Int, PyTree


def greedy_search(
    step: DecodeStep,
    state: PyTree,
    limits: Int[Array, " B"],
    *,
    length: int,
    eos: int,
    pad: int,
    minimum: int = 0,
) -> Hypotheses:
    """Returns one hypothesis per sentence.

    Args:
        step: Advances hypotheses by one word; its hypothesis axis has length 1.
        state: Where the step starts, leaves ``[B, 1, ...]``.
        limits: Most words, EOS included, that a sentence may get; at the limit EOS
            is forced.
        length: Static bound on the limits.
        eos: Id that ends a sentence.
        pad: Id that stands for no word.
        minimum: Fewest words before EOS, where the limit leaves room for them.
    """
    rows = limits.shape[0]

    def not_done(carry: tuple[Array, PyTree, Array, Array, Array]) -> Array:
        t, _, _, _, live = carry
        return (t < length) & jnp.any(live)

    def advance(
        carry: tuple[
            Int[Array, ""],
            PyTree,
            Int[Array, "B T"],
            Float[Array, " B"],
            Bool[Array, " B"],
        ],
    ) -> tuple[Array, PyTree, Array, Array, Array]:
        t, state, tokens, total, live = carry
        last = jnp.where(t > 0, tokens[:, jnp.maximum(t - 1, 0)], pad)
        state, log_probs = step(state, last[:, None])
        log_probs = log_probs[:, 0]  # [B, V]
        ending = jnp.where(t < minimum, -jnp.inf, log_probs[:, eos])
        choice = log_probs.at[:, eos].set(ending)
        best = jnp.argmax(choice, axis=-1).astype(tokens.dtype)
        best = jnp.where(t + 1 >= limits, eos, best)
        gain = jnp.take_along_axis(log_probs, best[:, None], axis=1)[:, 0]
        tokens = tokens.at[:, t].set(jnp.where(live, best, pad))
        total = jnp.where(live, total + gain, total)
        return t + 1, state, tokens, total, live & (best != eos)

    probe = jax.eval_shape(step, state, jnp.full((rows, 1), pad, jnp.int32))[1]
    start = (
        jnp.zeros((), jnp.int32),
        state,
        jnp.full((rows, length), pad, jnp.int32),
        jnp.zeros(rows, probe.dtype),
        jnp.ones(rows, bool),
    )
    _, _, tokens, total, _ = jax.lax.while_loop(not_done, advance, start)
    return Hypotheses(tokens[:, None], total[:, None], total[:, None])
