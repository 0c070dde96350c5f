# SPDX-License-Identifier: Apache-2.0
import jax
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


@pytest.mark.parametrize(
    "shapes", [((2, 1, 5, 3), (2, 5, 1, 3)), ((2, 5, 3), (2, 1, 3))]
)
def test_energies_of_pairs_and_their_gradient(shapes):
    *keys, last = jax.random.split(jax.random.key(0), 4)
    inputs = [jax.random.normal(k, s) for k, s in zip(keys, (*shapes, (3,)))]
    above = jax.random.normal(last, jnp.broadcast_shapes(*shapes)[:-1])

    def plain(past, now, v):
        return jnp.einsum("...a,a->...", jnp.tanh(past + now), v)

    got, got_gradient = jax.vjp(history.energies, *inputs)
    want, want_gradient = jax.vjp(plain, *inputs)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    for a, b in zip(got_gradient(above), want_gradient(above)):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_no_tanh_of_all_pairs_is_kept_for_the_gradient():
    past, now, v = jnp.ones((2, 1, 5, 3)), jnp.ones((2, 5, 1, 3)), jnp.ones(3)
    kept = jax.tree.leaves(
        jax.eval_shape(lambda *x: jax.vjp(history.energies, *x)[1], past, now, v)
    )
    assert max(x.size for x in kept) == past.size
