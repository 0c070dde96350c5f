# SPDX-License-Identifier: Apache-2.0
"""A digest of arrays that does not depend on where they lie.

Every word of 32 bits is mixed and multiplied by an odd number of its place, and all
are summed modulo 2^32. The sum is one of integers, so any order of adding gives the
same, on any devices; a single word that differs always changes it.
"""

import hashlib
import math

import jax
import jax.numpy as jnp
import numpy as np

from kvnmt.trees import by_name
from kvnmt.typing import Array, PyTree


def fingerprint(tree: PyTree) -> str:
    """Returns the digest of a tree of arrays, their places in it included."""
    leaves = by_name(tree)
    sums = jax.device_get(_sums(list(leaves.values())))
    seal = hashlib.blake2b(digest_size=16)
    for (name, leaf), total in zip(leaves.items(), sums):
        seal.update(f"{name} {leaf.shape} {leaf.dtype} {int(total)}\n".encode())
    return seal.hexdigest()


@jax.jit
def _sums(leaves: list[Array]) -> list[Array]:
    return [_sum(leaf) for leaf in leaves]


def _sum(leaf: Array) -> Array:
    bits = jax.lax.bitcast_convert_type(
        leaf, {1: jnp.uint8, 2: jnp.uint16}.get(leaf.dtype.itemsize, jnp.uint32)
    ).astype(jnp.uint32)
    # The place is counted along the axes, so that no sharded axis is reshaped.
    place = jnp.zeros((), jnp.uint32)
    for axis, stride in enumerate(_strides(bits.shape)):
        count = jax.lax.broadcasted_iota(jnp.uint32, bits.shape, axis)
        place = place + count * np.uint32(stride % 2**32)
    mixed = (bits ^ (bits >> 16)) * np.uint32(0x7FEB352D)
    mixed = mixed ^ (mixed >> 15)
    return jnp.sum(mixed * (2 * place + 1), dtype=jnp.uint32)


def _strides(shape: tuple[int, ...]) -> list[int]:
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
