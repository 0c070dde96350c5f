# SPDX-License-Identifier: Apache-2.0
"""Products with a vector, on a TPU by its matrix unit.

XLA makes a sum of such a product. A TPU adds along the last axis of an array slowly,
and is as slow to spread numbers along it, while its matrix unit waits. So there the
vector is taken eight times, and one of eight equal results is used: the energies of
additive attention take an eighth of the time. Like all products of matrices on a TPU
these multiply in bfloat16, unless `jax.default_matmul_precision` says otherwise. Other
devices sum.
"""

import jax
import jax.numpy as jnp

from kvnmt.typing import Array, Float, typed

COPIES = 8  # rows of a register
# The axes of a batch. An einsum would be traced as a function of its own.
ROWS = ((0,), (0,))


@typed
def times_vector(x: Float[Array, "*N A"], v: Float[Array, " A"]) -> Float[Array, "*N"]:
    """``sum_a x_a v_a``; fuses with what makes ``x``."""
    return jax.lax.platform_dependent(x, v, tpu=_times_copies, default=_times)


@typed
def weighted_sum(
    weights: Float[Array, "B S"], rows: Float[Array, "B S C"]
) -> Float[Array, "B C"]:
    """``sum_s a_s r_s``."""
    return _sum(weights, rows)


def _times(x: Array, v: Array) -> Array:
    return jnp.sum(x * v, axis=-1)


def _times_copies(x: Array, v: Array) -> Array:
    return (x @ jnp.broadcast_to(v[:, None], (len(v), COPIES)))[..., 0]


def _product(weights: Array, rows: Array) -> Array:
    return jax.lax.dot_general(weights, rows, (((1,), (1,)), ROWS))


def _product_gradient(weights: Array, rows: Array, above: Array) -> tuple[Array, Array]:
    d_weights = jax.lax.dot_general(above, rows, (((1,), (2,)), ROWS))
    return d_weights, jax.lax.dot_general(weights, above, (((), ()), ROWS))


def _copies_product(weights: Array, rows: Array) -> Array:
    return jax.lax.dot_general(_copies(weights), rows, (((2,), (1,)), ROWS))[:, 0]


def _copies_gradient(weights: Array, rows: Array, above: Array) -> tuple[Array, Array]:
    return jax.vjp(_copies_product, weights, rows)[1](above)


def _copies(weights: Array) -> Array:
    size, length = weights.shape
    return jnp.broadcast_to(weights[:, None], (size, COPIES, length))


# The platform is chosen outside of what is differentiated.
@jax.custom_vjp
def _sum(weights: Array, rows: Array) -> Array:
    return jax.lax.platform_dependent(
        weights, rows, tpu=_copies_product, default=_product
    )


def _sum_and_kept(weights: Array, rows: Array) -> tuple[Array, tuple[Array, Array]]:
    return _sum(weights, rows), (weights, rows)


def _gradient(kept: tuple[Array, Array], above: Array) -> tuple[Array, Array]:
    return jax.lax.platform_dependent(
        *kept, above, tpu=_copies_gradient, default=_product_gradient
    )


_sum.defvjp(_sum_and_kept, _gradient)
