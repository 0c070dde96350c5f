# SPDX-License-Identifier: Apache-2.0
"""Padded shapes: a small table chosen from a corpus, so that little is padded.

A pair is padded to one shape of the table, source and target lengths. Every shape is a
program to compile, so they are few.
"""

import numpy as np
from numpy.typing import NDArray

NEVER = np.iinfo(np.int64).max // 2  # more positions, or epochs, than there can be
MOVES = (-8, -4, -2, -1, 1, 2, 4, 8)
CELLS = 6_000  # different pairs of lengths above which they are rounded
# Padded positions, of both sides, that take a CPU as long as compiling the program of a
# step: 5.8 CPU seconds (RNNsearch*, 256 wide).
COMPILE_COST = 1 << 16


def choose_shapes(lengths: NDArray[np.integer], count: int) -> NDArray[np.int64]:
    """Chooses at most ``count`` shapes to which all pairs can be padded.

    Best for the longer side of every pair, by dynamic programming; from there each
    side of each shape is moved as long as fewer positions are padded.

    Args:
        lengths: Source and target lengths ``[N, 2]``.
        count: How many shapes may be compiled.

    Returns:
        Shapes ``[K, 2]``, smallest first; every pair fits one of them.
    """
    cells, counts = _cells(lengths)
    longer = np.repeat(cells.max(axis=1), counts)
    shapes = np.array([[edge, edge] for edge in choose_edges(longer, count)])
    shapes = _descend(_tighten(shapes, cells), cells, counts)
    shapes = np.minimum(shapes, lengths.max(axis=0))  # not rounded
    shapes = np.unique(shapes, axis=0)
    return shapes[np.argsort(shapes.sum(axis=1), kind="stable")]


def choose_edges(lengths: NDArray[np.integer], count: int) -> tuple[int, ...]:
    """Chooses at most ``count`` padded lengths that waste the fewest positions.

    Exact, by dynamic programming over the distinct lengths: with ``best[k][j]`` the
    least padding of all sentences up to the j-th distinct length in k groups, each
    group padded to its longest member.

    Args:
        lengths: Lengths of the sentences to come.
        count: How many lengths to choose.

    Returns:
        Padded lengths in rising order; the last is the longest length.
    """
    values, counts = np.unique(lengths, return_counts=True)
    n, k = len(values), min(count, len(values))
    before = np.concatenate([[0], np.cumsum(counts)])  # sentences before the i-th
    cost = np.full((k + 1, n + 1), np.inf)
    cost[0, 0] = 0
    cut = np.zeros((k + 1, n + 1), np.int64)
    for groups in range(1, k + 1):
        for j in range(1, n + 1):
            padded = cost[groups - 1, :j] + values[j - 1] * (before[j] - before[:j])
            cut[groups, j] = np.argmin(padded)
            cost[groups, j] = padded[cut[groups, j]]
    edges, j = [], n
    for groups in range(k, 0, -1):
        edges.append(int(values[j - 1]))
        j = cut[groups, j]
    return tuple(sorted(edges))


def first_epochs(
    lengths: NDArray[np.integer], rows: int, shapes: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Returns the epoch, from 0, in which each shape is used for the first time.

    Until then its batches are padded to larger shapes. A shape comes in the epoch when
    the padding that it would have saved has cost as much as compiling its program
    (`COMPILE_COST`); shapes that come later than it are not counted.

    Args:
        lengths: The longest source and target of every batch of an epoch, and of all
            pairs, ``[N, 2]``.
        rows: Pairs in each batch.
        shapes: A table, of which one holds all pairs; this is used from the start.
    """
    cells, counts = _cells(lengths)
    cells = np.minimum(cells, shapes.max(axis=0))  # they may be rounded
    costs = rows * _costs(cells, shapes).astype(np.float64)
    first, left = np.zeros(len(shapes), np.int64), np.arange(len(shapes))
    while len(left) > 1:
        two = np.partition(costs[left], 1, axis=0)
        best = costs[left].argmin(axis=0)
        more = np.bincount(best, (two[1] - two[0]) * counts, minlength=len(left))
        place = more.argmin()
        if more[place] > COMPILE_COST:
            break
        # One that no batch needs never comes.
        first[left[place]] = COMPILE_COST // more[place] if more[place] else NEVER
        left = np.delete(left, place)
    return first


def fit(lengths: NDArray[np.integer], shapes: NDArray[np.int64]) -> NDArray[np.intp]:
    """The smallest shape that holds a pair, for every pair of lengths ``[N, 2]``."""
    most = shapes.max(axis=0)
    if np.prod(most + 1) > max(len(lengths), 1 << 20):  # a table would be larger
        cells, places = np.unique(lengths, axis=0, return_inverse=True)
        return _cheapest(cells, shapes)[places.ravel()]
    table = np.indices(most + 1).reshape(2, -1).T  # all pairs of lengths
    best = _cheapest(table, shapes)
    return best.reshape(most + 1)[lengths[:, 0], lengths[:, 1]]


def _distinct(lengths: NDArray[np.integer]) -> tuple[NDArray, NDArray]:
    """The different pairs of lengths, and how many there are of each."""
    base = int(lengths.max()) + 1
    codes, counts = np.unique(lengths @ [base, 1], return_counts=True)
    return np.stack(np.divmod(codes, base), axis=1), counts


def _cells(lengths: NDArray[np.integer]) -> tuple[NDArray, NDArray]:
    """As `_distinct`, of lengths that are rounded up until pairs are few enough."""
    step = 1
    cells, counts = _distinct(lengths)
    while len(cells) > CELLS:  # of long texts; there a few positions are little
        step *= 2
        cells, counts = _distinct(-(-lengths // step) * step)
    return cells, counts


def _cheapest(
    cells: NDArray[np.integer], shapes: NDArray[np.int64]
) -> NDArray[np.intp]:
    """For every cell the smallest shape that holds it."""
    return _costs(cells, shapes).argmin(axis=0)


def _costs(cells: NDArray[np.integer], shapes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The positions ``[K, N]`` of every cell in every shape."""
    fits = (cells <= shapes[:, None]).all(axis=-1)
    return np.where(fits, shapes.sum(axis=1)[:, None], NEVER)


def _tighten(shapes: NDArray, cells: NDArray) -> NDArray[np.int64]:
    """Makes every shape no larger than the largest pair it is the best for."""
    best = _cheapest(cells, shapes)
    return np.array([cells[best == i].max(axis=0) for i in np.unique(best)])


def _descend(shapes: NDArray, cells: NDArray, counts: NDArray) -> NDArray[np.int64]:
    """Moves one side of one shape at a time until nothing is gained.

    While a shape moves, the cheapest of all others stays, for every cell.
    """
    shapes, most, weights = shapes.copy(), cells.max(axis=0), counts.astype(np.float64)
    costs = _costs(cells, shapes)
    least, better = costs.min(axis=0) @ weights, True
    while better:
        better = False
        for place in np.ndindex(shapes.shape):
            k, side = place
            others = np.delete(costs, k, axis=0).min(axis=0, initial=NEVER)
            for move in MOVES:
                shape = shapes[k : k + 1].copy()
                shape[0, side] = np.clip(shape[0, side] + move, 1, most[side])
                cost = _costs(cells, shape)[0]
                padded = np.minimum(others, cost) @ weights
                if padded < least:
                    shapes[k], costs[k], least, better = shape[0], cost, padded, True
    return shapes
