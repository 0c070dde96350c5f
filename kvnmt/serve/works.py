# SPDX-License-Identifier: Apache-2.0
"""What is done with a batch: a function for every kind of task.

A batch is filled up with empty lines to its number of rows, so that few programs are
compiled. Before programs are used the shapes are told that decide them.
"""

import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, NamedTuple, TypeAlias

from kvnmt.data.buckets import pairs_in_batches
from kvnmt.devices import own_mesh
from kvnmt.evaluation.exploration import Advance, outputs
from kvnmt.inference.config import SearchConfig
from kvnmt.inference.describe import read_back, scored_record, summary
from kvnmt.inference.ensemble import count_members
from kvnmt.inference.program import program
from kvnmt.inference.recording import Changes, has_memory, has_signs
from kvnmt.inference.score import compiled_score, looks_back, rounds_of, score
from kvnmt.inference.shortlist import Shortlist
from kvnmt.inference.translate import (
    Request,
    Translation,
    search_blocks,
    translate_nbest,
)
from kvnmt.runs.directory import Run

Kind: TypeAlias = Literal["translate", "describe", "explore", "score"]
Records: TypeAlias = list[dict[str, Any]]
Ids: TypeAlias = Sequence[Sequence[int]]
Shapes: TypeAlias = set[tuple[Any, ...]]  # each begins with a weakref of its program


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
    number: int = 0  # in its request, which draws depend on


class Pair(NamedTuple):
    """A line and its translation."""

    source: str
    target: str


class Batch(NamedTuple):
    """A task, what it is done with, and what it is done to."""

    run: Run
    shortlist: Shortlist | None
    task: Task
    items: Sequence[Any]
    rows: int
    program: Callable[[Shapes], AbstractContextManager[None]]  # those are in use


def _translate(batch: Batch) -> Records:
    """The translations alone."""
    records = []
    for several in _search(batch):
        record = summary(batch.run, several[0])
        if batch.task.search.nbest > 1:
            record["nbest"] = [summary(batch.run, way) for way in several]
        records.append(record)
    return records


def _describe(batch: Batch) -> Records:
    """Translations with tokens and alignments."""
    ways = _filled(_search(batch), batch.rows, [Translation([], 0.0, 0.0)])
    texts = _filled([line.text for line in batch.items], batch.rows, "")
    beside = [text for text, several in zip(texts, ways) for _ in several]
    ids = [way.ids for several in ways for way in several]
    with batch.program(_read_shapes(batch, beside, ids)):
        nbest = batch.task.search.nbest > 1
        return read_back(
            batch.run, texts, ways, nbest=nbest, limits=batch.task.search.limits
        )


def _explore(batch: Batch) -> Records:
    """What the explorer's page shows of lines."""
    run, name = batch.run, batch.task.system
    y = _filled([several[0].ids for several in _search(batch)], batch.rows, [])
    texts = _filled([line.text for line in batch.items], batch.rows, "")
    x = [run.vocabularies.source.encode(text) for text in texts]
    with batch.program(_read_shapes(batch, texts, y)):
        records = outputs(name, run, x, y, None, _silent, batch.task.search.limits)
    # What was forced, as it is shown: an unknown word is shown otherwise than typed.
    begun = [run.vocabularies.target.decode(line.prefix) for line in batch.items]
    return [record | {"begun": text} for record, text in zip(records, begun)]


def matrices(run: Run) -> int:
    """How many matrices are shown of a line, each about as large as an alignment."""
    config, rounds = run.experiment.model, rounds_of(run.model, run.params)
    if count_members(run.params) > 1:
        return rounds  # the means; see `outputs`
    memory = len(Changes._fields) if has_memory(config) else 0
    signs = config.built_attention.weighed_heads if has_signs(config) else 0
    return rounds * (1 + memory + signs) + looks_back(run.model, run.params)


def _score(batch: Batch) -> Records:
    """Log-probabilities of given translations."""
    filled = _filled(batch.items, batch.rows, Pair("", ""))
    source, target = zip(*filled)
    run, words = batch.run, batch.run.vocabularies.target
    x = [run.vocabularies.source.encode(line) for line in source]
    ids = [words.encode(line) for line in target]
    limits = batch.task.search.limits
    with batch.program(_read_shapes(batch, source, ids, aligned=False)):
        scores = score(run.model, run.params, x, ids, limits=limits, aligned=False)
    return [scored_record(words, y, one) for y, one in zip(ids, scores)]


WORKS: dict[Kind, Callable[[Batch], Records]] = {
    "translate": _translate,
    "describe": _describe,
    "explore": _explore,
    "score": _score,
}


def _search(batch: Batch) -> list[list[Translation]]:
    """The translations of a batch's lines."""
    run, task, lines = batch.run, batch.task, batch.items
    source = [run.vocabularies.source.encode(line.text) for line in lines]
    request = Request(
        prefixes=[line.prefix for line in lines] if task.begun else None,
        shortlist=batch.shortlist,
        numbers=[line.number for line in lines],
        expected=batch.rows,
    )
    with batch.program(_search_shapes(batch, source, request)):
        return translate_nbest(run.model, run.params, source, task.search, **request)


def _search_shapes(batch: Batch, source: Ids, request: Request) -> Shapes:
    """What decides which programs a search is; none where no line needs one."""
    search = batch.task.search
    # Of many programs those that were used long ago are freed, so none is kept here.
    of = weakref.ref(program(batch.run.model, search))
    return {
        (of, *(array if array is None else array.shape for array in (*rows, words)))
        for _, rows, words in search_blocks(source, search, **request)
    }


def _read_shapes(
    batch: Batch, texts: Sequence[str], target: Ids, aligned: bool = True
) -> Shapes:
    """What decides which programs read translations."""
    source = [batch.run.vocabularies.source.encode(text) for text in texts]
    of = weakref.ref(compiled_score(batch.run.model, aligned, True))  # as of searches
    # What a mechanism tells of itself is read on one device.
    return {
        (of, *batch.task[:2], x.shape, y.shape)
        for multiple in (own_mesh().size, 1)
        for _, x, y in pairs_in_batches(
            source, target, *batch.task.search.limits, multiple=multiple
        )
    }


def _filled(items: Sequence[Any], rows: int, empty: Any) -> list[Any]:
    return [*items, *[empty] * (rows - len(items))]


def _silent(what: str, total: int) -> AbstractContextManager[Advance]:
    """Shows no progress."""
    return nullcontext(lambda count: None)
