# SPDX-License-Identifier: Apache-2.0
"""Searches against enumeration, against slow searches, and on a drawn chain."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvnmt.errors import UserError
from kvnmt.search import (
    Hypotheses,
    Sentences,
    beam_search,
    greedy_search,
    length_divisors,
    sample_search,
)
from tests.search.searching import LENGTH, LIVE, ROWS, beam, check_sums
from tests.search.worlds import (
    EOS,
    PAD,
    World,
    every_sentence,
    markov_world,
    normalised,
    random_world,
    ranking,
    said,
    slow_beam,
    slow_greedy,
)

ALPHAS = (0.0, 0.5, 1.0)


def greedy(world: World, limits: np.ndarray) -> Hypotheses:
    return jax.device_get(_greedy(world.table, limits, world.length))


@partial(jax.jit, static_argnums=2)
def _greedy(table, limits, length) -> Hypotheses:
    world = World(table, length)
    common = {"length": length, "eos": EOS, "pad": PAD}
    return greedy_search(
        world.step, world.sentences(1, limits), ranking(length, 0.0), **common
    )


@pytest.mark.parametrize("search", [greedy_search, sample_search])
def test_a_step_may_carry_nothing(search):
    log_probs = jnp.log(jnp.array([0.1, 0.2, 0.7]))

    def step(source: tuple, state: tuple, written: jax.Array, t: jax.Array) -> tuple:
        return state, normalised(jnp.broadcast_to(log_probs, (*written.shape[:2], 3)))

    drawn = search is sample_search
    keys = jax.random.split(jax.random.key(1), (2, 3)) if drawn else None
    more = {"top_k": 1} if drawn else {}
    found = search(
        *(step, Sentences((), (), jnp.array([1, 3]), keys), ranking(3, 0.0)),
        **{"length": 3, "eos": EOS, "pad": PAD} | more,
    )
    assert found.tokens.shape == (2, 3 if drawn else 1, 3)
    assert (found.tokens == jnp.array([[[0, -1, -1]], [[2, 2, 0]]])).all()


@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_beam_as_wide_as_the_space_finds_the_best_of_all(world, limits, alpha):
    found = beam(world, limits, LIVE, alpha, count=LIVE)
    for row, limit in enumerate(limits):
        truth = every_sentence(world, row, int(limit), alpha)[:LIVE]
        scores, log_probs, words = zip(*truth)
        ours = [said(tokens) for tokens in found.tokens[row][: len(truth)]]
        assert ours == list(words)
        np.testing.assert_allclose(
            found.scores[row][: len(truth)], scores, rtol=1e-5, atol=1e-6
        )
        np.testing.assert_allclose(
            found.log_probs[row][: len(truth)], log_probs, rtol=1e-5, atol=1e-6
        )
        assert np.all(np.isneginf(found.scores[row][len(truth) :]))


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize(("width", "count"), [(1, 1), (2, 1), (3, 1), (3, 3), (5, 2)])
def test_a_narrow_beam_stops_early_and_loses_nothing(
    world, limits, width, count, alpha
):
    found = beam(world, limits, width, alpha, count)
    assert found.tokens.shape == (ROWS, count, LENGTH)
    for row, limit in enumerate(limits):
        truth = slow_beam(world, row, int(limit), width, alpha)[:count]
        ours = [said(tokens) for tokens in found.tokens[row][: len(truth)]]
        assert ours == [words for _, _, words in truth]
    check_sums(world, found, alpha)


def test_greedy_takes_the_best_next_word(world, limits):
    found = greedy(world, limits)
    assert found.tokens.shape == (ROWS, 1, LENGTH)
    for row, limit in enumerate(limits):
        log_prob, words = slow_greedy(world, row, int(limit))
        assert said(found.tokens[row, 0]) == words
        np.testing.assert_allclose(found.log_probs[row, 0], log_prob, rtol=1e-5)
    np.testing.assert_array_equal(found.scores, found.log_probs)


def test_a_beam_of_one_is_greedy_or_better(world, limits):
    """It follows the greedy words but may end before, or go on after, greedy does."""
    one, other = beam(world, limits, 1, 0.0), greedy(world, limits)
    assert np.all(one.scores >= other.scores - 1e-6)
    differ = 0
    for row in range(ROWS):
        ours, theirs = said(one.tokens[row, 0])[:-1], said(other.tokens[row, 0])[:-1]
        size = min(len(ours), len(theirs))
        assert ours[:size] == theirs[:size]
        differ += ours != theirs
    assert 0 < differ < ROWS


def test_a_beam_of_one_is_greedy_where_ending_early_does_not_pay():
    """EOS is improbable until it is certain: after word 2, or after three words."""
    table = random_world(5, 10, 3, 4).table.copy()
    codes = np.arange(table.shape[1])
    table[..., EOS] = -30.0
    table[:, (codes % 4 == 3) | (codes >= 16)] = [0.0, -30.0, -30.0]
    world, limits = World(table, 4), np.full(10, 4, np.int32)
    one, other = beam(world, limits, 1, 0.0), greedy(world, limits)
    np.testing.assert_array_equal(one.tokens, other.tokens)
    np.testing.assert_allclose(one.scores, other.scores, rtol=1e-6)
    assert len({said(tokens[0]) for tokens in one.tokens}) > 2


def drawn() -> World:
    """Greedy goes up, where the road is long; the best sentence is "b".

    ::

                .6         .5         .9
       start ───────> a ───────> c ───────> .
         │            ├── .3 ──> .    c ── .1 ──> c
         │ .4         │ .2
         │            v    .9
         └──────────> b ───────> .    b ── .1 ──> c
    """
    return markov_world(
        {
            "": {"a": 0.6, "b": 0.4},
            "a": {"c": 0.5, ".": 0.3, "b": 0.2},
            "b": {".": 0.9, "c": 0.1},
            "c": {".": 0.9, "c": 0.1},
        },
        length=4,
    )


A, B, C = 1, 2, 3
PATHS = [  # of the drawing, most probable first
    ((B, EOS), 0.4 * 0.9),
    ((A, C, EOS), 0.6 * 0.5 * 0.9),
    ((A, EOS), 0.6 * 0.3),
    ((A, B, EOS), 0.6 * 0.2 * 0.9),
    ((B, C, EOS), 0.4 * 0.1 * 0.9),
]


def test_greedy_walks_the_long_road():
    found = greedy(drawn(), np.array([4], np.int32))
    assert said(found.tokens[0, 0]) == (A, C, EOS)
    np.testing.assert_allclose(np.exp(found.log_probs[0, 0]), 0.27, rtol=1e-5)


def test_a_beam_finds_the_paths_of_the_drawing():
    found = beam(drawn(), np.array([4], np.int32), 5, 0.0, count=5)
    words, probabilities = zip(*PATHS)
    assert [said(tokens) for tokens in found.tokens[0]] == list(words)
    np.testing.assert_allclose(np.exp(found.log_probs[0]), probabilities, rtol=1e-5)


@pytest.mark.parametrize(("alpha", "best"), [(0, (B,)), (1, (B,)), (3, (A, C))])
def test_a_length_penalty_leads_to_longer_sentences(alpha, best):
    found = beam(drawn(), np.array([4], np.int32), 5, alpha)
    assert said(found.tokens[0, 0]) == (*best, EOS)


def test_what_is_impossible_has_no_score():
    """Only one sentence exists here; the other places stay empty, without a nan."""
    world = markov_world({"": {"a": 1.0}, "a": {".": 1.0}}, length=4)
    found = beam(world, np.array([4], np.int32), 3, 1.0, count=3)
    assert said(found.tokens[0, 0]) == (1, EOS)
    assert found.scores[0].tolist() == [0.0, -np.inf, -np.inf]


@pytest.mark.parametrize("width", [1, 3])
def test_no_row_gets_longer_than_its_limit(width):
    """EOS is so improbable that only the limit brings it."""
    table = random_world(3, 8, 3, 6).table.copy()
    table[..., EOS] = -1000.0
    world, limits = World(table, 6), np.array([1, 2, 3, 4, 5, 6, 3, 1], np.int32)
    for found in (greedy(world, limits), beam(world, limits, width, 1.0)):
        sizes = [len(said(tokens[0])) for tokens in found.tokens]
        assert sizes == limits.tolist()


@pytest.mark.parametrize("count", [1, 3])
def test_a_row_does_not_see_the_rest_of_the_batch(world, limits, count):
    whole = beam(world, limits, 3, 1.0, count), greedy(world, limits)
    for row in range(0, ROWS, 7):
        rows = slice(row, row + 1)
        alone = (
            beam(world.rows(rows), limits[rows], 3, 1.0, count),
            greedy(world.rows(rows), limits[rows]),
        )
        for one, all_of_them in zip(alone, whole):
            for leaf, leaves in zip(jax.tree.leaves(one), jax.tree.leaves(all_of_them)):
                np.testing.assert_array_equal(leaf[0], leaves[row])


def test_what_is_done_is_frozen(world):
    """A row that is done early equals itself after the longest row is done."""
    short = np.full(ROWS, 2, np.int32)
    mixed = short.copy()
    mixed[::2] = LENGTH
    some, more = beam(world, short, 3, 1.0, 3), beam(world, mixed, 3, 1.0, 3)
    for leaf, other in zip(jax.tree.leaves(some), jax.tree.leaves(more)):
        np.testing.assert_array_equal(leaf[1::2], other[1::2])
    assert np.any(some.tokens[::2] != more.tokens[::2])


def test_more_room_than_the_limits_changes_nothing(world, limits):
    wide = World(world.table, LENGTH + 3)
    for found, roomy in (
        (beam(world, limits, 3, 1.0, 3), beam(wide, limits, 3, 1.0, 3)),
        (greedy(world, limits), greedy(wide, limits)),
    ):
        np.testing.assert_array_equal(found.tokens, roomy.tokens[..., :LENGTH])
        np.testing.assert_array_equal(found.scores, roomy.scores)
        assert np.all(roomy.tokens[..., LENGTH:] == PAD)


def test_the_loop_ends_when_all_rows_are_done():
    """How often the step ran, told by a callback."""
    world = drawn()
    calls = []

    def step(source, state, written, t):
        jax.debug.callback(lambda t: calls.append(int(t)), t)
        return world.step(source, state, written, t)

    beam_search(
        *(step, world.sentences(1, np.array([4])), ranking(4, 0.0)),
        **{"beam": 1, "length": 4, "eos": EOS, "pad": PAD},
    )
    jax.effects_barrier()
    # "a c ." has .27 after three steps; "a c c" has .03 and can only lose.
    assert max(calls) == 2


def test_a_beam_does_not_hold_more_than_itself(world, limits):
    for count in (0, 3):
        with pytest.raises(UserError, match=f"^count is {count} .* the beam, 2"):
            beam(world, limits, 2, 0.0, count=count)
    with pytest.raises(UserError, match="^beam is 0"):
        beam(world, limits, 0, 0.0, count=0)
    with pytest.raises(UserError, match="^alpha is -1"):
        length_divisors(3, -1, 5.0)


def test_a_step_never_sorts_the_vocabulary():
    """XLA may turn a sliced top_k into a full sort, 25 times slower on a CPU."""
    wide = 2000

    def search(table):
        def step(source, state, written, t):
            beams = written.shape[:2]
            return state, normalised(jnp.broadcast_to(table, (*beams, wide)))

        nothing = jnp.zeros((4, 5), jnp.int32)
        sentences = Sentences(nothing, nothing, jnp.full(4, 6))
        common = {"length": 6, "eos": EOS, "pad": PAD}
        return beam_search(step, sentences, ranking(6, 1.0), beam=5, **common)

    text = jax.jit(search).lower(jnp.zeros(wide)).compile().as_text()
    sorts = [line for line in text.splitlines() if " sort(" in line]
    assert not any(str(5 * wide) in line for line in sorts), sorts
    assert "TopK" in text or "topk" in text.lower()
