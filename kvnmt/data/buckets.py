# SPDX-License-Identifier: Apache-2.0
"""Batches of sentences to decode: sorted by length, in a fixed table of shapes."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from kvnmt.data.batches import pad, with_end

EDGES = (8, 12, 16, 24, 32, 48, 64, 96, 128)  # padded source lengths, EOS included
BATCH_SIZE = 64  # sentences
BATCH_TOKENS = 4096  # padded positions


def edge(length: int) -> int:
    """Returns the padded length: of the table, or the next hundred beyond it."""
    for width in EDGES:
        if length <= width:
            return width
    return -(-length // 100) * 100


def in_batches(
    sentences: Sequence[Sequence[int]],
    size: int = BATCH_SIZE,
    tokens: int = BATCH_TOKENS,
    *,
    expected: int | None = None,
    multiple: int = 1,
) -> Iterator[tuple[list[int], NDArray[np.int32]]]:
    """Yields places in the corpus and their padded ids, longest sentences first.

    Empty sentences have none. A padded length always has as many rows, so that it is
    one shape.

    Args:
        sentences: Ids without EOS.
        size: Most sentences in a batch.
        tokens: Most positions in a batch, padding included; a sentence that is longer
            than this is a batch by itself.
        expected: How many sentences there are, if these are only the first of them.
        multiple: Rows are a multiple of this, even beyond the two limits.
    """
    lengths = [*map(len, sentences)]
    order = [i for i, length in enumerate(lengths) if length]
    few = max(expected or 0, len(order))
    for places, rows in _batches(order, lengths, size, tokens, few, multiple):
        yield places, _padded(sentences, places, rows)


def pairs_in_batches(
    source: Sequence[Sequence[int]],
    target: Sequence[Sequence[int]],
    size: int = BATCH_SIZE,
    tokens: int = BATCH_TOKENS,
    *,
    multiple: int = 1,
) -> Iterator[tuple[list[int], NDArray[np.int32], NDArray[np.int32]]]:
    """Yields places of pairs, padded sources and targets; empty ones have a place too.

    The longer side of a pair decides where it is and the number of rows.

    Args:
        source: Ids without EOS.
        target: As many others.
        size: As of `in_batches`.
        tokens: See there; of the longer side.
        multiple: See there.
    """
    longer = [*map(max, map(len, source), map(len, target))]
    order, count = [*range(len(longer))], len(longer)
    for places, rows in _batches(order, longer, size, tokens, count, multiple):
        yield places, _padded(source, places, rows), _padded(target, places, rows)


def _batches(
    order: list[int],
    lengths: list[int],
    size: int,
    tokens: int,
    expected: int,
    multiple: int,
) -> Iterator[tuple[list[int], int]]:
    """Places, longest first, and the number of rows for them."""
    order.sort(key=lambda i: -lengths[i])
    few = 1 << max(expected - 1, 0).bit_length()
    start = 0
    while start < len(order):
        rows = max(min(size, few, tokens // edge(lengths[order[start]] + 1)), 1)
        rows = -(-rows // multiple) * multiple
        yield order[start : start + rows], rows
        start += rows


def _padded(
    sentences: Sequence[Sequence[int]], places: list[int], rows: int
) -> NDArray[np.int32]:
    ended = [with_end(sentences[i]) for i in places]
    return pad(ended, rows, edge(max(map(len, ended))))
