# SPDX-License-Identifier: Apache-2.0
"""What people read in a terminal: sentences, tables, and a bar while they wait."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
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


def error_console() -> Console:
    """Where people read what is not a result."""
    return Console(stderr=True)


def say(message: str, console: Console | None = None) -> None:
    """Prints a sentence as it is: a line however long, with no colours or markup.

    Args:
        message: What is said; it may hold names of files.
        console: Where; by default on standard error.
    """
    console = console or error_console()
    console.print(message, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def counting(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Shows a bar, if somebody looks; gives a function that is told of progress.

    Args:
        what: Which work, in a word.
        total: Of how many; None: nobody knows.
    """
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(),
        TimeRemainingColumn(),
        console=error_console(),
        transient=True,
        redirect_stdout=False,  # what is printed meanwhile is a result, not for people
        disable=not sys.stderr.isatty(),
    ) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)


def print_json(plain: Any) -> None:
    """Prints a line of JSON on standard output, in UTF-8 whatever the locale is."""
    sys.stdout.buffer.write(json.dumps(plain, ensure_ascii=False).encode() + b"\n")


def print_table(table: Table, notes: Sequence[str] = ()) -> None:
    """Prints a table on standard output; a file is as wide as what is put there."""
    console = _Output()
    if not console.is_terminal:
        wide = Console(width=FAR)
        console = _Output(width=max(WIDTH, wide.measure(table).maximum))
    console.print(table)
    for note in notes:
        console.print(note, style="dim", markup=False, highlight=False, soft_wrap=True)
