# SPDX-License-Identifier: Apache-2.0
"""The matrix peak of the devices: the speed of the fastest large product measured.

It is measured in the same rounds as the systems, in the type that they compute with,
and its rows are split over all devices. The speed of a system as a share of this peak
says how much of the hardware it uses; machines differ threefold, shares much less.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp

from kvnmt import devices
from kvnmt.benchmark.rounds import Lane
from kvnmt.training.step_options import Dtype
from kvnmt.typing import Array

SIZES = (256, 512, 1024, 2048, 4096, 8192, 16384)
ENOUGH = 0.02  # seconds: starting the product then counts for little


@dataclass(frozen=True)
class Product:
    """A product of square matrices, the left one once for each device."""

    lane: Lane
    flops: float
    size: int


def product(
    dtype: Dtype,
    sizes: tuple[int, ...] = SIZES,
    clock: Callable[[], float] = time.perf_counter,
    precision: str | None = None,
) -> Product:
    """The smallest product that takes long enough to be measured well.

    Args:
        dtype: Of the matrices.
        sizes: That are tried, in this order; the last is taken if none is enough.
        clock: Seconds.
        precision: Of JAX; None: a device multiplies float32 in as many bits as it does
            by itself.
    """
    for size in sizes[:-1]:
        candidate = _product(dtype, size, precision)
        # The best of three, after one that compiles: a pause of a busy device is none.
        seconds = [_seconds(candidate.lane, clock) for _ in range(4)][1:]
        if min(seconds) >= ENOUGH:
            return candidate
    return _product(dtype, sizes[-1], precision)


def flops_of(size: int) -> float:
    """Operations of a product of two square matrices."""
    return 2.0 * size**3


def _seconds(lane: Lane, clock: Callable[[], float]) -> float:
    start = clock()
    jax.block_until_ready(lane.run(None))
    return clock() - start


def _product(dtype: Dtype, size: int, precision: str | None) -> Product:
    mesh = devices.data_mesh()
    rows = size * devices.rows(mesh)
    # Random numbers: a GPU multiplies zeros and ones at less power, thus faster.
    draw = partial(jax.random.normal, dtype=dtype)
    left = devices.split_rows(draw(jax.random.key(1), (rows, size)), mesh)
    right = devices.replicate(draw(jax.random.key(2), (size, size)), mesh)
    multiply = jax.jit(partial(jnp.matmul, precision=precision))

    def run(last: Array | None) -> Array:
        del last  # its memory is free before the next one is made
        return multiply(left, right)

    return Product(Lane(run), flops_of(size) * devices.rows(mesh), size)
