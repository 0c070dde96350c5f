# SPDX-License-Identifier: Apache-2.0
"""A worker walks a list of rows and does what nobody else has done or is doing.

Any number of the same processes may walk the same list. None of them leads: each claims
a row, trains and measures it, and goes on to the next.
"""

import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from signal import SIGINT
from signal import Signals as SignalName

from rich.console import Console
from rich.markup import escape

from experiments.harness.claims import Claims, Held, Pace
from experiments.harness.results import read_result
from experiments.harness.rows import AnyRow, Row, Train
from kvnmt.console import say
from kvnmt.errors import STATUS_OF_SIGNALS, OptionError, StoppedError, UserError
from kvnmt.training.signals import Signals

TRIES = 2  # of a row that fails


class Worker:
    """Walks rows until nothing is left that it could do."""

    def __init__(
        self, rows: Sequence[AnyRow], train: Train, console: Console, pace: Pace
    ):
        """Looks at what failed before, which counts no more.

        Args:
            rows: In the order in which they are tried.
            train: Trains a row.
            console: Where people read.
            pace: How often processes look at each other.
        """
        self.rows, self.train, self.console, self.pace = rows, train, console, pace
        self.claims = {row.folder: Claims(row.folder, pace) for row in rows}
        self.before = {path: len(c.failures()) for path, c in self.claims.items()}
        self.unusable = dict[Path, str]()  # why results are not those of their rows
        self.texts = {row.folder: _text_of(row) for row in rows}  # that measures read

    def work(self) -> dict[str, str]:
        """Works, and comes back to rows that wait for others.

        Returns:
            Why rows failed, by their names.

        Raises:
            StoppedError: A signal asked for it; nothing is lost.
        """
        with Signals(lambda message: say(message, self.console)) as signals:
            try:
                with signals.breaking():
                    self._walk(signals)
            except (StoppedError, KeyboardInterrupt) as cause:
                raise _stopped(cause, signals.asked or SIGINT) from None
        return {
            row.folder.name: reason
            for row in self.rows
            if (reason := self._failure(row.folder))
        }

    def _walk(self, signals: Signals) -> None:
        while True:
            worked = False
            for row in self.rows:
                worked |= self._visit(row)
                if signals.asked:  # while the row failed
                    raise KeyboardInterrupt
            if worked:
                continue
            if not self._has_more():
                return
            time.sleep(self.pace.look)

    def _has_more(self) -> bool:
        """Whether this worker may still have something to do."""
        if not any(map(self._is_open, self.rows)):
            return False
        if any(map(self._returns_to, self.rows)):
            return True
        time.sleep(2 * self.pace.beat)  # a heart may have stopped a moment ago
        return any(map(self._returns_to, self.rows))

    def _visit(self, row: AnyRow) -> bool:
        """Does a row, if it can be done now; gives whether it was tried."""
        if not self._is_open(row) or self._waits_for(row):
            return False
        with self.claims[row.folder].take() as held:
            # It may have been done before the claim.
            if held is None or not self._is_open(row):
                return False
            self._do(row, held)
        return True

    def _do(self, row: AnyRow, held: Held) -> None:
        with suppress(OSError):  # nobody reads it, or the disk is full
            self.console.rule(escape(row.folder.name))
        try:
            row.make(self.train, self.console)
        except StoppedError:
            raise
        except Exception as error:
            if not isinstance(error, UserError | OSError):
                traceback.print_exc()
            reason = reason_of(error, row.folder)
            say(f"'{row.folder.name}' failed: {reason}", self.console)
            held.end("failed", reason)
        else:
            held.end("done")

    def _is_open(self, row: AnyRow) -> bool:
        try:
            measured = row.result()
        except UserError as error:  # such as that it came from others: the rest goes on
            self.unusable[row.folder] = reason_of(error, row.folder)
            return False
        if measured is None and self.texts[row.folder] not in (None, row.text):
            self.unusable[row.folder] = (
                "its text is another than when this command read it; begin again."
            )
        return measured is None and not self._failure(row.folder)

    def _waits_for(self, row: AnyRow) -> bool:
        """Whether it needs a row that is not there yet but may come."""
        return any(read_result(folder) is None for folder in row.needs)

    def _returns_to(self, row: AnyRow) -> bool:
        """Whether this worker may still have to do the row.

        It leaves a row to a process whose heart beats. A row that waits for such a row
        has no process yet.
        """
        if not self._is_open(row):
            return False
        holder = self.claims[row.folder].holder()
        return holder is None or holder.silent > 2 * self.pace.beat

    def _failure(self, folder: Path) -> str:
        """Why a row is given up; empty: it is not."""
        if folder in self.unusable:
            return self.unusable[folder]
        if read_result(folder):
            return ""
        if folder not in self.claims:
            if Claims(folder, self.pace).holder():
                return ""
            return "that has no result and is none of these rows; run it first."
        failures = self.claims[folder].failures()[self.before[folder] :]
        if len(failures) >= TRIES:
            return failures[-1]
        (row,) = (row for row in self.rows if row.folder == folder)
        for needed in row.needs:
            if reason := self._failure(needed):
                return f"it needs '{needed.name}': {reason}"
        return ""


def _text_of(row: AnyRow) -> str | None:
    """Tells the text of a row apart; None: it is written when the row's turn comes."""
    return None if isinstance(row, Row) and row.awaits_text else row.text


def reason_of(error: Exception, folder: Path) -> str:
    """Why a row failed, in a sentence."""
    if isinstance(error, OSError) and error.strerror:
        return (
            f"'{error.filename or folder}' cannot be read or written: {error.strerror}."
        )
    told = error.by_flag if isinstance(error, OptionError) else str(error)
    return told or type(error).__name__


def _stopped(cause: BaseException, asked: int) -> StoppedError:
    """What ends a worker: training that left, or a signal at other work."""
    number, what = asked, f"stopped by {SignalName(asked).name}"
    if isinstance(cause, StoppedError):
        number, what = cause.status - STATUS_OF_SIGNALS, str(cause).partition(";")[0]
    return StoppedError(f"{what}; the same command goes on.", number)
