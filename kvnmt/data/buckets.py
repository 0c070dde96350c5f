# SPDX-License-Identifier: Apache-2.0
"""Batches of sentences to decode: sorted by length, in a fixed table of shapes."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from kvnmt.data.batches import pad, with_end

EDGES = (8, 12, 16, 24, 32, 48, 64, 96, 128)  # padded source lengths, EOS included
BATCH_SIZE = 64  # sentences
BATCH_TOKENS = 4096  # padded positions
# Every shape needs a program; to compile it takes about as long as to translate a full
# batch. A length is left out if this adds at most so many padded positions.
PROGRAM = 4096
Shapes: TypeAlias = dict[int, int]  # rows by padded length, from short to long


def edge(length: int) -> int:
    """Returns the padded length: of the table, or the next hundred beyond it."""
    for width in EDGES:
        if length <= width:
            return width
    return -(-length // 100) * 100


def rows_of(width: int, most: int, tokens: int, multiple: int) -> int:
    """Sentences of a padded length that are decoded at a time; as of `in_batches`."""
    rows = max(min(most, tokens // width), 1)
    return -(-rows // multiple) * multiple


def in_batches(
    sentences: Sequence[Sequence[int]],
    size: int = BATCH_SIZE,
    tokens: int = BATCH_TOKENS,
    *,
    expected: int | None = None,
    multiple: int = 1,
) -> Iterator[tuple[list[int], NDArray[np.int32]]]:
    """Yields places in the corpus and their padded ids, longest sentences first.

    Empty sentences are left out. A padded length always has the same number of rows, so
    that it is one shape.

    Args:
        sentences: Ids without EOS.
        size: Most sentences in a batch.
        tokens: Most positions in a batch, padding included; a sentence that is longer
            than this is a batch by itself.
        expected: How many sentences there are, if these are only the first of them.
        multiple: Rows are a multiple of this, even beyond the two limits.
    """
    lengths = [len(ids) + 1 for ids in sentences]
    order = [i for i, ids in enumerate(sentences) if len(ids)]
    count = max(expected or 0, len(order))
    shapes = _shapes([lengths[i] for i in order], size, tokens, count, multiple)
    for places, rows in _batches(order, lengths, shapes):
        yield places, _padded(sentences, places, rows, _fit(lengths[places[0]], shapes))


def pairs_in_batches(
    source: Sequence[Sequence[int]],
    target: Sequence[Sequence[int]],
    size: int = BATCH_SIZE,
    tokens: int = BATCH_TOKENS,
    *,
    multiple: int = 1,
) -> Iterator[tuple[list[int], NDArray[np.int32], NDArray[np.int32]]]:
    """Yields places of pairs, padded sources and targets; empty ones have a place too.

    The longer side of a pair decides where it is and the number of rows. The other is
    padded to the same lengths, unless it is less than half as long.

    Args:
        source: Ids without EOS.
        target: As many others.
        size: As of `in_batches`.
        tokens: See there; of the longer side.
        multiple: See there.
    """
    lengths = [max(len(x), len(y)) + 1 for x, y in zip(source, target, strict=True)]
    order = [*range(len(lengths))]
    shapes = _shapes(lengths, size, tokens, len(order), multiple)
    for places, rows in _batches(order, lengths, shapes):
        widths = []
        for side in source, target:
            longest = max(len(side[i]) for i in places) + 1
            own, wide = edge(longest), _fit(longest, shapes)
            widths.append(own if 2 * own <= wide else wide)
        x, y = (
            _padded(side, places, rows, width)
            for side, width in zip((source, target), widths)
        )
        yield places, x, y


def _shapes(
    lengths: Sequence[int], size: int, tokens: int, count: int, multiple: int
) -> Shapes:
    """The padded lengths that so many sentences of such lengths are worth."""
    few = 1 << max(count - 1, 0).bit_length()
    share = count / max(len(lengths), 1)
    counts = {width: n * share for width, n in Counter(map(edge, lengths)).items()}
    shapes = {}
    for width in sorted(counts):
        shapes[width] = rows_of(width, min(size, few), tokens, multiple)
    positions, longest = _positions(counts, shapes), max(shapes, default=0)
    while len(shapes) > 1:
        fewer = (_without(shapes, width) for width in shapes if width < longest)
        best = min(fewer, key=lambda shapes: _positions(counts, shapes))
        padded = _positions(counts, best)
        if padded - positions > PROGRAM:
            break
        positions, shapes = padded, best
    return shapes


def _without(shapes: Shapes, left_out: int) -> Shapes:
    return {width: rows for width, rows in shapes.items() if width != left_out}


def _positions(counts: dict[int, float], shapes: Shapes) -> float:
    """How many there are, if a batch that is not full takes shorter sentences too."""
    total = free = 0.0
    widths = sorted(shapes, reverse=True)
    for width, next_one in zip(widths, [*widths[1:], 0]):
        need = sum(n for long, n in counts.items() if next_one < long <= width) - free
        rows = max(math.ceil(need / shapes[width]), 0) * shapes[width]
        total, free = total + rows * width, rows - need
    return total


def _batches(
    order: list[int], lengths: Sequence[int], shapes: Shapes
) -> Iterator[tuple[list[int], int]]:
    """Places, longest first, and the number of rows for them."""
    order.sort(key=lambda i: -lengths[i])
    start = 0
    while start < len(order):
        rows = shapes[_fit(lengths[order[start]], shapes)]
        yield order[start : start + rows], rows
        start += rows


def _fit(length: int, shapes: Shapes) -> int:
    return next(width for width in shapes if width >= length)


def _padded(
    sentences: Sequence[Sequence[int]], places: list[int], rows: int, width: int
) -> NDArray[np.int32]:
    return pad([with_end(sentences[i]) for i in places], rows, width)
