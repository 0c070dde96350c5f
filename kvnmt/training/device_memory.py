# SPDX-License-Identifier: Apache-2.0
"""What the largest batch needs of a device's memory, known before the first step."""

import os
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from kvnmt.data.plan import Plan
from kvnmt.errors import UserError
from kvnmt.training.step import TrainState, TrainStep

GIB = 2**30


class Need(NamedTuple):
    """Of the step on the largest batch, on one device."""

    rows: int
    source: int  # padded length
    target: int
    bytes: int
    available: int | None  # None: the device does not say

    def __str__(self) -> str:
        """Returns the line that people read."""
        of = f" of {self.available / GIB:.1f} GiB" if self.available else ""
        return (
            f"largest batch: {self.rows} pairs of {self.source} and {self.target} "
            f"tokens, {self.bytes / GIB:.2f} GiB{of} on a device"
        )


def check(
    step: TrainStep,
    state: TrainState,
    plan: Plan,
    mesh: Mesh,
    available: int | None,
) -> Need | None:
    """Compiles the step for the largest batches and asks what it needs.

    The programs are kept: training does not compile them again.

    Args:
        step: Of `make_train_step`.
        state: What it is called with.
        plan: Has the shapes.
        mesh: Of the devices.
        available: Bytes that a device has; None: nobody knows.

    Returns:
        The need; None where the compiler does not tell.

    Raises:
        UserError: The device has less; the remedies are named.
    """
    needs = []
    for rows, S, T in largest_batches(plan):
        program = _compile(step, state, rows, S, T, mesh)
        size = program_bytes(program)
        if size is not None:
            needs.append(Need(rows, S, T, size, available))
    need = max(needs, key=lambda need: need.bytes, default=None)
    if need and available is not None and need.bytes > available:
        raise too_large(str(need))
    return need


def largest_batches(plan: Plan) -> set[tuple[int, int, int]]:
    """Rows, source and target length of the batches of which one needs most.

    They are the largest by attention, by logits and by tokens.
    """
    rows, (S, T) = plan.rows, plan.shapes.T
    places = {int(load.argmax()) for load in (rows * S * T, rows * T, rows * (S + T))}
    return {(int(rows[i]), int(S[i]), int(T[i])) for i in places}


def _compile(
    step: TrainStep,
    state: TrainState,
    rows: int,
    S: int,
    T: int,
    mesh: Mesh,
) -> jax.stages.Compiled:
    by_rows = NamedSharding(mesh, PartitionSpec("data"))
    source, target = (
        jax.ShapeDtypeStruct((rows, length), jnp.int32, sharding=by_rows)
        for length in (S, T)
    )
    try:
        return step.lower(state, source, target).compile()
    except jax.errors.JaxRuntimeError as error:
        raise explained(error, rows, S, T) from None


def program_bytes(program: jax.stages.Compiled) -> int | None:
    """What a program needs at once on a device; None: the compiler does not tell."""
    sizes: Any = program.memory_analysis()
    if sizes is None:
        return None
    return (
        sizes.temp_size_in_bytes
        + sizes.argument_size_in_bytes
        + sizes.output_size_in_bytes
        - sizes.alias_size_in_bytes
    )


def available() -> int | None:
    """Bytes that one device has for this process; None: it does not say."""
    device = jax.local_devices()[0]
    stats = device.memory_stats()
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"]
    if device.platform == "cpu" and "SC_PHYS_PAGES" in os.sysconf_names:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return memory // jax.local_device_count()
    return None


def too_large(what: str) -> UserError:
    """Builds the error for a batch that does not fit."""
    return UserError(
        f"{what}, which is more than there is; set a smaller --training.batch-size or "
        "--training.batch-tokens, or, to compute the same batch with less, "
        "--training.accumulate 2, --training.remat 8 or --training.dtype "
        "bfloat16."
    )


def explained(error: Exception, rows: int, S: int, T: int) -> Exception:
    """Returns the error to raise: one for people where memory did not suffice."""
    if "RESOURCE_EXHAUSTED" not in str(error):
        return error
    return too_large(f"a batch of {rows} pairs of {S} and {T} tokens does not fit")
