# SPDX-License-Identifier: Apache-2.0
"""Leaving when a signal asks for it, by all processes after the same step."""

from contextlib import AbstractContextManager, nullcontext
from signal import SIGTERM
from signal import Signals as SignalName

import jax
import numpy as np
from jax.sharding import Mesh

from kvnmt import devices
from kvnmt.errors import StoppedError
from kvnmt.training.signals import Signals


class Leaving:
    """Whether a signal asked training to leave."""

    def __init__(self, signals: Signals, mesh: Mesh):
        """Nobody has asked yet.

        Args:
            signals: Which are handled, while they are open.
            mesh: Of the devices of all processes.
        """
        self._signals, self._mesh = signals, mesh
        self._vote: jax.Array | None = None  # of all processes, not yet read
        self._agreed = False

    @property
    def asked_alone(self) -> bool:
        """Whether a signal came and no other process has to know of it."""
        return bool(self._signals.asked) and not self._mesh.is_multi_process

    @property
    def decided(self) -> bool:
        """Whether this process, and so all, are to leave now."""
        return self._agreed or self.asked_alone

    def agree(self) -> bool:
        """Asks all processes and says if they leave, which they learn a call later."""
        if not self._mesh.is_multi_process:
            return self.asked_alone
        before = self._vote
        self._vote = _vote(bool(self._signals.asked), self._mesh)
        self._agreed = before is not None and bool(before)
        return self._agreed

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


def _vote(asked: bool, mesh: Mesh) -> jax.Array:
    """Whether any process asks; known to all of them once the device gets to it."""
    own = np.full(devices.rows(mesh) // jax.process_count(), asked)
    return _any(devices.split_rows(own, mesh))


_any = jax.jit(jax.numpy.any)
