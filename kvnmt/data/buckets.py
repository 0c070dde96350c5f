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
    beside: Sequence[Sequence[int]] | None = None,
    keep_empty: bool = False,
    expected: int | None = None,
    multiple: int = 1,
) -> Iterator[tuple[list[int], NDArray[np.int32]]]:
    """Yields places in the corpus and their padded ids, longest sentences first.

    A padded length always has as many rows, so that it is one shape; with another
    sentence beside, the longer of both decides the rows.

    Args:
        sentences: Ids without EOS.
        size: Most sentences in a batch.
        tokens: Most positions in a batch, padding included; a sentence that is longer
            than this is a batch by itself.
        beside: Another sentence for each, such as its translation: the longer of both
            counts.
        keep_empty: Whether empty sentences get a place too.
        expected: How many sentences there are, if these are only the first of them.
        multiple: Rows are a multiple of this, even beyond the two limits.
    """
    order = [i for i, ids in enumerate(sentences) if keep_empty or len(ids)]
    longer = [*map(len, sentences)]
    if beside is not None:
        longer = [*map(max, longer, map(len, beside))]
    order.sort(key=lambda i: -longer[i])
    few = 1 << max(max(expected or 0, len(order)) - 1, 0).bit_length()
    start = 0
    while start < len(order):
        rows = max(min(size, few, tokens // edge(longer[order[start]] + 1)), 1)
        rows = -(-rows // multiple) * multiple
        places = order[start : start + rows]
        width = edge(max(len(sentences[i]) for i in places) + 1)
        yield places, pad([with_end(sentences[i]) for i in places], rows, width)
        start += rows
