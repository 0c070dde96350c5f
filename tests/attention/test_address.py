# SPDX-License-Identifier: Apache-2.0
import jax
import jax.numpy as jnp
import numpy as np

from kvnmt.attention import address
from kvnmt.initializers import gaussian
from tests.references import blocks, parameters


def test_address_is_the_papers(key, x64):
    normal = np.random.default_rng(6).normal
    params = address.init_address(key, 5, 8, 6, gaussian(1.0))
    params = jax.tree.map(lambda x: jnp.asarray(normal(0, 1, x.shape)), params)
    query, keys = normal(0, 1, (2, 5)), normal(0, 1, (2, 4, 8))
    mask = jnp.asarray([[True] * 4, [True, True, False, False]])
    projected = address.project_keys(params, jnp.asarray(keys))
    got = address.address(params, jnp.asarray(query), projected, mask)
    theta = parameters.address(params)
    for row, length in enumerate([4, 2]):
        want = blocks.address(theta, query[row], list(keys[row, :length]))
        np.testing.assert_allclose(got[row, :length], want, rtol=1e-12)
        assert not np.any(np.asarray(got[row, length:]))


def test_read_values_is_a_weighted_sum():
    values = jnp.asarray([[[1.0, 10.0], [2.0, 20.0]]])
    got = address.read_values(jnp.asarray([[0.25, 0.5]]), values)
    np.testing.assert_allclose(got, [[1.25, 12.5]])


def test_count_and_first_values(key):
    params = address.init_address(key, 5, 8, 6, gaussian())
    sizes = [leaf.size for leaf in jax.tree.leaves(params)]
    assert sum(sizes) == 6 * (5 + 8 + 2)
    assert not np.any(np.asarray(params.b))
    assert np.all(np.asarray(params.v_energy) != 0)


def test_the_gradient_of_energies_is_that_of_calculus(x64):
    random = np.random.default_rng(5)
    v, query, keys, slope = (
        jnp.asarray(random.normal(0, 1, shape))
        for shape in [(4,), (2, 4), (2, 3, 4), (2, 3)]
    )

    def plain(v: jax.Array, query: jax.Array, keys: jax.Array) -> jax.Array:
        return jnp.tanh(query[:, None] + keys) @ v

    values, gradients = zip(
        *(
            (f(v, query, keys), jax.vjp(f, v, query, keys)[1](slope))
            for f in (address.energies, plain)
        )
    )
    np.testing.assert_allclose(*values, rtol=1e-12)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-11), *gradients)
