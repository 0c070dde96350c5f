# SPDX-License-Identifier: Apache-2.0
"""What the largest batch needs of a device's memory, known before any is trained on."""

import math
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from kvnmt.data.plan import Plan
from kvnmt.errors import OptionError, UserError, short_of_memory
from kvnmt.machine import memory_limit
from kvnmt.training.ahead import Shape, StepAhead, shape_at
from kvnmt.typing import PyTree

GIB = 2**30
TRAINING, VALIDATION = "largest batch", "largest batch of validation"


class Need(NamedTuple):
    """Of the step on the largest batch, on one device."""

    rows: int
    source: int  # padded length
    target: int
    bytes: int
    available: int | None  # None: the device does not say
    what: str

    def __str__(self) -> str:
        """Returns the line that people read."""
        of = f" of {self.available / GIB:.1f} GiB" if self.available else ""
        return (
            f"{self.what}: {self.rows} pairs of {self.source} and {self.target} "
            f"tokens, {self.bytes / GIB:.2f} GiB{of} on a device"
        )


def check(
    step: StepAhead, plan: Plan, available: int | None, what: str = TRAINING
) -> Need | None:
    """Has the step compiled for the largest batches and asks what it needs.

    Args:
        step: What is called later.
        plan: Has the shapes.
        available: Bytes that a device has; None: nobody knows.
        what: Which batch: `TRAINING` or `VALIDATION`.

    Returns:
        The need; None where the compiler does not tell.

    Raises:
        UserError: The device has less; the remedies are named.
    """
    needs, largest = [], largest_batches(plan)
    step.begin(largest)
    for shape in largest:
        try:
            size = program_bytes(step.program(shape))
        except jax.errors.JaxRuntimeError as error:
            raise explained(error, *shape, what) from None
        if size is not None:
            needs.append(Need(*shape, size, available, what))
    need = max(needs, key=lambda need: need.bytes, default=None)
    if need and available is not None and need.bytes > available:
        raise too_large(str(need), what)
    return need


def check_whole(params: PyTree, available: int, mesh: Mesh) -> None:
    """Makes sure that there is room for split arrays as the search has them, whole.

    Args:
        params: Those that validation searches with, or their shapes.
        available: Bytes that a device has for them, split and whole.
        mesh: What they are split over.

    Raises:
        UserError: There is none.
    """
    if mesh.shape["model"] == 1:
        return
    whole = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(params))
    if whole + bytes_of(params) > available:
        raise OptionError(
            f"the search of validation has all arrays whole, {whole / GIB:.2f} GiB on "
            "each device, which is more than there is, however {0} splits them for "
            "training; take smaller vocabularies.",
            "training.model_axis",
        )


def largest_batches(plan: Plan) -> list[Shape]:
    """Rows, source and target length of the batches of which one needs most.

    They are the largest by attention, by logits and by tokens.
    """
    rows, (S, T) = plan.rows, plan.shapes.T
    loads = (rows * S * T, rows * T, rows * (S + T))
    # Of equal ones the largest otherwise, which others may be padded to at first.
    places = {int(np.lexsort((S + T, load))[-1]) for load in loads}
    return [shape_at(plan, place) for place in places]


def program_bytes(program: jax.stages.Compiled) -> int | None:
    """What a program needs at once on a device, as `kvnmt compile` adds it up.

    None: the compiler does not tell.
    """
    sizes: Any = program.memory_analysis()
    if sizes is None:
        return None
    return (
        sizes.temp_size_in_bytes
        + sizes.argument_size_in_bytes
        + max(sizes.output_size_in_bytes - sizes.alias_size_in_bytes, 0)
        + sizes.generated_code_size_in_bytes
    )


def bytes_of(arrays: PyTree) -> int:
    """Bytes that arrays, or what will be some, have on one device."""
    # By shapes: JAX does not give the shards of a process that has one device of many.
    leaves = jax.tree.leaves(arrays)
    shapes = (leaf.sharding.shard_shape(leaf.shape) for leaf in leaves)
    return sum(
        math.prod(shape) * leaf.dtype.itemsize for shape, leaf in zip(shapes, leaves)
    )


def available() -> int | None:
    """Bytes that one device has for this process; None: it does not say."""
    device = jax.local_devices()[0]
    stats = device.memory_stats()
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"]
    memory = host_memory() if device.platform == "cpu" else None
    return None if memory is None else memory // jax.local_device_count()


def shortage(need: Need | None, held: int) -> str:
    """A warning where other programs leave less memory than there is; or nothing.

    Args:
        need: Of the largest batch.
        held: Bytes of it that each device holds already.
    """
    free = free_memory() if jax.default_backend() == "cpu" else None
    if need is None or free is None:
        return ""
    more = (need.bytes - held) * jax.local_device_count()
    if more <= free:
        return ""
    return (
        f"warning: {more / GIB:.2f} GiB more are needed and {free / GIB:.1f} GiB are "
        "free now, so that the system may end this process; end other programs, or "
        "take smaller batches"
    )


def free_memory(path: Path = Path("/proc/meminfo")) -> int | None:
    """Bytes that this machine has left, as Linux says; None: nobody says."""
    with suppress(OSError, ValueError, IndexError):
        for line in path.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    return None


def host_memory() -> int | None:
    """Bytes that this machine has for the process; None: it does not say."""
    if "SC_PHYS_PAGES" not in os.sysconf_names:
        return None
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = memory_limit()
    return memory if limit is None else min(memory, limit)


def too_large(problem: str, what: str = TRAINING) -> UserError:
    """Builds the error for a batch that does not fit."""
    names = ["batch_size", "batch_tokens", "accumulate", "remat", "dtype"]
    remedy = "set a smaller {0} or {1}, or, to compute the same batch with less, "
    remedy += "a greater {2}"
    # Validation has no gradient, for which things are kept, and computes in float32.
    if what == TRAINING:
        remedy += " (not with {1}, where each part has 8 rows or more)"
        remedy += ", {3} 8 (with a recurrent decoder) or {4} bfloat16"
    else:
        remedy += ", in whose parts validation is computed too"
    return OptionError(
        f"{problem}, which is more than there is; {remedy}.",
        *(f"training.{name}" for name in names),
    )


def explained(
    error: Exception, rows: int, S: int, T: int, what: str = TRAINING
) -> Exception:
    """Returns the error to raise: one for people where memory did not suffice."""
    if not short_of_memory(error):
        return error
    batch = what.removeprefix("largest ")
    pairs = f"{rows} pairs of {S} and {T} tokens"
    return too_large(f"a {batch} of {pairs} does not fit", what)
