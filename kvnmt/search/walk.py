# SPDX-License-Identifier: Apache-2.0
"""Hypotheses that grow word by word without looking at each other."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from flax import struct

from kvnmt.search.base import (
    DecodeStep,
    Hypotheses,
    Loops,
    Ranking,
    Sentences,
    run_rows,
    score_type,
)
from kvnmt.typing import Array, Bool, Int, PyTree


@struct.dataclass
class Walk:
    """The rows of the loop."""

    state: PyTree  # leaves [B, K, ...]
    hypotheses: Hypotheses  # leaves [B, K, ...]
    live: Bool[Array, "B K"]

    @property
    def done(self) -> Bool[Array, " B"]:
        """Rows without a live hypothesis."""
        return ~jnp.any(self.live, axis=1)


def walk(
    step: DecodeStep,
    sentences: Sentences,
    ranking: Ranking,
    *,
    choose: Callable[[Sentences, Array, Array], Array],
    length: int,
    eos: int,
    pad: int,
    loops: Loops = Loops(),
) -> Hypotheses:
    """Extends every hypothesis until it ends; at its limit it is ended by force.

    Args:
        step: Advances hypotheses by one word.
        sentences: What is decoded; without keys, each with one hypothesis.
        ranking: How hypotheses are scored.
        choose: The next words [B, K] from the sentences, log_probs [B, K, V] and t.
        length: Static bound on the limits.
        eos: Id that ends a sentence.
        pad: Id that stands for no word.
        loops: How steps are run.
    """

    def advance(t: Int[Array, ""], now: Sentences, rows: Walk) -> Walk:
        source, limits = now.source, now.limits
        old, live = rows.hypotheses, rows.live
        state, distribution = step(source, rows.state, old.tokens, t)
        log_probs = distribution.log_probs  # [B, K, V]
        words = choose(now, log_probs, t).astype(jnp.int32)
        words = jnp.where((t + 1 >= limits)[:, None], eos, words)
        gain = jnp.take_along_axis(log_probs, words[..., None], axis=-1)[..., 0]
        total = old.log_probs + gain
        scores = ranking.scores(total, t + 1, source, state)
        ending = live & (words == eos)
        grown = Hypotheses(
            old.tokens.at[:, :, t].set(jnp.where(live, words, pad)),
            jnp.where(live, total, old.log_probs),
            jnp.where(ending, scores, old.scores),
        )
        return Walk(state, grown, live & ~ending)

    # The state may have no arrays; without keys there is one hypothesis per sentence.
    keys, count = sentences.keys, len(sentences.limits)
    shape = (count, 1) if keys is None else keys.shape[:2]
    blank = jnp.full((*shape, length), pad, jnp.int32)
    zero = jnp.zeros(shape, score_type(step, sentences, blank))
    live = jnp.broadcast_to((sentences.limits > 0)[:, None], shape)
    start = Walk(sentences.state, Hypotheses(blank, zero, zero), live)
    return run_rows(advance, sentences, start, length, loops).hypotheses


def greedy_search(
    step: DecodeStep, sentences: Sentences, ranking: Ranking, **bounds: Any
) -> Hypotheses:
    """Takes the most probable next word, again and again.

    Args:
        step: Advances hypotheses by one word.
        sentences: What is decoded, each with one hypothesis.
        ranking: How it is scored.
        **bounds: ``length``, ``eos``, ``pad`` and ``loops`` of `walk`.
    """

    def likeliest(now: Sentences, log_probs: Array, t: Array) -> Array:
        return jnp.argmax(log_probs, axis=-1)

    return walk(step, sentences, ranking, choose=likeliest, **bounds)
