# SPDX-License-Identifier: Apache-2.0
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvnmt.attention import distortion
from kvnmt.attention.base import Moment
from kvnmt.attention.distortion import move
from kvnmt.initializers import weights
from kvnmt.typing import Sizes

ALIGNMENT = np.array([[0.5, 0.25, 0.25, 0.0], [0.0, 0.0, 0.0, 1.0]], np.float32)


@pytest.mark.parametrize("k", range(-3, 4))
def test_a_certain_move_shifts_and_loses_what_passes_the_edge(k):
    chances = np.zeros((2, 7), np.float32)
    chances[:, 3 + k] = 1  # k > 0 moves to the right
    got = np.asarray(move(jnp.asarray(ALIGNMENT), jnp.asarray(chances)))
    for row in range(2):
        for j in range(4):
            there = 0 <= j - k < 4
            assert got[row, j] == (ALIGNMENT[row, j - k] if there else 0)


def test_moves_mix_by_their_chances_in_each_row():
    chances = np.array([[0.5, 0.0, 0.5], [0.0, 0.25, 0.75]], np.float32)
    got = move(jnp.asarray(ALIGNMENT), jnp.asarray(chances))
    want = [[0.125, 0.375, 0.125, 0.125], [0, 0, 0, 0.25]]
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_a_window_wider_than_the_sentence():
    chances = jnp.full((1, 13), 1 / 13)
    got = move(jnp.asarray([[1.0, 0.0]]), chances)
    np.testing.assert_allclose(got, [[1 / 13, 1 / 13]], rtol=1e-6)


def alignments(steps: int, gap: float, **choices: object) -> jnp.ndarray:
    """Of one source word, whose moves have logits ``[gap, 0, 0]``, step by step."""
    options = distortion.Options(window=1, context="source", **choices)
    sizes = Sizes(2, 2, 2, 2, 2)
    mechanism = distortion.build(options)
    params = mechanism.init(jax.random.key(0), sizes, weights("gaussian"))
    moves = params.moves.replace(
        W=jax.tree.map(jnp.zeros_like, params.moves.W), b=jnp.array([gap, 0.0, 0.0])
    )
    params = params.replace(moves=moves)
    mask = jnp.ones((1, 1), bool)
    source = mechanism.prepare(params, jnp.ones((1, 1, 2)), mask)
    state, every = mechanism.initial_state(params, source), []
    some = jnp.ones((1, 2))
    moment = Moment(previous_state=some, embedded=some, query=some)
    for _ in range(steps):
        attended = mechanism.read(params, source, state, moment)
        every.append(attended.alignment[0, 0])
        state = mechanism.write(
            params, source, state, moment.replace(attended=attended)
        )
    return jnp.stack(every)


def test_mass_that_is_lost_is_no_first_word():
    """With nothing but the last alignment to go by it stays lost."""
    got = alignments(16, 9.0, weight=1.0)
    assert got[0] == 1
    assert got[1] > got[-1] == 0


@pytest.mark.parametrize("share", ["distortion", "final"])
@pytest.mark.parametrize("weight", [0.5, 1.0])
def test_a_share_of_hardly_anything_has_a_gradient(share, weight):
    slope = jax.grad(
        lambda gap: alignments(2, gap, renormalise=share, weight=weight)[1]
    )
    for gap in (40.0, 50.0, 60.0):
        assert jnp.isfinite(slope(gap))
