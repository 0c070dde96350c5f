# SPDX-License-Identifier: Apache-2.0
"""Which devices share the work: a mesh with one axis, rows split over it."""

import contextlib
import os

import jax
import numpy as np
from jax.experimental import multihost_utils
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


def join(
    coordinator: str | None = None,
    processes: int | None = None,
    process: int | None = None,
) -> None:
    """Joins the processes that train together; before anything else is done with JAX.

    Args:
        coordinator: ``host:port`` of the first process; None: found, as all else, from
            the environment of SLURM, Open MPI or a TPU pod.
        processes: How many there are.
        process: Which one this is, from 0.

    Raises:
        UserError: They cannot be found, or do not all come.
    """
    try:
        jax.distributed.initialize(coordinator, processes, process)
    except (ValueError, RuntimeError) as error:
        reason = (str(error).splitlines() or ["?"])[0].rstrip(".")
        raise UserError(
            f"the processes cannot be joined ({reason}); give --coordinator HOST:PORT, "
            "--processes and --process, or start them by SLURM or on a TPU pod."
        ) from None


def part() -> tuple[int, int]:
    """Which slice of the rows of every batch is this process's, and of how many."""
    return jax.process_index(), jax.process_count()


def meet(place: str) -> None:
    """Waits until all processes are at this place."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(place)


def data_mesh() -> Mesh:
    """A mesh of all devices of all processes with one axis, ``data``."""
    return jax.make_mesh((jax.device_count(),), ("data",), (AxisType.Auto,))


def own_mesh() -> Mesh:
    """A mesh of the devices of this process, for work that it does alone."""
    devices = jax.local_devices()
    axes = (AxisType.Auto,)
    return jax.make_mesh((len(devices),), ("data",), axes, devices=devices)


def own(tree: PyTree) -> PyTree:
    """The copies on this process's first device of arrays that every device has."""
    if jax.process_count() == 1:
        return tree
    return jax.tree.map(lambda leaf: leaf.addressable_data(0), tree)


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
    """Sends every device its rows; a copy of all where they do not divide evenly.

    Args:
        tree: Arrays; where the mesh has devices of several processes, each gives the
            rows of its own.
        mesh: Of `data_mesh` or `own_mesh`.
    """
    by_rows = NamedSharding(mesh, PartitionSpec("data"))
    copies = NamedSharding(mesh, PartitionSpec())

    def put(leaf: jax.typing.ArrayLike) -> jax.Array:
        if mesh.is_multi_process:
            return jax.make_array_from_process_local_data(by_rows, np.asarray(leaf))
        even = jax.numpy.shape(leaf)[0] % mesh.size == 0
        return jax.device_put(leaf, by_rows if even else copies)

    return jax.tree.map(put, tree)
