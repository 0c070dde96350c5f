# SPDX-License-Identifier: Apache-2.0
"""Sampling: words drawn from the model, one by one."""

import jax
import jax.numpy as jnp

from kvnmt.search.base import DecodeStep, Hypotheses
from kvnmt.typing import Array, Bool, Float, Int, Key, PyTree


def sample_search(
    step: DecodeStep,
    state: PyTree,
    limits: Int[Array, " B"],
    keys: Key[Array, "B K"],
    *,
    length: int,
    eos: int,
    pad: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float = 1.0,
    minimum: int = 0,
) -> Hypotheses:
    """Returns K independent draws per sentence, the most probable first.

    Every draw has a key of its own, so that what else is in the batch does not matter.

    Args:
        step: Advances hypotheses by one word.
        state: Where the step starts, leaves ``[B, K, ...]``.
        limits: Most words, EOS included, that a sentence may get; at the limit EOS
            is forced.
        keys: One per draw.
        length: Static bound on the limits.
        eos: Id that ends a sentence.
        pad: Id that stands for no word.
        temperature: Divides the log-probabilities; below 1 draws more probable words.
        top_k: Only so many of the most probable words may be drawn.
        top_p: Only the most probable words whose probabilities together reach this.
        minimum: Fewest words before EOS, where the limit leaves room for them.
    """
    B, K = keys.shape
    rows, draws = jnp.arange(B)[:, None], jnp.arange(K)

    def advance(
        carry: tuple[
            Int[Array, ""],
            PyTree,
            Int[Array, "B K T"],
            Float[Array, "B K"],
            Bool[Array, "B K"],
        ],
    ) -> tuple[Array, PyTree, Array, Array, Array]:
        t, state, tokens, total, live = carry
        last = jnp.where(t > 0, tokens[:, :, jnp.maximum(t - 1, 0)], pad)
        state, log_probs = step(state, last)  # [B, K, V]
        ending = jnp.where(t < minimum, -jnp.inf, log_probs[..., eos])
        choice = restrict(log_probs.at[..., eos].set(ending), top_k, top_p)
        now = jax.vmap(jax.vmap(lambda key: jax.random.fold_in(key, t)))(keys)
        drawn = jax.vmap(jax.vmap(jax.random.categorical))(now, choice / temperature)
        drawn = jnp.where((t + 1 >= limits)[:, None], eos, drawn)
        drawn = drawn.astype(tokens.dtype)
        gain = log_probs[rows, draws, drawn]
        tokens = tokens.at[:, :, t].set(jnp.where(live, drawn, pad))
        total = jnp.where(live, total + gain, total)
        return t + 1, state, tokens, total, live & (drawn != eos)

    blank = jnp.full((B, K, length), pad, jnp.int32)
    probe = jax.eval_shape(step, state, blank[..., 0])[1]
    start = (
        jnp.zeros((), jnp.int32),
        state,
        blank,
        jnp.zeros((B, K), probe.dtype),
        jnp.ones((B, K), bool),
    )
    _, _, tokens, total, _ = jax.lax.while_loop(
        lambda carry: (carry[0] < length) & jnp.any(carry[4]), advance, start
    )
    order = jnp.argsort(-total, axis=1, stable=True)
    total = jnp.take_along_axis(total, order, axis=1)
    tokens = jnp.take_along_axis(tokens, order[..., None], axis=1)
    return Hypotheses(tokens, total, total)


def restrict(
    log_probs: Float[Array, "*N V"], top_k: int | None, top_p: float
) -> Float[Array, "*N V"]:
    """Leaves the words that may be drawn; minus infinity elsewhere.

    The most probable word always stays; words as probable as the last that stays do
    too.
    """
    least = jnp.full_like(log_probs[..., :1], -jnp.inf)
    if top_k is not None:
        count = min(top_k, log_probs.shape[-1])
        best = jax.lax.optimization_barrier(jax.lax.top_k(log_probs, count)[0])
        least = best[..., -1:]
    if top_p < 1:
        ranked = jnp.sort(log_probs, axis=-1, descending=True)
        before = jnp.cumsum(jnp.exp(ranked), axis=-1) - jnp.exp(ranked)
        kept = jnp.where(before < top_p, ranked, jnp.inf)
        least = jnp.maximum(least, jnp.min(kept, axis=-1, keepdims=True))
    return jnp.where(log_probs >= least, log_probs, -jnp.inf)
