# SPDX-License-Identifier: Apache-2.0
"""Forced decoding: how probable a model finds given translations."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp

from kvnmt.data.batches import pad, with_end
from kvnmt.data.corpus import Vocabularies
from kvnmt.losses import negative_log_likelihood
from kvnmt.models import Model, Params
from kvnmt.translation import edge, in_batches
from kvnmt.typing import Array, Float, Int


class Scored(NamedTuple):
    """One pair; natural logarithms, EOS last and included."""

    token_log_probs: list[float]

    @property
    def log_prob(self) -> float:
        """Of the whole translation."""
        return sum(self.token_log_probs)


def score(
    model: Model,
    params: Params,
    source: Sequence[Sequence[int]],
    target: Sequence[Sequence[int]],
    *,
    batch_size: int = 64,
    advance: Callable[[int], None] = lambda pairs: None,
) -> list[Scored]:
    """Scores pairs of ids without EOS, in order; empty sentences are sentences.

    Args:
        model: The functions.
        params: The arrays.
        source: What is translated; a language model does not read it.
        target: Its translations.
        batch_size: Pairs at a time.
        advance: Told of every batch how many pairs it held.
    """
    run = compiled_score(model)
    results = [Scored([])] * len(source)
    for places, block in in_batches(source, batch_size, keep_empty=True):
        longest = max(len(target[i]) for i in places) + 1
        given = [with_end(target[i]) for i in places]
        forced = pad(given, len(block), edge(longest))
        found = jax.device_get(run(params, jnp.asarray(block), jnp.asarray(forced)))
        for row, i in enumerate(places):
            results[i] = Scored(found[row, : len(target[i]) + 1].tolist())
        advance(len(places))
    return results


def score_lines(
    words: Vocabularies,
    model: Model,
    params: Params,
    source: Sequence[str],
    target: Sequence[str],
    advance: Callable[[int], None] = lambda pairs: None,
) -> list[Scored]:
    """Scores pairs of lines, over tokens, as `score` does."""
    return score(
        model,
        params,
        [words.source.encode(line) for line in source],
        [words.target.encode(line) for line in target],
        advance=advance,
    )


@cache
def compiled_score(
    model: Model,
) -> Callable[[Params, Int[Array, "B S"], Int[Array, "B T"]], Float[Array, "B T"]]:
    """The jitted forced decoding of a model, giving log-probabilities."""

    def run(params: Params, source: Array, target: Array) -> Array:
        logits = model.forward(params, source, target).logits
        return -negative_log_likelihood(logits, target)

    return jax.jit(run)
