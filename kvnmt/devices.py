# SPDX-License-Identifier: Apache-2.0
"""Which devices share the work: a mesh, rows split over its data axis."""

import contextlib
import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from kvnmt.errors import OptionError, UserError, counted, first_line, lacks_device
from kvnmt.machine import cores
from kvnmt.typing import PyTree

T = TypeVar("T")
MOST_CORES = 16  # a batch of 64 gives each four rows
FORCED = "xla_force_host_platform_device_count"


def use_cores() -> None:
    """Makes every core of a CPU a device, for work whose rows do not wait for others.

    Two searches on a core each are faster than one on two cores. Where JAX is in use
    already, or was told a number (``JAX_NUM_CPU_DEVICES``, or `FORCED` of XLA_FLAGS),
    nothing is changed.
    """
    told = FORCED in os.environ.get("XLA_FLAGS", "")
    if jax.config.jax_num_cpu_devices < 1 and not told:  # pyright: ignore
        with contextlib.suppress(RuntimeError):
            jax.config.update("jax_num_cpu_devices", min(cores(), MOST_CORES))


def check_any(failure: Exception) -> None:
    """Makes sure that work did not fail for want of a device.

    Raises:
        UserError: JAX finds none of the kind that it was told, or cannot start one.
    """
    if lacks_device(failure) and not jax.config.jax_platforms:  # pyright: ignore
        # Asked once more JAX would give the processor, and say nothing.
        why = first_line(failure).partition(" (you may")[0]
        raise UserError(
            f"a device cannot be started ({why}); mend that, or set JAX_PLATFORMS=cpu "
            "to work on the processor."
        ) from None
    try:
        jax.devices()
    except (RuntimeError, AssertionError):  # the latter of a kind without its package
        raise UserError(
            f"JAX finds no device of the kind '{jax.config.jax_platforms}'; unset "  # pyright: ignore
            "JAX_PLATFORMS, or install what such a device needs, as by pip install "
            '".[gpu]".'
        ) from None


def told() -> str:
    """How many devices there are, and of which kind, for people."""
    processes = jax.process_count()
    among = f" in {processes} processes" if processes > 1 else ""
    return f"{jax.device_count()} x {jax.devices()[0].device_kind}{among}"


def part() -> tuple[int, int]:
    """Which slice of the rows of every batch is this process's, and of how many."""
    return jax.process_index(), jax.process_count()


def meet(place: str) -> None:
    """Waits until all processes are at this place."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(place)


def agree(number: int) -> int:
    """Gives the first process's number to all processes."""
    if jax.process_count() == 1:
        return number
    return int(multihost_utils.broadcast_one_to_all(np.int64(number)))


def first_does(work: Callable[[], T]) -> T | None:
    """Lets the first process do something alone; if it fails, all of them fail.

    Returns:
        What the work gives; None on the others.

    Raises:
        Exception: What the work raised; on the others a UserError, that it did.
    """
    result = failure = None
    if part()[0] == 0:
        try:
            result = work()
        except Exception as error:  # of any kind: the others must not wait for it
            failure = error
    failed = agree(failure is not None)
    if failure is not None:
        raise failure
    if failed:
        raise UserError("the first process cannot go on; it says why.")
    return result


def data_mesh(model: int = 1) -> Mesh:
    """A mesh of all devices of all processes with the axes ``data`` and ``model``.

    Args:
        model: Devices that share arrays which are split by the words of a vocabulary.

    Raises:
        UserError: The devices of a process cannot be grouped so, or another process
            has more of them.
    """
    among = jax.devices()
    own = Counter(one.process_index for one in among)
    (most, many), (fewest, few) = own.most_common()[0], own.most_common()[-1]
    if few < many:
        raise UserError(
            f"process {fewest} has {counted(few, 'device')} and process {most} has "
            f"{many}, and all must have equally many; let CUDA_VISIBLE_DEVICES show "
            f"{few} to each."
        )
    if few % model:
        raise OptionError(
            f"{{0}} is {model} but must divide the {counted(few, 'device')} of a "
            "process; give 1, or another that does, or start one process for each "
            "machine.",
            "training.model_axis",
        )
    return mesh_of(among, model)


def mesh_of(among: Sequence[Any], model: int) -> Mesh:
    """A mesh of these devices, whose number ``model`` divides."""
    # By process, so that each has whole rows of the mesh.
    order = sorted(among, key=lambda one: (one.process_index, one.id))
    grid = np.array(order).reshape(-1, model)
    return Mesh(grid, ("data", "model"), axis_types=(AxisType.Auto,) * 2)


def rows(mesh: Mesh) -> int:
    """How many devices the rows of a batch are split over."""
    return mesh.shape["data"]


def own_mesh() -> Mesh:
    """A mesh of the devices of this process, for work that it does alone."""
    devices = jax.local_devices()
    axes = (AxisType.Auto,)
    return jax.make_mesh((len(devices),), ("data",), axes, devices=devices)


def gather(tree: PyTree, mesh: Mesh) -> PyTree:
    """Copies on every device of what is split over the model axis of a mesh."""
    if mesh.shape["model"] == 1:
        return tree
    return _copying(NamedSharding(mesh, PartitionSpec()))(tree)


def own(tree: PyTree) -> PyTree:
    """The copies on this process's first device of arrays that every device has."""
    if jax.process_count() == 1:
        return tree
    return jax.tree.map(lambda leaf: leaf.addressable_data(0), tree)


def check_rows(batch_size: int, shares: int, what: str = "devices") -> None:
    """Refuses a batch size that cannot be shared evenly.

    Raises:
        UserError: The batch size is no multiple of the number of shares.
    """
    if batch_size % shares:
        raise UserError(
            f"a batch of {batch_size} sentences cannot be split evenly over "
            f"{shares} {what}; choose a multiple of {shares}."
        )


def replicate(tree: PyTree, mesh: Mesh) -> PyTree:
    """Puts a copy of every array on every device."""
    return jax.device_put(tree, NamedSharding(mesh, PartitionSpec()))


def one_behind(sent: Iterable[T]) -> Iterator[T]:
    """Yields each result after the next is sent off, so that devices need not wait."""
    waiting = deque[T]()
    for result in sent:
        waiting.append(result)
        if len(waiting) > 1:
            yield waiting.popleft()
    yield from waiting


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
        even = jax.numpy.shape(leaf)[0] % rows(mesh) == 0
        return jax.device_put(leaf, by_rows if even else copies)

    return jax.tree.map(put, tree)


@lru_cache(maxsize=4)
def _copying(copies: NamedSharding) -> jax.stages.Wrapped:
    """The same function each time, so that it compiles once."""
    return jax.jit(lambda leaves: leaves, out_shardings=copies)
