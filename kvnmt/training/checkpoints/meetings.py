# SPDX-License-Identifier: Apache-2.0
"""Where processes that write a checkpoint together wait for each other.

Orbax waits up to twenty minutes for a process that could not write its part. Here that
process says so, and the others stop waiting at once. They do so in the background, so
that the devices, which train on, have no part in it.
"""

import itertools
import time
from functools import cached_property

import jax

from kvnmt.companions import LOOK, store

_numbers = itertools.count()  # the same in all processes, which do the same


class Meetings:
    """The meetings of one writer, in the order in which all processes have them."""

    def __init__(self) -> None:
        """Has met nobody."""
        self._met = 0

    def __call__(self, *, key: str, timeout_ms: int) -> None:
        """Waits until all processes are here; what orbax calls a barrier.

        Raises:
            RuntimeError: Another process has failed.
            TimeoutError: They do not come.
        """
        shared, end = store(), time.monotonic() + timeout_ms / 1000
        self._met += 1
        place = f"{self._name}/{self._met}"
        shared.key_value_set(f"{place}/{jax.process_index()}", key)
        while len(shared.key_value_dir_get(place)) < jax.process_count():
            if shared.key_value_dir_get(self._failures):
                raise RuntimeError("another process could not write its part")
            if time.monotonic() > end:
                raise TimeoutError("another process does not come")
            time.sleep(LOOK)

    def fail(self) -> None:
        """Tells all that this process will not come."""
        if jax.process_count() > 1:
            name = f"{self._failures}/{jax.process_index()}"
            store().key_value_set(name, "", allow_overwrite=True)

    @cached_property
    def _name(self) -> str:
        """Taken at the first use: a process may read what others do not."""
        return f"kvnmt/meetings/{next(_numbers)}"

    @property
    def _failures(self) -> str:
        return f"{self._name}/failed"
