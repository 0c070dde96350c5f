# SPDX-License-Identifier: Apache-2.0
"""Greedy search: the most probable next word, again and again."""

import jax.numpy as jnp

from kvnmt.search.base import DecodeStep, Hypotheses, Ranking, Sentences
from kvnmt.search.walk import walk
from kvnmt.typing import Array, Float


def greedy_search(
    step: DecodeStep,
    sentences: Sentences,
    ranking: Ranking,
    *,
    length: int,
    eos: int,
    pad: int,
    shrinks: int = 0,
) -> Hypotheses:
    """Returns one hypothesis per sentence.

    Args:
        step: Advances hypotheses by one word.
        sentences: What is decoded, each with one hypothesis.
        ranking: How it is scored.
        length: Static bound on the limits.
        eos: Id that ends a sentence.
        pad: Id that stands for no word.
        shrinks: How often the batch may shrink; see `run_rows`.
    """

    def best(now: Sentences, log_probs: Float[Array, "B K V"], t: Array) -> Array:
        return jnp.argmax(log_probs, axis=-1)

    return walk(
        step,
        best,
        sentences,
        ranking,
        length=length,
        eos=eos,
        pad=pad,
        shrinks=shrinks,
    )
