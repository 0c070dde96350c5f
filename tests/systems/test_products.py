# SPDX-License-Identifier: Apache-2.0
"""Multiplications are counted as people would count them."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec

from kvnmt import devices
from kvnmt.systems.products import multiplications, needed


def count(function, *shapes) -> int:
    arrays = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    return multiplications(jax.make_jaxpr(function)(*arrays).jaxpr.eqns)


def test_products_and_their_gradients():
    def total(a, b):
        return jnp.sum(jnp.tanh(a @ b))

    assert count(total, (3, 5), (5, 7)) == 3 * 5 * 7
    both = jax.grad(total, argnums=(0, 1))
    assert count(both, (3, 5), (5, 7)) == 3 * 3 * 5 * 7
    assert count(lambda a, b: a * b, (3, 5), (3, 5)) == 0


def test_batches_of_products():
    assert count(jnp.matmul, (2, 3, 5), (2, 5, 7)) == 2 * 3 * 5 * 7


@pytest.mark.parametrize("length", [1, 4])
def test_loops_count_in_full(length):
    def loop(a, b):
        return jax.lax.scan(lambda x, _: (x @ b, None), a, None, length)[0]

    assert count(loop, (3, 5), (5, 5)) == length * 3 * 5 * 5
    nested = jax.jit(jax.checkpoint(loop))
    assert count(nested, (3, 5), (5, 5)) == length * 3 * 5 * 5


def test_devices_count_together():
    rows = devices.data_mesh()

    def each(a, b):
        return jax.shard_map(
            jnp.matmul,
            mesh=rows,
            in_specs=(PartitionSpec("data"), PartitionSpec()),
            out_specs=PartitionSpec("data"),
            axis_names={"data"},
        )(a, b)

    assert count(each, (16, 5), (5, 7)) == 16 * 5 * 7


def test_what_nobody_uses_is_not_needed():
    """As the compiler leaves it out, inner programs included."""
    mesh = devices.data_mesh()

    @jax.jit
    def both(a, b):
        return a @ b, jnp.tanh(a) @ b

    def each(a, b):
        return jax.shard_map(
            lambda a, b: both(a, b)[1],
            mesh=mesh,
            in_specs=(PartitionSpec("data"), PartitionSpec()),
            out_specs=PartitionSpec("data"),
            axis_names={"data"},
        )(a, b)

    arrays = [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((16, 5), (5, 7))]
    jaxpr = jax.make_jaxpr(jax.jit(each))(*arrays).jaxpr
    assert multiplications(jaxpr.eqns) == 2 * 16 * 5 * 7
    assert multiplications(needed(jaxpr)) == 16 * 5 * 7


def test_branches_and_one_turn_of_an_open_loop():
    def choose(a, b):
        return jax.lax.cond(a[0, 0] > 0, lambda: a @ b, lambda: a @ b + 1)

    assert count(choose, (3, 5), (5, 7)) == 2 * 3 * 5 * 7

    def until(a, b):
        return jax.lax.while_loop(lambda x: x[0, 0] < 9, lambda x: x @ b, a)

    assert count(until, (3, 5), (5, 5)) == 3 * 5 * 5


def test_of_several_platforms_the_work_for_any_counts():
    def run(x):
        tpu, default = (lambda x: x @ x @ x), (lambda x: x @ x)
        return jax.lax.platform_dependent(x, tpu=tpu, default=default)

    assert count(run, (4, 4)) == 4**3
