# SPDX-License-Identifier: Apache-2.0
"""Searches in a world of few words."""

from functools import partial

import jax
import numpy as np

from kvnmt.search import Hypotheses, Loops, beam_search
from tests.search.worlds import EOS, PAD, World, divisor, ranking, said

ROWS, WORDS, LENGTH = 40, 4, 4
LIVE = (WORDS - 1) ** (LENGTH - 1)  # hypotheses alive at once if none is dropped


def beam(
    world: World,
    limits: np.ndarray,
    width: int,
    alpha: float,
    count: int = 1,
    offset: float = 5.0,
    shrinks: int = 0,
    diverse: float | None = None,
) -> Hypotheses:
    asked = world.length, width, alpha, count, offset, shrinks, diverse
    return jax.device_get(_beam(world.table, limits, *asked))


@partial(jax.jit, static_argnums=(2, 3, 5, 7, 8))
def _beam(
    table, limits, length, width, alpha, count, offset, shrinks, diverse
) -> Hypotheses:
    world = World(table, length)
    common = {"length": length, "eos": EOS, "pad": PAD, "count": count}
    return beam_search(
        *(world.step, world.sentences(width, limits), ranking(length, alpha, offset)),
        **common | {"beam": width, "loops": Loops(shrinks), "diversity": diverse},
    )


def check_sums(world: World, found: Hypotheses, alpha: float) -> None:
    """Scores are what the words of the hypothesis add up to."""
    for row, hypotheses in enumerate(found.tokens):
        for n, tokens in enumerate(hypotheses):
            if np.isneginf(found.scores[row, n]):
                continue
            words = said(tokens)
            log_prob = world.log_prob(row, words)
            np.testing.assert_allclose(found.log_probs[row, n], log_prob, rtol=1e-5)
            score = log_prob / divisor(len(words), alpha)
            np.testing.assert_allclose(found.scores[row, n], score, rtol=1e-5)
