# SPDX-License-Identifier: Apache-2.0
"""Output for people: sentences, tables, and the progress of long work.

A terminal shows a progress bar; a log file gets a line from time to time.
"""

import errno
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, TextIO

from rich.console import Console
from rich.measure import measure_renderables
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

WIDTH, FAR = 160, 10_000  # characters: what a file has at least, and at most
EVERY = 300  # seconds from line to line about long work, ...
IN_NOTEBOOK = 20  # ... and where somebody looks, who sees no bar either


class Pulse:
    """Lines that say how far long work is, where no bar can be shown."""

    def __init__(
        self,
        what: str,
        total: int | None,
        tell: Callable[[str], object],
    ):
        """Work begins.

        Args:
            what: Which, in a word or two.
            total: Of how many; None: nobody knows.
            tell: Prints a line.
        """
        self._what, self._total, self._tell = what, total, tell
        self._last = time.monotonic()
        self._paced: tuple[float, int] | None = None  # when the pace began, and where

    def beat(self, done: int, note: str = "") -> None:
        """Prints how many are done, and a note, if it is time for another line.

        The time left follows from the pace since the first beat: what comes before it,
        such as compiling, is no work of this kind. All time between beats counts.
        """
        now = time.monotonic()
        began, before = self._paced or (now, done)
        self._paced = began, before
        every = min(EVERY, IN_NOTEBOOK) if "ipykernel" in sys.modules else EVERY
        if now - self._last < every:
            return
        words = [f"{self._what} {done:,}", note]
        if self._total is not None:
            words[0] += f" of {self._total:,}"
            if done > before:
                left = (self._total - done) * (now - began) / (done - before)
                words.append(f"{timedelta(seconds=round(left))} left")
        self._last = now
        self._tell("  ".join(filter(None, words)))


class _Rate(ProgressColumn):
    """How many a second."""

    def render(self, task: Task) -> Text:
        """Returns the rate, once there is one."""
        speed = task.finished_speed or task.speed
        return Text(f"{speed:,.0f}/s" if speed else "")


class _Output(Console):
    """Standard output, which may be closed before everything is read."""

    def on_broken_pipe(self) -> None:
        """Leaves it to the program; otherwise the status would be 1."""
        raise BrokenPipeError


class _People(Console):
    """Output for people; the work goes on if nobody reads it any more."""

    def on_broken_pipe(self) -> None:
        """Says no more; Rich itself would end the program."""
        self.quiet = True

    def _check_buffer(self) -> None:
        try:
            super()._check_buffer()
        except OSError as error:
            if error.errno != errno.EIO:  # of a terminal that was closed
                raise
            self.quiet = True
            super()._check_buffer()


def people_console(*, stderr: bool = True, quiet: bool = False) -> Console:
    """The console for messages that are no results; it may be closed at any time.

    Args:
        stderr: Whether on standard error; otherwise on standard output.
        quiet: Whether nothing is said.
    """
    return _People(stderr=stderr, quiet=quiet, emoji=False)


def say(message: str, console: Console | None = None) -> None:
    """Prints a sentence as it is: a line however long, with no colours or markup.

    It is for people, and no result: the work goes on where it cannot be written.

    Args:
        message: What is said; it may hold names of files.
        console: Where; by default on standard error.
    """
    with suppress(OSError):  # nobody may read it any more, or a disk be full
        (console or people_console()).print(
            message, markup=False, highlight=False, soft_wrap=True
        )


def is_watched(console: Console) -> bool:
    """Whether it is a terminal, whatever colours the environment asks for."""
    return console.file.isatty()


@contextmanager
def counting(
    what: str, total: int | None, beside: Sequence[TextIO | None] = ()
) -> Iterator[Callable[[int], None]]:
    """Shows a bar, or a line at times; gives a function that is told of progress.

    Args:
        what: Which work, in a word.
        total: Of how many; None: nobody knows.
        beside: What is typed and written meanwhile. In a terminal a bar would lie over
            it: there is none then.
    """
    done, pulse = 0, Pulse(what, total, say)
    watched = is_watched(people_console())

    def advance(count: int) -> None:
        nonlocal done
        done += count
        if not watched:
            pulse.beat(done)
        bar.advance(task, count)

    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(),
        TimeRemainingColumn(),
        console=people_console(),
        transient=True,
        redirect_stdout=False,  # what is printed meanwhile is a result, not for people
        disable=not watched or any(each and each.isatty() for each in beside),
    ) as bar:
        task = bar.add_task(what, total=total)
        yield advance


def json_bytes(plain: Any, allow_nan: bool = True) -> bytes:
    """JSON on one line, in UTF-8.

    A file's name may hold bytes that are not UTF-8. In a Python text they are lone
    surrogates, which JSON can express and UTF-8 cannot.
    """
    text = json.dumps(plain, ensure_ascii=False, allow_nan=allow_nan)
    return text.encode("utf-8", "backslashreplace")


def print_json(plain: Any) -> None:
    """Prints a line of JSON on standard output, in UTF-8 whatever the locale is."""
    sys.stdout.buffer.write(json_bytes(plain) + b"\n")


def print_table(table: Table, notes: Sequence[str] = ()) -> None:
    """Prints a table on standard output; no word or figure is ever cut.

    In a terminal, cells are broken between words. If that is not enough, lines are
    longer than the terminal is wide. In a file, lines are as long as the table needs.
    """
    console = _Output(emoji=False)
    width = console.width if is_watched(console) else WIDTH
    natural = Console(width=FAR, emoji=False).measure(table).maximum
    if natural > width:
        width = _narrow(table, width) if is_watched(console) else natural
    _Output(width=max(width, console.width), emoji=False).print(table)
    for note in notes:
        console.print(note, style="dim", markup=False, highlight=False, soft_wrap=True)


def _narrow(table: Table, width: int) -> int:
    """Breaks cells between words to fit a table into a width; returns its new width."""
    wide = Console(width=FAR, emoji=False)
    spans = [
        measure_renderables(wide, wide.options, [column.header, *column.cells])
        for column in table.columns
    ]
    widths = [span.maximum for span in spans]
    between = wide.measure(table).maximum - sum(widths)
    for _ in range(sum(widths) + between - width):
        some = [n for n, span in enumerate(spans) if widths[n] > span.minimum]
        if some:
            widths[max(some, key=widths.__getitem__)] -= 1
    for column, chosen in zip(table.columns, widths):
        column.width = chosen
    return sum(widths) + between
