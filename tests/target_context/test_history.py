# SPDX-License-Identifier: Apache-2.0
import jax.numpy as jnp
import numpy as np
import pytest

from kvnmt.target_context import history


@pytest.mark.parametrize("itself", [False, True])
@pytest.mark.parametrize("window", [None, 1, 2])
def test_who_may_look_at_whom(itself, window):
    got = np.asarray(history.earlier(4, itself=itself, window=window))
    for t in range(4):
        for i in range(4):
            near = window is None or t - i <= window
            assert got[t, i] == ((i < t or (itself and i == t)) and near)


def test_rows_of_a_batch_fill_one_by_one():
    memory = history.empty(2, 4, 3, jnp.float32)
    assert memory.rows.shape == (2, 4, 3) and not np.any(history.present(memory))
    for n in range(3):
        memory = history.append(memory, jnp.full((2, 3), n + 1.0))
    np.testing.assert_array_equal(memory.rows[:, :, 0], [[1, 2, 3, 0]] * 2)
    np.testing.assert_array_equal(history.present(memory), [[1, 1, 1, 0]] * 2)
