# SPDX-License-Identifier: Apache-2.0
"""What a service does with a batch: runs by name, and a function for every task.

A batch is filled up with empty lines to one of a few sizes, so that few programs are
compiled: one for each such size and padded length.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, NamedTuple, TypeAlias

import jax

from kvnmt.data.buckets import EDGES, edge
from kvnmt.data.vocabulary import SPECIAL
from kvnmt.devices import own_mesh, replicate
from kvnmt.evaluation.exploration import Advance, outputs
from kvnmt.inference.config import SearchConfig, shape_of
from kvnmt.inference.describe import describe, summary
from kvnmt.inference.score import score_lines
from kvnmt.inference.translate import translate_nbest
from kvnmt.runs.directory import Run

Kind: TypeAlias = Literal["translate", "describe", "explore", "score"]

ROWS = (1, 4, 16, 64)  # of a batch
MOST_ON_CPU = 16  # rows: no slower for a line than more, and more alike in length
MOST_FORCED = 16  # rows of a batch whose translations are read too
SHORT = tuple(width for width in EDGES if width <= 48)  # lengths compiled at the start


class Task(NamedTuple):
    """What a batch does; lines of one task may share it."""

    kind: Kind
    system: str
    search: SearchConfig
    begun: bool = False  # whether some translation begins as asked
    alone: int | None = None  # a number, for a request that shares with no other


class Line(NamedTuple):
    """A line to translate."""

    text: str
    prefix: tuple[int, ...] = ()  # ids that its translation begins with
    place: int = 0  # in its request, which draws depend on


class Pair(NamedTuple):
    """A line and its translation."""

    source: str
    target: str


class Service:
    """Answers batches; the work of a `kvnmt.serve.batcher.Batcher`."""

    def __init__(self, runs: dict[str, Run]):
        """Takes the runs by name; their arrays are put on every device once."""
        mesh = own_mesh()
        self.runs = {
            name: run._replace(params=replicate(run.params, mesh))
            for name, run in runs.items()
        }
        self._known: set[Any] = set()  # shapes whose programs are compiled
        self._compiling: float | None = None  # since when

    def __call__(self, task: Task, items: list[Any]) -> list[Any]:
        """Works on a batch."""
        run = self.runs[task.system]
        rows = next((n for n in ROWS if n >= len(items)), len(items))
        shape = _shape(run, task, items, rows)
        self._compiling = None if shape in self._known else time.monotonic()
        try:
            results = WORKS[task.kind](run, task, items, rows)
        finally:
            self._compiling = None
        self._known.add(shape)
        return results[: len(items)]

    def compiling(self) -> float | None:
        """For how many seconds a program has been compiled; None: none is."""
        since = self._compiling
        return None if since is None else time.monotonic() - since

    def usual(self, search: SearchConfig) -> list[tuple[Task, list[Line]]]:
        """Batches that together need the programs of short lines and this search."""
        return [
            (Task("translate", name, search), [Line(text)] * rows)
            for name, run in self.runs.items()
            for text in (_line_of(run, width - 1) for width in SHORT)
            for rows in ROWS
            if rows <= most_rows(Task("translate", name, search))
        ]


def most_rows(task: Task) -> int:
    """How many lines a batch of a task holds at most."""
    most = MOST_ON_CPU if jax.default_backend() == "cpu" else ROWS[-1]
    if task.kind != "translate":
        most = min(most, MOST_FORCED)
    return min(task.search.batch_size, most)


def length(task: Task, item: Line | Pair) -> int:
    """How long an item takes, nearly; draws are made in the order of lines."""
    return len(item[0]) if task.alone is None else 0


def _translate(
    run: Run, task: Task, lines: Sequence[Line], rows: int
) -> list[dict[str, Any]]:
    """The translations alone."""
    ways = translate_nbest(
        run.model,
        run.params,
        [run.vocabularies.source.encode(line.text) for line in lines],
        task.search,
        prefixes=[line.prefix for line in lines] if task.begun else None,
        first=lines[0].place,
        expected=rows,
    )
    records = []
    for several in ways:
        record = summary(run, several[0])
        if task.search.nbest > 1:
            record["nbest"] = [summary(run, way) for way in several]
        records.append(record)
    return records


def _describe(
    run: Run, task: Task, lines: Sequence[Line], rows: int
) -> list[dict[str, Any]]:
    """Translations with tokens and alignments."""
    filled = _filled(lines, rows, Line(""))
    return describe(
        run,
        [line.text for line in filled],
        task.search,
        prefixes=[line.prefix for line in filled] if task.begun else None,
        first=lines[0].place,
        expected=rows,
    )


def _explore(
    run: Run, task: Task, lines: Sequence[Line], rows: int
) -> list[dict[str, Any]]:
    """What the explorer's page shows of lines."""
    source = [run.vocabularies.source.encode(line.text) for line in lines]
    prefixes = [line.prefix for line in lines] if task.begun else None
    ways = translate_nbest(
        run.model, run.params, source, task.search, prefixes=prefixes, expected=rows
    )
    x: list[Sequence[int]] = _filled(source, rows, [])
    y: list[Sequence[int]] = _filled([several[0].ids for several in ways], rows, [])
    return outputs(task.system, run, x, y, None, _silent)


def _score(
    run: Run, task: Task, pairs: Sequence[Pair], rows: int
) -> list[dict[str, Any]]:
    """Log-probabilities of given translations."""
    filled = _filled(pairs, rows, Pair("", ""))
    source, target = zip(*filled)
    words = run.vocabularies.target
    return [
        {
            "log_prob": scored.log_prob,
            "tokens": [*words.pieces(words.encode(pair.target)), SPECIAL[0]],
            "token_log_probs": scored.token_log_probs,
        }
        for pair, scored in zip(filled, score_lines(run, source, target))
    ]


WORKS: dict[Kind, Callable[[Run, Task, Any, int], list[dict[str, Any]]]] = {
    "translate": _translate,
    "describe": _describe,
    "explore": _explore,
    "score": _score,
}


def _filled(items: Sequence[Any], rows: int, empty: Any) -> list[Any]:
    return [*items, *[empty] * (rows - len(items))]


def _shape(run: Run, task: Task, items: Sequence[Any], rows: int) -> Any:
    """What decides, nearly, which program a batch needs."""
    encode = run.vocabularies.source.encode
    width = edge(max(len(encode(item[0])) for item in items) + 1)
    return task.kind, task.system, task.begun, shape_of(task.search), rows, width


def _line_of(run: Run, tokens: int) -> str:
    """A line of so many tokens, or nearly."""
    line = "?"
    for _ in range(tokens):
        longer = f"{line} ?"
        if len(run.vocabularies.source.encode(longer)) > tokens:
            break
        line = longer
    return line


def _silent(what: str, total: int) -> AbstractContextManager[Advance]:
    """Shows no progress."""
    return nullcontext(lambda count: None)
