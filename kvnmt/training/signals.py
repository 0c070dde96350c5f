# SPDX-License-Identifier: Apache-2.0
"""Signals: the first asks training to save and leave, the second ends it.

These are SIGTERM, SIGINT, SIGHUP, of a terminal that is closed, and SIGUSR1, which a
queue sends some time before it kills.

Python runs a signal's handler between two instructions of the main thread, which may
wait in a compiler for minutes. Python writes the number of a signal down at once,
however; a thread that reads it tells the user, and ends the process at the second.
What comes within a second of the first is no second: `timeout` and other programs send
one twice, to a process and to its group.
Where somebody types at Python, in a notebook say, the process is not ended, with all
that is in it: the second raises KeyboardInterrupt, once the main thread comes to it.
A signal that was ignored before stays so: a shell shields from Control-C what it runs
in the background. So does one that another program handles, of which Python is a part.
"""

import builtins
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from kvnmt.errors import LEAVING, STATUS_OF_SIGNALS

UNTOUCHED = signal.SIG_IGN, None  # ignored; handled by what runs this Python
ECHO = 1.0  # seconds after the first signal in which others are the same


def is_interactive() -> bool:
    """Whether somebody types at this Python: in a notebook, IPython or a shell."""
    return hasattr(builtins, "__IPYTHON__") or hasattr(sys, "ps1")


class Signals:
    """Handles them while it is open; does nothing outside of the main thread."""

    def __init__(self, tell: Callable[[str], None]):
        """Takes who is told of the first signal."""
        self.tell = tell
        self.asked = 0  # the number of the first signal; 0: none came
        self._breaks = False
        self._interactive = is_interactive()  # the thread may look much later
        self._handled, self._again = _Count(), False
        self._installed = threading.current_thread() is threading.main_thread()
        self._read = self._write = self._wakeup = -1  # file descriptors
        self._before: dict[signal.Signals, Any] = {}  # the handlers

    def __enter__(self) -> "Signals":
        """Installs the handlers."""
        if self._installed:
            self._read, self._write = os.pipe()
            os.set_blocking(self._write, False)
            self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
            self._before = {
                n: signal.signal(n, self._handle)
                for n in LEAVING
                if signal.getsignal(n) not in UNTOUCHED
            }
            threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """Puts back what was there, and lets it know what came meanwhile."""
        if self._installed:
            for number, handler in self._before.items():
                signal.signal(number, handler)
                around = getattr(handler, "__self__", None)
                if isinstance(around, Signals):
                    around.asked = around.asked or self.asked
            signal.set_wakeup_fd(self._wakeup)
            os.close(self._write)  # the thread reads the end

    @contextmanager
    def breaking(self) -> Iterator[None]:
        """Within it the first signal raises KeyboardInterrupt, as does one before."""
        self._breaks = True
        try:
            if self.asked:
                raise KeyboardInterrupt
            yield
        finally:
            self._breaks = False

    def _handle(self, number: int, frame: object) -> None:
        self.asked = self.asked or number
        came = self._handled.add(number)
        again = came > 1 or self._again
        if (came and self._breaks) or (again and self._interactive):
            raise KeyboardInterrupt

    def _watch(self) -> None:
        count = _Count()
        while byte := os.read(self._read, 1):
            number = byte[0]
            if number not in self._before:
                continue
            came = count.add(number)
            self.asked = self.asked or number
            # Two that come while the main thread waits are one to its handler.
            self._again = self._again or came > 1
            if came > 1 and not self._interactive:
                os._exit(STATUS_OF_SIGNALS + number)
            if came != 1:
                continue
            name = signal.Signals(number).name
            with suppress(BaseException):  # who reads it may be gone: go on watching
                self.tell(f"{name}: saving, then leaving; once more leaves at once")
        os.close(self._read)


class _Count:
    """How many signals came, without those that are sent twice."""

    def __init__(self):
        """None came."""
        self._came, self._first = 0, 0.0

    def add(self, number: int) -> int:
        """Which one this is, from 1; 0: one that came before, again."""
        now = time.monotonic()
        if not self._came:
            self._first = now
        # A shell and the kernel both send SIGHUP.
        elif number == signal.SIGHUP or now - self._first < ECHO:
            return 0
        self._came += 1
        return self._came
