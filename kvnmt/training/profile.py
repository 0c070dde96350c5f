# SPDX-License-Identifier: Apache-2.0
"""A trace of some steps, by JAX's profiler: which kernels take how long."""

from collections.abc import Callable
from pathlib import Path

import jax

from kvnmt.errors import first_line
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

    def sent(self, arrays: PyTree) -> None:
        """Notes that a step was sent off, which gives these arrays."""
        self._sent += 1
        if self._sent == SKIPPED and self._steps:
            jax.block_until_ready(arrays)
            self._traces = self._tried(lambda: jax.profiler.start_trace(self._folder))
        elif self._traces and self._sent == SKIPPED + self._steps:
            jax.block_until_ready(arrays)
            self._stop()

    def close(self) -> None:
        """Ends a trace that is under way, and says if there was none."""
        if self._traces:
            self._stop()
        elif self._steps and self._sent < SKIPPED:  # or it was told why not
            self._tell(
                f"no step was traced: this start made {self._sent}, and the first "
                f"{SKIPPED} are left out"
            )

    def _stop(self) -> None:
        """Writes the trace."""
        self._traces, traced = False, self._sent - SKIPPED
        if self._tried(jax.profiler.stop_trace):
            self._tell(f"a trace of {traced} steps is in '{self._folder}'")

    def _tried(self, act: Callable[[], object]) -> bool:
        """Whether it could be done; training goes on where it could not."""
        try:
            act()
        except (OSError, RuntimeError) as error:
            self._tell(f"no trace can be made: {first_line(error)}")
            return False
        return True
