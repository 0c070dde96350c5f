# SPDX-License-Identifier: Apache-2.0
"""A bar on standard error for work over many sentences."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

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


class _Rate(ProgressColumn):
    """How many a second."""

    def render(self, task: Task) -> Text:
        """Returns the rate, once there is one."""
        speed = task.finished_speed or task.speed
        return Text(f"{speed:,.0f}/s" if speed else "")


def error_console() -> Console:
    """Where people read what is not a result."""
    return Console(stderr=True)


@contextmanager
def counting(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Shows a bar, if somebody looks; gives a function that is told of progress.

    Args:
        what: Which work, in a word.
        total: Of how many; None: nobody knows.
    """
    columns = (
        *(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()),
        *(_Rate(), TimeRemainingColumn()),
    )
    hidden = not sys.stderr.isatty()
    with Progress(
        *columns, console=error_console(), transient=True, disable=hidden
    ) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)


WIDTH, FAR = 160, 10_000  # characters: what a file has at least, and at most


def print_table(table: Table, notes: Sequence[str] = ()) -> None:
    """Prints a table on standard output; a file is as wide as what is put there."""
    console = Console()
    if not console.is_terminal:
        wide = Console(width=FAR)
        console = Console(width=max(WIDTH, wide.measure(table).maximum))
    console.print(table)
    for note in notes:
        console.print(note, style="dim", markup=False, highlight=False, soft_wrap=True)
