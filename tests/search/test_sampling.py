# SPDX-License-Identifier: Apache-2.0
"""Draws follow the model, their keys, and nothing else."""

from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvnmt.search import Hypotheses, greedy_search, sample_search
from kvnmt.search.sampling import restrict
from tests.search.worlds import EOS, PAD, World, random_world, ranking, said

ROWS, WORDS, LENGTH = 6, 4, 4
LIMITS = np.array([4, 4, 3, 2, 1, 4], np.int32)
COMMON = {"length": LENGTH, "eos": EOS, "pad": PAD}


@pytest.fixture(scope="module")
def world() -> World:
    return random_world(1, ROWS, WORDS, LENGTH)


def draw(world: World, limits, draws: int, seed: int = 0, **options) -> Hypotheses:
    rows = len(limits)
    keys = jax.vmap(
        lambda n: jax.random.split(jax.random.fold_in(jax.random.key(seed), n), draws)
    )
    return jax.device_get(
        sample_search(
            world.step,
            world.sentences(draws, limits, keys=keys(jnp.arange(rows))),
            ranking(LENGTH, 0.0),
            **options,
            **COMMON,
        )
    )


def probability(
    world: World, row: int, words: tuple[int, ...], temperature: float
) -> float:
    """That these words are drawn, each by its power of one by the temperature."""
    total = 1.0
    for n, word in enumerate(words):
        powers = np.exp(world.next(row, words[:n]) / temperature)
        total *= powers[word] / powers.sum()
    return total


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_frequencies_are_probabilities(world, temperature):
    """To five deviations of the share of so many draws."""
    draws = 4000
    found = draw(world, LIMITS, draws, temperature=temperature)
    for row in range(ROWS):
        words = [said(tokens) for tokens in found.tokens[row]]
        for sentence, count in Counter(words).items():
            drawn = sentence[: LIMITS[row] - 1]  # a limit ends it by force
            if len(sentence) < LIMITS[row]:
                drawn = sentence
            want = probability(world, row, drawn, temperature)
            bound = 5 * np.sqrt(want * (1 - want) / draws) + 2 / draws
            assert abs(count / draws - want) < bound, (sentence, count, want)
        scores = found.scores[row]
        assert np.all(np.diff(scores) <= 0)
        for n in range(0, draws, 500):
            log_prob = world.log_prob(row, words[n])
            np.testing.assert_allclose(found.log_probs[row, n], log_prob, rtol=1e-5)


@pytest.mark.parametrize(
    "options", [{"top_k": 1}, {"top_p": 1e-6}, {"temperature": 1e-4}]
)
def test_without_chance_it_is_greedy(world, options):
    found = draw(world, LIMITS, 3, **options)
    greedy = greedy_search(
        world.step, world.sentences(1, LIMITS), ranking(LENGTH, 0.0), **COMMON
    )
    for n in range(3):
        np.testing.assert_array_equal(found.tokens[:, n], greedy.tokens[:, 0])


def test_a_row_does_not_see_the_rest_of_the_batch(world):
    whole = draw(world, LIMITS, 5)
    again, other = draw(world, LIMITS, 5), draw(world, LIMITS, 5, seed=1)
    np.testing.assert_array_equal(whole.tokens, again.tokens)
    assert np.any(whole.tokens != other.tokens)
    first = draw(world.rows(slice(0, 2)), LIMITS[:2], 5)
    np.testing.assert_array_equal(first.tokens, whole.tokens[:2])


def test_who_may_be_drawn():
    p = np.array([[0.1, 0.4, 0.3, 0.2]])
    log_probs = jnp.log(p)

    def allowed(top_k, top_p):
        left = restrict(log_probs, top_k, top_p)
        return np.flatnonzero(np.isfinite(np.asarray(left)[0])).tolist()

    assert allowed(None, None) == [0, 1, 2, 3]
    assert allowed(2, None) == [1, 2]
    assert allowed(9, None) == [0, 1, 2, 3]
    assert allowed(None, 0.39) == [1]
    assert allowed(None, 0.6) == [1, 2]
    assert allowed(None, 0.8) == [1, 2, 3]
    assert allowed(1, 0.8) == [1]
    assert allowed(3, 0.5) == [1, 2]
    # A forced word may have less than a float can tell.
    forced = restrict(jnp.array([[-jnp.inf, -95.0, -jnp.inf]]), None, 0.9)
    assert np.flatnonzero(np.isfinite(np.asarray(forced)[0])).tolist() == [1]
    # A word that may not be written has no share in what is counted.
    barred = restrict(jnp.log(jnp.array([[0.0, 0.03, 0.01, 0.005, 0.005]])), None, 0.7)
    assert np.flatnonzero(np.isfinite(np.asarray(barred)[0])).tolist() == [1, 2]
