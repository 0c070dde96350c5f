# SPDX-License-Identifier: Apache-2.0
"""Sampling: words drawn from the model, one by one."""

import jax
import jax.numpy as jnp

from kvnmt.errors import UserError
from kvnmt.search.base import (
    DecodeStep,
    Hypotheses,
    Loops,
    Ranking,
    Sentences,
    gather_beams,
)
from kvnmt.search.walk import walk
from kvnmt.typing import Array, Float, Int, Key


def sample_search(
    step: DecodeStep,
    sentences: Sentences,
    ranking: Ranking,
    *,
    length: int,
    eos: int,
    pad: int,
    loops: Loops = Loops(),
    temperature: Array | float = 1.0,
    top_k: int | None = None,
    top_p: Array | float | None = None,
) -> Hypotheses:
    """Returns K independent draws per sentence, the one of best score first.

    Every draw has a key of its own, so that what else is in the batch does not matter.

    Args:
        step: Advances hypotheses by one word.
        sentences: What is decoded; with keys.
        ranking: How draws are scored.
        length: Static bound on the limits.
        eos: Id that ends a sentence.
        pad: Id that stands for no word.
        loops: How steps are run.
        temperature: Divides the log-probabilities; below 1 draws more probable words.
        top_k: Only so many of the most probable words may be drawn.
        top_p: Only the most probable words whose probabilities together reach this.

    Raises:
        UserError: No word may be drawn.
    """
    if top_k is not None and top_k < 1:
        raise UserError(f"top_k is {top_k} but must be at least 1.")

    def draw(now: Sentences, log_probs: Float[Array, "B K V"], t: Array) -> Array:
        keys = jax.vmap(jax.vmap(lambda key: jax.random.fold_in(key, t)))(now.keys)
        choice = restrict(log_probs, top_k, top_p) / temperature
        return jax.vmap(jax.vmap(pick))(keys, choice)

    draws = walk(
        step,
        sentences,
        ranking,
        choose=draw,
        length=length,
        eos=eos,
        pad=pad,
        loops=loops,
    )
    return gather_beams(draws, jnp.argsort(-draws.scores, axis=1, stable=True))


def pick(key: Key[Array, ""], logits: Float[Array, " V"]) -> Int[Array, ""]:
    """Draws a word by one random number, in the order of the words.

    What may not be drawn then makes no difference, wherever it stands; and a random
    number for each word would take longer than the search.
    """
    weights = jnp.exp(logits - jnp.max(logits))
    sums = jnp.where(weights > 0, jnp.cumsum(weights), 0)
    return jnp.argmax(sums > jax.random.uniform(key, dtype=sums.dtype) * jnp.max(sums))


def restrict(
    log_probs: Float[Array, "*N V"], top_k: int | None, top_p: Array | float | None
) -> Float[Array, "*N V"]:
    """Leaves the words that may be drawn; minus infinity elsewhere.

    The most probable word always stays; words as probable as the last that stays do
    too. The p of top-p is a share of what all words that may be written have together.
    """
    least = jnp.full_like(log_probs[..., :1], -jnp.inf)
    if top_k is not None:
        count = min(top_k, log_probs.shape[-1])
        best = jax.lax.optimization_barrier(jax.lax.top_k(log_probs, count)[0])
        least = best[..., -1:]
    if top_p is not None:
        ranked = jnp.sort(log_probs, axis=-1, descending=True)
        mass = jnp.exp(ranked - ranked[..., :1])  # a forced word may have next to none
        sums = jnp.cumsum(mass, axis=-1)
        before = sums - mass
        kept = jnp.where(before < top_p * sums[..., -1:], ranked, jnp.inf)
        least = jnp.maximum(least, jnp.min(kept, axis=-1, keepdims=True))
    return jnp.where(log_probs >= least, log_probs, -jnp.inf)
