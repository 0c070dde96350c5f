# SPDX-License-Identifier: Apache-2.0
"""What the largest batch needs of a device's memory, known before the first step."""

import os
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from kvnmt.data.plan import Plan
from kvnmt.errors import UserError
from kvnmt.training.step import TrainState

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
    step: jax.stages.Wrapped, state: TrainState, plan: Plan, mesh: Mesh
) -> Need | None:
    """Compiles the step for the largest batches and asks what it needs.

    The programs are kept: training does not compile them again.

    Args:
        step: Of `make_train_step`.
        state: What it is called with.
        plan: Has the shapes.
        mesh: Of the devices.

    Returns:
        The need; None where the compiler does not tell.

    Raises:
        UserError: The device has less; the remedies are named.
    """
    needs = [_need(step, state, *batch, mesh) for batch in _largest(plan)]
    found = [need for need in needs if need is not None]
    need = max(found, key=lambda one: one.bytes, default=None)
    if need and need.available is not None and need.bytes > need.available:
        raise too_large(str(need))
    return need


def _largest(plan: Plan) -> set[tuple[int, int, int]]:
    """The batches of which one needs most: by attention, logits or tokens."""
    rows, (S, T) = plan.rows, plan.shapes.T
    places = {int(load.argmax()) for load in (rows * S * T, rows * T, rows * (S + T))}
    return {(int(rows[i]), int(S[i]), int(T[i])) for i in places}


def _need(
    step: jax.stages.Wrapped,
    state: TrainState,
    rows: int,
    S: int,
    T: int,
    mesh: Mesh,
) -> Need | None:
    by_rows = NamedSharding(mesh, PartitionSpec("data"))
    batch = [
        jax.ShapeDtypeStruct((rows, length), jnp.int32, sharding=by_rows)
        for length in (S, T)
    ]
    try:
        found = step.lower(state, *batch).compile().memory_analysis()
    except jax.errors.JaxRuntimeError as error:
        raise explained(error, rows, S, T) from None
    if found is None:
        return None
    used = (
        found.temp_size_in_bytes
        + found.argument_size_in_bytes
        + found.output_size_in_bytes
        - found.alias_size_in_bytes
    )
    return Need(rows, S, T, used, available())


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
        "--training.accumulate 2, --training.remat chunk:8 or --training.dtype "
        "bfloat16."
    )


def explained(error: Exception, rows: int, S: int, T: int) -> Exception:
    """Returns the error to raise: one for people where memory did not suffice."""
    if "RESOURCE_EXHAUSTED" not in str(error):
        return error
    return too_large(f"a batch of {rows} pairs of {S} and {T} tokens does not fit")
