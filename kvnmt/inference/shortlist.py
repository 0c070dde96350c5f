# SPDX-License-Identifier: Apache-2.0
"""Lexical shortlists: the likely target tokens of every source token.

A sentence is translated with the likely target tokens of its source tokens, those of
`NO_TOKEN`, which every sentence may use, and the specials. The sentences of a batch
share an output layer with all tokens that any of them needs; each may write only its
own tokens, so that its translation does not depend on the others.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvnmt.data.vocabulary import EOS, UNK
from kvnmt.errors import UserError

BEST, COMMON = 100, 1000  # target tokens of a source token, and of every sentence
SORTED = 2**22  # links at least that are sorted at once, if there are as many
NO_TOKEN = -1  # in the place of a source token: for every sentence


class Candidates(NamedTuple):
    """The target tokens that the sentences of a batch may be translated with."""

    words: NDArray[np.int32]  # [C], rising; of the last there may be copies
    allowed: NDArray[np.bool_]  # [B, C], for each sentence; never a copy


class Lexicon(NamedTuple):
    """Pairs of a source token, or `NO_TOKEN`, and a target token."""

    source: NDArray[np.int64]
    target: NDArray[np.int64]
    probability: NDArray[np.float64]  # of the target token given the source token

    def ranked(self, best: float = np.inf, common: float = np.inf) -> "Lexicon":
        """Sorted by source token, the likeliest first; equal ones by their target id.

        Args:
            best: How many target tokens of a source token are kept; by default all.
            common: How many of `NO_TOKEN`.
        """
        order = np.lexsort((self.target, -self.probability, self.source))
        source = self.source[order]
        ranks = np.arange(len(source)) - np.searchsorted(source, source)
        order = order[ranks < np.where(source == NO_TOKEN, common, best)]
        return Lexicon(self.source[order], self.target[order], self.probability[order])


@dataclass(frozen=True)
class Shortlist:
    """What the sentences of a source language may be translated with."""

    lexicon: Lexicon  # ranked
    source_size: int  # of the vocabulary
    target_size: int
    digests: Mapping[str, str] | None = None  # of both vocabularies, where it is known

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Where the lexicon's lines of `NO_TOKEN` and of every source token begin."""
        tokens = np.arange(NO_TOKEN, self.source_size + 1)
        return np.searchsorted(self.lexicon.source, tokens)

    def candidates(
        self,
        source: NDArray[np.integer],
        prefix: NDArray[np.integer] | None = None,
    ) -> Candidates:
        """What the sentences of a batch may be translated with.

        The number of words is one of a few, so that few programs are compiled, and at
        most that of the vocabulary.

        Args:
            source: Ids [B, S], below zero where there is none.
            prefix: Target ids [B, P] that translations begin with, likewise.
        """
        allowed = np.zeros((len(source), self.target_size), np.bool_)
        allowed[:, [EOS, UNK]] = True
        allowed[:, self._targets(np.array([NO_TOKEN]))[0]] = True
        rows, places = np.nonzero(source >= 0)
        targets, counts = self._targets(source[rows, places])
        allowed[np.repeat(rows, counts), targets] = True
        if prefix is not None:
            rows, places = np.nonzero(prefix >= 0)
            allowed[rows, prefix[rows, places]] = True
        return _gather(allowed)

    def _targets(
        self, tokens: NDArray[np.integer]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The target tokens of source tokens, one after the other; how many of each."""
        first = self.starts[tokens - NO_TOKEN]
        counts = self.starts[tokens - NO_TOKEN + 1] - first
        before = np.cumsum(counts) - counts
        places = np.arange(counts.sum()) + np.repeat(first - before, counts)
        return self.lexicon.target[places], counts


def check_shortlist(shortlist: Shortlist, source_size: int, target_size: int) -> None:
    """Refuses what is no shortlist of a model's words.

    Raises:
        UserError: It is none, or has other numbers of words.
    """
    if not isinstance(shortlist, Shortlist):
        raise UserError(
            f"a shortlist of type {type(shortlist).__name__} is none; read its file "
            "with kvnmt.inference.shortlist_file.read_shortlist."
        )
    theirs = shortlist.source_size, shortlist.target_size
    if theirs != (source_size, target_size):
        raise UserError(
            f"the shortlist is of {theirs[0]} source and {theirs[1]} target words, the "
            f"model of {source_size} and {target_size}; read one of its vocabularies."
        )


def of_all(count: int, sizes: tuple[int, int]) -> Shortlist:
    """The same target tokens for every sentence: the first ones behind the specials.

    Args:
        count: How many candidates there are, EOS and UNK included; at least 2.
        sizes: Of the vocabularies of source and target.
    """
    target = np.arange(UNK + 1, UNK - 1 + count, dtype=np.int64)
    every = np.full_like(target, NO_TOKEN)
    return Shortlist(Lexicon(every, target, np.ones(len(target))), *sizes)


def size_for(count: int, most: int) -> int:
    """The least power of two, or one and a half of one, that is enough; or ``most``."""
    power = 1 << max(count - 1, 1).bit_length()
    three_quarters = 3 * power // 4
    return min(three_quarters if count <= three_quarters else power, most)


def count_links(
    links: Iterable[NDArray[np.integer]],
    sizes: tuple[int, int],
    best: int = BEST,
    common: int = COMMON,
) -> Shortlist:
    """Makes a shortlist by relative frequency.

    Args:
        links: Some at a time, [N, 2]: for each link source and target token, and for
            each target token of the text, linked or not, `NO_TOKEN` and that token.
        sizes: Of the vocabularies of source and target.
        best: How many target tokens of a source token are kept.
        common: How many of the most frequent target tokens every sentence has.
    """
    source_size, target_size = sizes
    keys, counts = np.zeros(0, np.int64), np.zeros(0)
    for block in _in_large_blocks(links):
        fresh = (block[:, 0] - NO_TOKEN) * target_size + block[:, 1]
        weights = np.concatenate([counts, np.ones(len(fresh))])
        keys, places = np.unique(np.concatenate([keys, fresh]), return_inverse=True)
        counts = np.bincount(places, weights, minlength=len(keys))
    source, target = np.divmod(keys, target_size)
    totals = np.bincount(source, counts, minlength=source_size + 1)
    words = target > UNK  # the specials may always be written
    lexicon = Lexicon(
        source[words] + NO_TOKEN, target[words], (counts / totals[source])[words]
    )
    return Shortlist(lexicon.ranked(best, common), source_size, target_size)


def _in_large_blocks(
    blocks: Iterable[NDArray[np.integer]],
) -> Iterator[NDArray[np.integer]]:
    """The same rows, many at a time: all keys are sorted anew for each block."""
    waiting, rows = list[NDArray[np.integer]](), 0
    for block in blocks:
        waiting.append(block)
        rows += len(block)
        if rows >= SORTED:
            yield np.concatenate(waiting)
            waiting, rows = [], 0
    if waiting:
        yield np.concatenate(waiting)


def _gather(allowed: NDArray[np.bool_]) -> Candidates:
    """The columns that any row needs, padded to `size_for` with copies of the last.

    Args:
        allowed: [B, V].
    """
    words = np.flatnonzero(allowed.any(axis=0))
    count, most = len(words), allowed.shape[1]
    size = size_for(count, most)
    if size == most:
        return Candidates(np.arange(most, dtype=np.int32), allowed)
    words = np.pad(words, (0, size - count), mode="edge").astype(np.int32)
    columns = allowed[:, words]
    columns[:, count:] = False
    return Candidates(words, columns)
