# SPDX-License-Identifier: Apache-2.0
"""The batch plan: the whole order of training as a pure function.

A plan depends on the seed, the epoch and the lengths alone, so a position in
training is one integer and a restart needs no other memory. There are two kinds:

* batches of so many pairs, as in RNNsearch (Bahdanau et al. 2015, appendix B): the
  shuffled corpus is fetched twenty batches at a time, sorted by length and cut;
* batches of so many tokens: pairs that are padded to the same shape share batches, the
  more of them the shorter they are.

The batches are then shuffled. Every batch is padded to one shape of a small table
chosen from the corpus, so the number of compiled programs is known before the first
step. Early epochs pad batches of pairs to fewer shapes: to compile a program takes as
long as to make many steps.
"""

import hashlib
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvnmt.data.shapes import choose_shapes, first_epochs, fit

WINDOW = 20  # batches that are sorted by length together


class Planned(NamedTuple):
    """The pairs of a batch and its padded size."""

    lines: NDArray[np.integer]  # which pairs, from 0
    rows: int  # at least as many
    shape: NDArray[np.int64]  # S and T


@dataclass(frozen=True)
class Epoch:
    """All batches of one epoch, in their order."""

    lines: NDArray[np.int32]  # every pair once
    starts: NDArray[np.int64]  # of every batch in them
    shapes: NDArray[np.intp]  # which shape of the table
    order: NDArray[np.int64]  # the batches, as they come


@dataclass(frozen=True)
class Plan:
    """How a corpus is cut into batches; made by `by_pairs` and `by_tokens`."""

    lengths: NDArray[np.integer]  # [N, 2]
    shapes: NDArray[np.int64]  # [K, 2]
    rows: NDArray[np.int64]  # [K]
    window: int  # pairs sorted together; 0: pairs of a shape share a batch
    per_epoch: int  # batches
    first_epochs: NDArray[np.int64]  # [K] in which, from 0, each shape is first used

    def digest(self) -> str:
        """A hash of the lengths, shapes and rows, to tell plans apart."""
        seal = hashlib.blake2b(digest_size=16)
        for array in (self.lengths, self.shapes, self.rows):
            seal.update(np.ascontiguousarray(array, np.int64).tobytes())
        return seal.hexdigest()

    def order(self) -> str:
        """A hash of how the first thousand pairs are shuffled, to tell that apart."""
        first = replace(self, lengths=self.lengths[:1000]).epoch(0, 0)
        seal = hashlib.blake2b(digest_size=16)
        for array in (first.lines, first.starts, first.order):
            seal.update(np.ascontiguousarray(array, np.int64).tobytes())
        return seal.hexdigest()

    def with_all_shapes(self) -> "Plan":
        """This plan, but its first epoch has all shapes, too."""
        return replace(self, first_epochs=np.zeros_like(self.first_epochs))

    def epoch(self, seed: int, number: int) -> Epoch:
        """Plans the epoch of this number, from 0."""
        random = np.random.default_rng([seed, number])
        lines, starts = self._cut(random)
        longest = np.maximum.reduceat(self.lengths[lines], starts, axis=0)
        order = random.permutation(len(starts))
        used = np.flatnonzero(self.first_epochs <= number)
        return Epoch(lines, starts, used[fit(longest, self.shapes[used])], order)

    def longest(self, seed: int, number: int) -> NDArray[np.integer]:
        """The longest source and target of every batch of an epoch, in no order."""
        lines, starts = self._cut(np.random.default_rng([seed, number]))
        return np.maximum.reduceat(self.lengths[lines], starts, axis=0)

    def batch(self, epoch: Epoch, offset: int) -> Planned:
        """Returns the batch at a place of an epoch, from 0."""
        i = epoch.order[offset]
        end = epoch.starts[i + 1] if i + 1 < len(epoch.starts) else None
        shape = epoch.shapes[i]
        lines = epoch.lines[epoch.starts[i] : end]
        return Planned(lines, int(self.rows[shape]), self.shapes[shape])

    def real(self, epoch: Epoch) -> float:
        """The share of positions in the padded batches that hold a token."""
        padded = (self.rows * self.shapes.sum(axis=1))[epoch.shapes].sum()
        return float(self.lengths.sum() / padded)

    def _cut(self, random: np.random.Generator) -> tuple[NDArray, NDArray]:
        """All pairs in the order of the batches, and where these start."""
        mixed = random.permutation(len(self.lengths)).astype(np.int32)
        return self._windows(mixed) if self.window else self._groups(mixed)

    def _windows(self, mixed: NDArray) -> tuple[NDArray, NDArray]:
        lengths, window = self.lengths[mixed], np.arange(len(mixed)) // self.window
        lines = mixed[np.lexsort((lengths.sum(axis=1), lengths.max(axis=1), window))]
        return lines, np.arange(0, len(lines), self.rows[0])

    def _groups(self, mixed: NDArray) -> tuple[NDArray, NDArray]:
        group = fit(self.lengths[mixed], self.shapes).astype(np.uint8)
        lines = mixed[np.argsort(group, kind="stable")]
        pairs = np.bincount(group, minlength=len(self.shapes))
        return lines, _starts(pairs, self.rows)


def by_pairs(
    lengths: NDArray[np.integer],
    size: int,
    count: int,
    *,
    window: int = WINDOW,
    multiple: int = 1,
) -> Plan:
    """Plans batches of ``size`` pairs; the last of an epoch may have fewer.

    The shapes are chosen for the longest pairs of such batches.

    Args:
        lengths: Source and target lengths of every pair.
        size: Pairs in a batch.
        count: How many shapes may be compiled.
        window: How many batches are sorted by length together.
        multiple: Rows of less text than that are a multiple of this.
    """
    size = min(size, _rounded_up(len(lengths), multiple))
    most = lengths.max(axis=0, keepdims=True).astype(np.int64)
    per_epoch = -(-len(lengths) // size)
    start = np.zeros(1, np.int64)
    plan = Plan(lengths, most, np.array([size]), window * size, per_epoch, start)
    longest = np.concatenate([plan.longest(0, 0), most])
    shapes = choose_shapes(longest, count)
    first, rows = first_epochs(longest, size, shapes), np.full(len(shapes), size)
    return replace(plan, shapes=shapes, rows=rows, first_epochs=first)


def by_tokens(
    lengths: NDArray[np.integer], tokens: int, count: int, *, multiple: int = 1
) -> Plan:
    """Plans batches of at most so many tokens.

    Args:
        lengths: Source and target lengths of every pair.
        tokens: Most positions on the longer side of a batch, padding included.
        count: How many shapes may be compiled.
        multiple: Rows are a multiple of this, even if that is more tokens.
    """
    # Each holds all that smaller ones hold, so that it can take what is left of them.
    shapes = np.maximum.accumulate(choose_shapes(lengths, count), axis=0)
    rows = tokens // shapes.max(axis=1) // multiple * multiple
    rows = np.clip(rows, multiple, _rounded_up(len(lengths), multiple))
    pairs = np.bincount(fit(lengths, shapes), minlength=len(shapes))
    first = np.zeros(len(shapes), np.int64)
    return Plan(lengths, shapes, rows, 0, len(_starts(pairs, rows)), first)


def _rounded_up(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple


def _starts(pairs: NDArray[np.integer], rows: NDArray[np.integer]) -> NDArray:
    """Where batches start in pairs sorted by shape; what is left goes to the next."""
    starts, start, left = [], 0, 0
    for count, size in zip(pairs, rows):
        if left >= size:  # more than one batch of the longer ones: one of its own
            starts.append(np.array([start]))
            start, left = start + left, 0
        full, left = divmod(left + count, size)
        starts.append(start + size * np.arange(full))
        start += full * size
    return np.concatenate([*starts, [start] if left else []]).astype(np.int64)
