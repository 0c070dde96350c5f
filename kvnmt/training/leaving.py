# SPDX-License-Identifier: Apache-2.0
"""Leaving when a signal asks for it, and saving when it is time to.

Several processes do so after the same step, though a signal comes to one of them and
their clocks differ.
"""

import time
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from signal import SIGTERM
from signal import Signals as SignalName

import jax
import numpy as np
from jax.sharding import Mesh

from kvnmt import devices
from kvnmt.errors import StoppedError
from kvnmt.training.signals import Signals

NOTHING, SAVE, LEAVE = range(3)  # what a process wants; all do the most of it


class Leaving:
    """Whether a signal asked training to leave, or it is time to save."""

    def __init__(self, signals: Signals, mesh: Mesh, every: float = 0.0):
        """Nobody has asked yet.

        Args:
            signals: Which are handled, while they are open.
            mesh: Of the devices of all processes.
            every: Seconds after which it is time to save; 0: never.
        """
        self._signals, self._mesh, self._every = signals, mesh, every
        self._vote: jax.Array | None = None  # of all processes, not yet read
        self._agreed, self._saved = NOTHING, time.monotonic()
        # Of the slowest process, as of the vote that was read; 0: not known.
        self.step_seconds = 0.0
        self._is_done = False  # whether what the vote may say of saving was done since

    @property
    def asked_alone(self) -> bool:
        """Whether a signal came and no other process has to know of it."""
        return bool(self._signals.asked) and not self._mesh.is_multi_process

    @property
    def decided(self) -> bool:
        """Whether this process, and so all, are to leave now."""
        return self._agreed == LEAVE or self.asked_alone

    @property
    def save_due(self) -> bool:
        """Whether this process, and so all, are to save now."""
        return self._agreed == SAVE

    def agree(self, step_seconds: float = 0.0) -> bool:
        """Whether to leave or to save; several processes learn that a call later.

        Args:
            step_seconds: How long a step of this process takes.
        """
        wanted = LEAVE if self._signals.asked else SAVE if self._is_late else NOTHING
        self.step_seconds = step_seconds
        if self._mesh.is_multi_process:
            before, self._vote = self._vote, _vote(wanted, step_seconds, self._mesh)
            most = (NOTHING, 0.0) if before is None else np.asarray(before)
            wanted, self.step_seconds = int(most[0]), float(most[1])
            if wanted == SAVE and self._is_done:
                wanted = NOTHING
        self._agreed, self._is_done = wanted, False
        return wanted > NOTHING

    def saved(self) -> None:
        """Lets the time to the next save begin; what was asked for before is done."""
        self._saved, self._is_done = time.monotonic(), True
        if self.save_due:
            self._agreed = NOTHING

    @property
    def _is_late(self) -> bool:
        return 0 < self._every <= time.monotonic() - self._saved

    def breaking(self) -> AbstractContextManager[None]:
        """Within it a signal raises KeyboardInterrupt.

        Several processes finish their work instead: others would wait for ever.
        """
        if self._mesh.is_multi_process:
            return nullcontext()
        return self._signals.breaking()

    def stopped(self, step: int) -> StoppedError:
        """Builds what ends the run after a step, which is saved."""
        number = self._signals.asked or SIGTERM
        kept = f"after step {step}, which is saved" if step else "before the first step"
        name = SignalName(number).name
        how = "go on with --resume, from Python with resume=True"
        return StoppedError(f"stopped by {name} {kept}; {how}.", number)


def _vote(wanted: int, step_seconds: float, mesh: Mesh) -> jax.Array:
    """The most that any process wants, and the seconds of the slowest one's step.

    All processes know them once the device gets to it.
    """
    own = np.array([[wanted, step_seconds]], np.float32)
    of_each = np.repeat(own, devices.rows(mesh) // jax.process_count(), axis=0)
    return _most(devices.split_rows(of_each, mesh))


_most = jax.jit(partial(jax.numpy.max, axis=0))
