# SPDX-License-Identifier: Apache-2.0
import jax.numpy as jnp
import numpy as np
import pytest

from kvnmt.attention.distortion import move

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
