# SPDX-License-Identifier: Apache-2.0
"""The batch plan: the whole order of training as a pure function.

A plan depends on the seed, the epoch and the lengths alone, so a position in
training is one integer and a restart needs no other memory. As in RNNsearch
(Bahdanau et al. 2015, section A.2.3) the shuffled corpus is fetched twenty batches
at a time, sorted by length and cut; the batches are then shuffled. Every batch is
padded to one shape of a small table chosen from the corpus, so the number of
compiled programs is known before the first step.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvnmt.data.vocabulary import EOS, PAD


class Batch(NamedTuple):
    """Token ids, EOS at the end of every sentence, `PAD` behind it."""

    source: NDArray[np.int32]  # [B, S]
    target: NDArray[np.int32]  # [B, T]


class Encoded(NamedTuple):
    """A corpus as ids, EOS included."""

    source: list[NDArray[np.int32]]
    target: list[NDArray[np.int32]]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Length of the longer side of every pair, EOS included."""
        pairs = zip(self.source, self.target)
        return np.array([max(len(s), len(t)) for s, t in pairs], np.int64)


def with_end(ids: Sequence[int]) -> NDArray[np.int32]:
    """Ids followed by EOS."""
    return np.array([*ids, EOS], np.int32)


def choose_edges(lengths: NDArray[np.int64], count: int) -> tuple[int, ...]:
    """Chooses at most ``count`` padded lengths that waste the fewest positions.

    Exact, by dynamic programming over the distinct lengths: with ``best[k][j]`` the
    least padding of all sentences up to the j-th distinct length in k groups, each
    group padded to its longest member.

    Args:
        lengths: Lengths of the sentences to come.
        count: How many shapes may be compiled.

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


def plan_epoch(
    seed: int,
    epoch: int,
    lengths: NDArray[np.int64],
    batch_size: int,
    *,
    window: int = 20,
) -> list[NDArray[np.int64]]:
    """Returns the batches of an epoch as arrays of line numbers (from 0).

    Args:
        seed: Seed of the run.
        epoch: Which epoch, from 0.
        lengths: Length of every pair.
        batch_size: Pairs in a batch; the last may have fewer.
        window: How many batches are sorted by length together.
    """
    random = np.random.default_rng([seed, epoch])
    order = random.permutation(len(lengths))
    batches = []
    for start in range(0, len(order), window * batch_size):
        fetched = order[start : start + window * batch_size]
        fetched = fetched[np.argsort(lengths[fetched], kind="stable")]
        cuts = range(batch_size, len(fetched), batch_size)
        batches.extend(np.split(fetched, cuts))
    return [batches[i] for i in random.permutation(len(batches))]


def batches_per_epoch(pairs: int, batch_size: int) -> int:
    """Returns how many batches `plan_epoch` makes, without making them."""
    return -(-pairs // batch_size)


def pad(
    sentences: Sequence[NDArray[np.int32]], rows: int, length: int
) -> NDArray[np.int32]:
    """Packs sentences into ``[rows, length]``; rows left over hold no word."""
    block = np.full((rows, length), PAD, np.int32)
    for row, ids in zip(block, sentences):
        row[: len(ids)] = ids
    return block


def make_batch(
    corpus: Encoded, lines: NDArray[np.int64], rows: int, edges: Sequence[int]
) -> Batch:
    """Pads the pairs of these lines to the smallest shape of the table."""
    source = [corpus.source[i] for i in lines]
    target = [corpus.target[i] for i in lines]
    longest = max(len(ids) for ids in source + target)
    length = min(edge for edge in edges if edge >= longest)
    return Batch(pad(source, rows, length), pad(target, rows, length))


def from_step(
    corpus: Encoded, seed: int, batch_size: int, edges: Sequence[int], step: int
) -> Iterator[Batch]:
    """Yields the endless stream of training batches from a position on.

    Args:
        corpus: Training pairs.
        seed: Seed of the run.
        batch_size: Pairs in a batch.
        edges: Table of padded lengths.
        step: How many batches of the stream to pass over.
    """
    lengths = corpus.lengths
    epoch, offset = divmod(step, batches_per_epoch(len(lengths), batch_size))
    while True:
        plan = plan_epoch(seed, epoch, lengths, batch_size)
        for lines in plan[offset:]:
            yield make_batch(corpus, lines, batch_size, edges)
        epoch, offset = epoch + 1, 0
