# SPDX-License-Identifier: Apache-2.0
"""A trace of some steps, by JAX's profiler: which kernels take how long."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import jax

from kvnmt import devices
from kvnmt.typing import PyTree

SKIPPED = 20  # steps of a start before those that are traced: some compile


class Profile:
    """Traces so many steps of one start, once the first ones are done."""

    def __init__(self, folder: Path, steps: int, tell: Callable[[str], None]):
        """Nothing is traced yet.

        Args:
            folder: Where the trace is written.
            steps: How many; 0: none.
            tell: Prints a line.
        """
        self._folder, self._steps, self._tell = folder, steps, tell
        self._sent, self._traces = 0, False

    def sent(self, step: int, arrays: PyTree) -> None:
        """Notes that a step was sent off.

        Args:
            step: Its number, from 1.
            arrays: What it gives; the last one that is traced is waited for.
        """
        self._sent += 1
        if self._sent == SKIPPED and self._steps:
            jax.block_until_ready(arrays)
            jax.profiler.start_trace(self._folder)
            self._traces = True
        elif self._traces and self._sent == SKIPPED + self._steps:
            jax.block_until_ready(arrays)
            self.close()
            first = step - self._steps + 1
            self._tell(f"a trace of steps {first:,} to {step:,} is in '{self._folder}'")

    def close(self) -> None:
        """Ends a trace that is under way."""
        if self._traces:
            self._traces = False
            jax.profiler.stop_trace()


@contextmanager
def profiling(
    folder: Path, steps: int, tell: Callable[[str], None]
) -> Iterator[Profile]:
    """What traces, in the first process alone; a trace ends with the training."""
    profile = Profile(folder, steps if devices.part()[0] == 0 else 0, tell)
    try:
        yield profile
    finally:
        profile.close()
