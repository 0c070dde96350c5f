# SPDX-License-Identifier: Apache-2.0
import jax
import jax.numpy as jnp
import numpy as np

from kvnmt.attention import address


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
