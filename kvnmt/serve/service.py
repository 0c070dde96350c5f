# SPDX-License-Identifier: Apache-2.0
"""What answers batches: runs by name, and which of their programs are compiled.

A batch is filled up with empty lines to one of a few sizes, so that few programs are
compiled: one for each such size and padded length.
"""

import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import jax

from kvnmt.data.buckets import EDGES
from kvnmt.data.vocabulary import UNK
from kvnmt.devices import own_mesh, replicate
from kvnmt.inference.config import SearchConfig, shape_of
from kvnmt.inference.shortlist import Shortlist
from kvnmt.runs.directory import Run
from kvnmt.serve.batcher import NotReadyError
from kvnmt.serve.limits import MOST_ROWS
from kvnmt.serve.works import WORKS, Batch, Line, Pair, Shapes, Task

ROWS = (1, 4, 16, MOST_ROWS)  # of a batch
MOST_ON_CPU = 16  # rows: no slower for a line than more, and more alike in length
MOST_FORCED = 16  # rows of a batch whose translations are read too
# What a full batch is made for. With twice that it has a quarter of the rows, and so
# on by fours, since nobody else is answered until it is done.
BEAM, CHARACTERS = 10, 300
SHORT = tuple(width for width in EDGES if width <= 48)  # lengths compiled at the start


class Service:
    """Answers batches; the work of a `kvnmt.serve.batcher.Batcher`."""

    def __init__(self, runs: dict[str, Run], shortlists: Mapping[str, Shortlist] = {}):
        """Takes the runs by name; their arrays are put on every device once.

        Args:
            runs: Trained models, or ensembles of some.
            shortlists: What those of a name may translate with; others with everything.
        """
        mesh = own_mesh()
        self.runs = {
            name: run._replace(params=replicate(run.params, mesh))
            for name, run in runs.items()
        }
        self.shortlists = shortlists
        # Whether what compiles may be refused. Two threads that launch programs on
        # several devices at once could make these wait for each other.
        self.aside = mesh.size == 1
        self._known: Shapes = set()  # those whose programs are compiled
        self._compiling: float | None = None  # since when
        self.preparing = False  # whether the usual programs are still to come

    def __call__(self, task: Task, items: list[Any], long: bool = True) -> list[Any]:
        """Works on a batch.

        Args:
            task: What is done.
            items: Lines or pairs.
            long: Whether it may take long.

        Raises:
            NotReadyError: It may not, and a program has to be compiled.
        """
        run, shortlist = self.runs[task.system], self.shortlists.get(task.system)
        rows = next((n for n in ROWS if n >= len(items)), len(items))
        program = partial(self._program, long or not self.aside)
        batch = Batch(run, shortlist, task, items, rows, program)
        return WORKS[task.kind](batch)[: len(items)]

    def compiling(self) -> float | None:
        """For how many seconds a program has been compiled; None: none is.

        Between two of the usual programs that is 0: it is not over.
        """
        since = self._compiling
        if since is None:
            return 0.0 if self.preparing else None
        return time.monotonic() - since

    def usual(self, search: SearchConfig) -> list[tuple[Task, list[Line]]]:
        """Batches that together need the programs of short lines and this search."""
        draw = random.Random(1)
        return [
            (task, [_line_of(run, width - 1, draw) for _ in range(rows)])
            for name, run in self.runs.items()
            for task in [Task("translate", name, search)]
            for width in SHORT
            for rows in sorted({min(rows, most_rows(task, Line(""))) for rows in ROWS})
        ]

    @contextmanager
    def _program(self, compiles: bool, shapes: Shapes) -> Iterator[None]:
        """Within it programs of shapes are used, and compiled if they may be."""
        if shapes <= self._known:
            yield
            return
        if not compiles:
            raise NotReadyError
        self._compiling = time.monotonic()
        try:
            yield
        finally:
            self._compiling = None
        there = {shape for shape in self._known if shape[0]() is not None}
        self._known = there | shapes  # without those of programs that were freed


def most_rows(task: Task, item: Line | Pair) -> int:
    """How many lines like one a batch of a task holds at most."""
    most = MOST_ON_CPU if jax.default_backend() == "cpu" else ROWS[-1]
    if task.kind != "translate":
        most = min(most, MOST_FORCED)
    search = task.search
    width = 1 if task.kind == "score" else shape_of(search).width
    work = max(1, width / BEAM)
    work *= max(1, max(map(len, item[:2])) / CHARACTERS)
    few = max(rows for rows in ROWS if rows < 2 * max(most / work, 1))
    return min(search.batch_size, few)


def length(task: Task, item: Line | Pair) -> int:
    """How long an item takes, nearly; requests that draw keep their lines in order."""
    return len(item[0]) if task.alone is None else 0


def _line_of(run: Run, tokens: int, draw: random.Random) -> Line:
    """A line of so many tokens, or nearly, the first of a vocabulary most often.

    With a shortlist, the size of a program depends on the tokens of a batch. In text
    the frequent tokens, which come first, are about as frequent as here.
    """
    words, line = run.vocabularies.source, "?"
    for _ in range(tokens):
        token = UNK + int((len(words) - UNK) ** draw.random())
        longer = f"{line} {words.decode([min(token, len(words) - 1)])}"
        if len(words.encode(longer)) > tokens:
            break
        line = longer
    return Line(line)
