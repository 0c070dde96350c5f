# SPDX-License-Identifier: Apache-2.0
"""Lengths, rewards, siblings, and batches that shrink while they are searched."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvnmt.search import Loops, beam_search, length_divisors
from tests.search.searching import LENGTH, LIVE, ROWS, beam, check_sums
from tests.search.worlds import (
    EOS,
    PAD,
    divisor,
    every_sentence,
    random_world,
    ranking,
    said,
    slow_beam,
)


@pytest.mark.parametrize(
    ("length", "alpha", "offset", "value"),
    [
        *((1, 1.0, 5.0, 1.0), (7, 1.0, 5.0, 2.0), (7, 0.0, 5.0, 1.0)),
        *((19, 0.5, 5.0, 2.0), (13, 2.0, 5.0, 9.0)),
        *((9, 1.0, 0.0, 9.0), (9, 0.5, 0.0, 3.0), (9, 0.0, 0.0, 1.0)),
    ],
)
def test_the_length_divisors_are_those_of_their_papers(length, alpha, offset, value):
    table = length_divisors(30, alpha, offset)
    np.testing.assert_allclose(table[length], value, rtol=1e-6)
    np.testing.assert_allclose(divisor(length, alpha, offset), value, rtol=1e-6)
    assert np.all(np.diff(table) >= 0) and np.all(table > 0)


@pytest.mark.parametrize(("alpha", "offset"), [(1.0, 0.0), (0.5, 0.0), (0.7, 5.0)])
@pytest.mark.parametrize(("width", "count"), [(LIVE, LIVE), (3, 2)])
def test_every_length_normalisation(world, limits, width, count, alpha, offset):
    found = beam(world, limits, width, alpha, count, offset)
    for row, limit in enumerate(limits):
        truth = slow_beam(world, row, int(limit), width, alpha, offset)[:count]
        ours = [said(tokens) for tokens in found.tokens[row][: len(truth)]]
        assert ours == [words for _, _, words in truth]
        scores = [score for score, _, _ in truth]
        np.testing.assert_allclose(
            found.scores[row][: len(truth)], scores, rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize("shrinks", [1, 2, 9])
def test_a_batch_that_shrinks_finds_the_same(world, limits, shrinks):
    """Bit for bit, whatever the number of rows: 40, then 10, then 2."""
    whole = beam(world, limits, 3, 1.0, 2)
    for rows in (ROWS, 7, 1):
        part = world.rows(slice(0, rows))
        found = beam(part, limits[:rows], 3, 1.0, 2, shrinks=shrinks)
        for leaf, leaves in zip(jax.tree.leaves(found), jax.tree.leaves(whole)):
            np.testing.assert_array_equal(leaf, leaves[:rows])


def test_the_work_shrinks_when_rows_are_done():
    """The number of rows in every step, told by the shapes that are traced."""
    world, limits = random_world(1, 8, 3, 6), np.array([1] * 6 + [6, 2], np.int32)
    seen = []

    def step(source, state, written, t):
        rows = len(written)
        jax.debug.callback(lambda t: seen.append((int(t), rows)), t)
        return world.step(source, state, written, t)

    beam_search(
        *(step, world.sentences(2, limits), ranking(6, 0.0)),
        **{
            "beam": 2,
            "count": 2,
            "length": 6,
            "eos": EOS,
            "pad": PAD,
            "loops": Loops(2),
        },
    )
    jax.effects_barrier()
    rows = [rows for _, rows in sorted(seen)]
    assert rows[:2] == [8, 2] and set(rows[2:]) <= {2}


def test_rows_that_are_no_sentences_cost_no_step():
    world, calls = random_world(1, 4, 3, 3), []

    def step(source, state, written, t):
        jax.debug.callback(lambda t: calls.append(int(t)), t)
        return world.step(source, state, written, t)

    found = beam_search(
        *(step, world.sentences(2, np.zeros(4, np.int32)), ranking(3, 0.0)),
        **{"beam": 2, "length": 3, "eos": EOS, "pad": PAD},
    )
    jax.effects_barrier()
    assert not calls and np.all(np.isneginf(found.scores))


def test_rewards_are_added_and_the_search_waits_for_them(world, limits):
    """What depends on the words of a hypothesis, through its state, and is below 0."""

    def reward(source, state):
        said_last = state["history"][0][..., 0, :]
        return -1.5 * jnp.sum(said_last == 1, axis=-1)  # word 1 is not liked

    found = beam_search(
        *(world.step, world.sentences(LIVE, limits)),
        ranking(LENGTH, 1.0)._replace(reward=reward),
        **{"beam": LIVE, "count": LIVE, "length": LENGTH, "eos": EOS, "pad": PAD},
    )
    found, changed = jax.device_get(found), 0
    for row, limit in enumerate(limits):
        every = every_sentence(world, row, int(limit), 1.0)
        liked = sorted(
            ((score - 1.5 * words.count(1), words) for score, _, words in every),
            reverse=True,
        )[:LIVE]
        ours = [said(tokens) for tokens in found.tokens[row][: len(liked)]]
        assert ours == [words for _, words in liked]
        changed += ours[0] != every[0][2]
    assert changed > 3


@pytest.mark.parametrize("diverse", [0.0, 0.7, 5.0])
def test_siblings_pay_for_better_ones(world, limits, diverse):
    found = beam(world, limits, 3, 1.0, 3, diverse=diverse)
    for row, limit in enumerate(limits):
        truth = slow_beam(world, row, int(limit), 3, 1.0, diverse=diverse)
        ours = [said(tokens) for tokens in found.tokens[row][: len(truth)]]
        assert ours == [words for _, _, words in truth]
    check_sums(world, found, 1.0)
