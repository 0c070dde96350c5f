# SPDX-License-Identifier: Apache-2.0
"""Greedy search: the most probable next word, again and again."""

from typing import Any

import jax.numpy as jnp

from kvnmt.search.base import DecodeStep, Hypotheses, Ranking, Sentences
from kvnmt.search.walk import walk
from kvnmt.typing import Array, Float


def greedy_search(
    step: DecodeStep, sentences: Sentences, ranking: Ranking, **options: Any
) -> Hypotheses:
    """Returns one hypothesis per sentence.

    Args:
        step: Advances hypotheses by one word.
        sentences: What is decoded, each with one hypothesis.
        ranking: How it is scored.
        options: As of `walk`.
    """

    def best(now: Sentences, log_probs: Float[Array, "B K V"], t: Array) -> Array:
        return jnp.argmax(log_probs, axis=-1)

    return walk(step, best, sentences, ranking, **options)
