# SPDX-License-Identifier: Apache-2.0
"""The matrix peak is measured by a product that takes long enough."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvnmt.benchmark.peak import ENOUGH, product


@pytest.mark.parametrize("fast, size", [(0, 8), (1, 16), (2, 32), (9, 32)])
def test_the_smallest_product_that_takes_long_enough_is_taken(fast, size):
    """By a clock: the first so many products take no time."""
    ticks = itertools.chain([0.0] * 8 * fast, itertools.count(0, 2 * ENOUGH))
    chosen = product("float32", (8, 16, 32), clock=lambda: next(ticks))
    assert chosen.size == size


@pytest.mark.parametrize("precision", ["highest", None])
def test_its_precision_is_that_of_the_steps(precision, monkeypatch):
    """On a device that multiplies in fewer bits by itself."""
    told = []
    monkeypatch.setattr(jnp, "matmul", lambda a, b, precision: told.append(precision))
    product("float32", (8,), precision=precision).lane.run(None)
    assert told == [precision]


def test_operations_are_those_of_all_devices():
    chosen = product("float32", (8,))
    result = np.asarray(chosen.lane.run(None))
    rows = 8 * jax.device_count()
    assert result.shape == (rows, 8)
    assert chosen.flops == 2 * rows * 8 * 8
    assert np.std(result) > 1  # of random numbers, not of zeros
