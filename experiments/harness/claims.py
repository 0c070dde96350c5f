# SPDX-License-Identifier: Apache-2.0
"""Who works on a row: claims that processes on any number of machines respect.

A row has a folder of claims, ``claims/ROW/`` beside its run directory. Every claim is a
file, numbered in order, that only one process can make: it says who works since when,
its time of change is the heartbeat, and in the end it says how the work ended. The
newest claim counts. A dead process holds nothing:

* its lock is free at once, which every process of the same machine sees;
* its heart is silent, which all others believe after a while. Times are those of the
  file system, so that the clocks of the machines need not agree.
"""

import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, fields
from datetime import datetime
from json import loads
from pathlib import Path
from typing import Any, NamedTuple

from kvnmt.console import say
from kvnmt.errors import UserError, reason_of
from kvnmt.files import locked, make_folder, write_json
from kvnmt.runs.overview import checkpoint_steps

BOOT = Path("/proc/sys/kernel/random/boot_id")
TRIES, GLANCE = 3, 0.05  # to lock a row at which others may look; seconds between them
TAKEN_OVER = 75  # exit status of a process that lost its claim
SILENT_END = "its process ended without a word, as one that is killed for its memory."


class Pace(NamedTuple):
    """How often processes look at each other, in seconds."""

    beat: float = 15.0  # between two heartbeats
    late: float = 180.0  # without a heartbeat after which a process is dead
    look: float = 10.0  # between two looks at rows that run elsewhere


@dataclass(frozen=True)
class Claim:
    """One claim of a row."""

    number: int  # from 1
    by: str = "a process that is starting"
    machine: str = ""
    since: str = ""
    ended: str = ""  # done, stopped, failed; empty: not yet
    reason: str = ""  # why it failed
    checkpoint: int | None = None  # step of the newest when the work began
    silent: float = 0.0  # seconds since the last heartbeat


# What stands in the file of a claim; a later version may write more.
WRITTEN = {field.name for field in fields(Claim)} - {"number", "silent"}


class Held:
    """A claim of this process, with its heartbeat."""

    def __init__(self, path: Path, number: int, lost: Callable[[str], None]):
        """Takes the file of the claim.

        Args:
            path: Of the claim.
            number: Of the claim.
            lost: Called by the heartbeat once another process has taken over.
        """
        self.path, self.number, self._lost = path, number, lost
        self._over = threading.Event()

    def beat(self, seconds: float) -> None:
        """Shows that this process lives, until the claim ends."""
        while not self._over.wait(seconds):
            if self.path.with_name(f"{self.number + 1}.json").exists():
                if not self._over.is_set():  # or it was given back meanwhile
                    self._lost(f"the claim '{self.path}' was taken over")
                return
            with suppress(OSError):  # the file system may be back soon
                os.utime(self.path)

    def end(self, ended: str, reason: str = "") -> None:
        """Gives the row back; does nothing a second time."""
        if self._over.is_set():
            return
        self._over.set()
        with suppress(OSError, ValueError):  # the lock tells as much
            plain = loads(self.path.read_text())
            write_json(self.path, plain | {"ended": ended, "reason": reason})


class Claims:
    """The claims of one row."""

    def __init__(self, folder: Path, pace: Pace = Pace()):
        """Touches nothing.

        Args:
            folder: Run directory of the row.
            pace: How often processes look at each other.
        """
        self.folder = folder
        self.path, self.pace = folder.parent / "claims" / folder.name, pace

    def last(self) -> Claim | None:
        """The newest claim; None: nobody ever worked on the row."""
        return self._read(max(self._numbers(), default=0))

    def failures(self) -> list[str]:
        """Why the work on the row failed, every time it did.

        A process that is gone, told nothing and left no new checkpoint failed, too.
        """
        read = [self._read(number) for number in sorted(self._numbers())]
        claims = [claim for claim in read if claim]
        afters = [claim.checkpoint for claim in claims[1:]] + [_newest(self.folder)]
        if claims and not claims[-1].ended:
            working = self.holder()
            last = self._read(claims[-1].number)  # it may have ended meanwhile
            claims[-1:] = [last] if last and not working else []
        return [
            claim.reason or SILENT_END
            for claim, after in zip(claims, afters)
            if claim.ended == "failed"
            or (not claim.ended and claim.checkpoint == after)
        ]

    def holder(self) -> Claim | None:
        """The claim of the process that works on the row now; None: none does."""
        claim = self.last()
        if claim is None or claim.ended:
            return None
        try:
            # Who looks keeps nobody else from looking.
            with self._lock(shared=True) as locks:
                return self._alive(claim, locks)
        except UserError:  # who cannot write may look
            return self._alive(claim, False)

    @contextmanager
    def take(self, lost: Callable[[str], None] | None = None) -> Iterator[Held | None]:
        """Claims the row while it is open, unless another process works on it.

        Args:
            lost: Called if another machine believed this process dead and took over;
                by default the process ends at once, before two write to one run.

        Raises:
            UserError: The claim cannot be written.
        """
        with ExitStack() as stack:
            make_folder(self.path)
            locks = stack.enter_context(self._lock(tries=TRIES))
            claim = self.last()
            held = None
            if locks is not None and (claim is None or not self._alive(claim, locks)):
                held = self._write(claim.number + 1 if claim else 1, lost or _leave)
            if held:
                stack.callback(held.end, "stopped")
                beat = threading.Thread(
                    target=held.beat, args=(self.pace.beat,), daemon=True
                )
                beat.start()
            yield held

    def _alive(self, claim: Claim, locks: bool | None) -> Claim | None:
        """The claim, if its process may still work."""
        if claim.ended:
            return None
        if locks is not None and claim.silent > self.pace.late:
            return None
        if locks and claim.machine == _machine():
            return None  # it would hold the lock
        return claim

    @contextmanager
    def _lock(self, tries: int = 1, *, shared: bool = False) -> Iterator[bool | None]:
        """Locks the row if nobody does (None); gives whether locks work here."""
        with ExitStack() as stack:
            locks = None
            for n in range(tries):
                time.sleep(GLANCE * min(n, 1))
                try:
                    lock = locked(self.path / "lock", wait=False, shared=shared)
                    locks = stack.enter_context(lock)
                    break
                except BlockingIOError:
                    continue
                except OSError as error:
                    raise _not_written(self.path, error) from None
            yield locks

    def _numbers(self) -> list[int]:
        names = [path.stem for path in self.path.glob("*.json")]
        return [int(name) for name in names if name.isdecimal()]

    def _read(self, number: int) -> Claim | None:
        if not number:
            return None
        path = self.path / f"{number}.json"
        plain: Any = None
        try:
            with suppress(ValueError):  # it is being written
                plain = loads(path.read_text())
            silent = self._now() - path.stat().st_mtime
        except FileNotFoundError:  # it was given back meanwhile
            return None
        plain = plain if isinstance(plain, dict) else {}
        known = {name: plain[name] for name in WRITTEN if name in plain}
        return Claim(number=number, silent=silent, **known)

    def _now(self) -> float:
        """The time of the file system; or of this machine, where it is read-only."""
        try:
            with tempfile.TemporaryFile(dir=self.path) as now:
                return os.fstat(now.fileno()).st_mtime
        except OSError:
            return time.time()

    def _write(self, number: int, lost: Callable[[str], None]) -> Held | None:
        """Makes the claim of that number; None: another process was faster."""
        path = self.path / f"{number}.json"
        plain = {
            "by": f"{socket.gethostname()}:{os.getpid()}",
            "machine": _machine(),
            "checkpoint": _newest(self.folder),
            "since": f"{datetime.now().astimezone():%Y-%m-%d %H:%M %z}",
        }
        try:
            path.open("x").close()
            try:
                write_json(path, plain)
            except BaseException:  # nobody would hold the row
                path.unlink(missing_ok=True)
                raise
        except FileExistsError:
            return None
        except OSError as error:
            raise _not_written(path, error) from None
        return Held(path, number, lost)


def _newest(folder: Path) -> int:
    """The step of the newest checkpoint of a run directory; 0: it has none."""
    return max(checkpoint_steps(folder), default=0)


def _machine() -> str:
    """Tells machines apart; names of containers and of clones may be the same."""
    try:
        return BOOT.read_text().strip()
    except OSError:
        return socket.gethostname()


def _leave(sentence: str) -> None:
    say(f"{sentence}; leaving, so that two do not write to one run.")
    os._exit(TAKEN_OVER)


def _not_written(path: Path, error: OSError) -> UserError:
    return UserError(f"'{path}' cannot be written: {reason_of(error)}.")
