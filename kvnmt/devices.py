# SPDX-License-Identifier: Apache-2.0
"""Which devices share the work: a mesh with one axis, rows split over it."""

import contextlib
import os

import jax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from kvnmt.errors import UserError
from kvnmt.typing import PyTree

MOST_CORES = 16  # a batch of 64 gives each four rows


def use_cores() -> None:
    """Makes every core of a CPU a device, for work whose rows do not wait for others.

    Two searches on a core each are faster than one on two cores. Where JAX is in use
    already, or was told a number (``JAX_NUM_CPU_DEVICES``), nothing is changed.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    if jax.config.jax_num_cpu_devices < 1:  # pyright: ignore
        with contextlib.suppress(RuntimeError):
            jax.config.update("jax_num_cpu_devices", min(cores, MOST_CORES))


def data_mesh() -> Mesh:
    """A mesh of all devices with one axis, ``data``."""
    return jax.make_mesh((jax.device_count(),), ("data",), (AxisType.Auto,))


def check_rows(mesh: Mesh, batch_size: int) -> None:
    """Refuses a batch size that the devices cannot share.

    Raises:
        UserError: The batch size is no multiple of the number of devices.
    """
    if batch_size % mesh.size:
        raise UserError(
            f"a batch of {batch_size} sentences cannot be split evenly over "
            f"{mesh.size} devices; choose a multiple of {mesh.size}."
        )


def replicate(tree: PyTree, mesh: Mesh) -> PyTree:
    """Puts a copy of every array on every device."""
    return jax.device_put(tree, NamedSharding(mesh, PartitionSpec()))


def split_rows(tree: PyTree, mesh: Mesh) -> PyTree:
    """Sends every device its rows; a copy of all where they do not divide evenly."""
    by_rows = NamedSharding(mesh, PartitionSpec("data"))
    copies = NamedSharding(mesh, PartitionSpec())

    def put(leaf: jax.typing.ArrayLike) -> jax.Array:
        even = jax.numpy.shape(leaf)[0] % mesh.size == 0
        return jax.device_put(leaf, by_rows if even else copies)

    return jax.tree.map(put, tree)
