# SPDX-License-Identifier: Apache-2.0
"""Sentences as ids, a corpus of them, and padded batches."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kvnmt.data.vocabulary import EOS, PAD

BLOCK = 1 << 20  # ids whose digest is taken at once


class Batch(NamedTuple):
    """Token ids, EOS at the end of every sentence, `PAD` behind it."""

    source: NDArray[np.int32]  # [B, S]
    target: NDArray[np.int32]  # [B, T]


class LinkedBatch(NamedTuple):
    """A batch with links between the tokens."""

    source: NDArray[np.int32]  # [B, S]
    target: NDArray[np.int32]  # [B, T]
    links: NDArray[np.bool_]  # [B, T, S]


AnyBatch: TypeAlias = Batch | LinkedBatch


class Sentences(Sequence[NDArray[np.integer]]):
    """Sentences of ids one behind the other, in memory or mapped from a file."""

    def __init__(self, ids: NDArray[np.integer], lengths: NDArray[np.integer]):
        """Takes all ids, and how many of them each sentence has."""
        self.ids, self.lengths = ids, lengths
        self.starts = np.cumsum(lengths, dtype=np.int64) - lengths

    def __len__(self) -> int:
        """Returns how many sentences there are."""
        return len(self.lengths)

    def __getitem__(self, i: Any) -> Any:
        """Returns the ids of a sentence."""
        start = self.starts[i]
        return self.ids[start : start + self.lengths[i]]


def digest(*parts: Sentences) -> str:
    """Identifies all numbers of some sentences."""
    seal = hashlib.blake2b(digest_size=16)
    for part in parts:
        for start in range(0, len(part.ids), BLOCK):
            seal.update(part.ids[start : start + BLOCK].astype("<i4").tobytes())
    return seal.hexdigest()


class EncodedCorpus:
    """Both sides of a corpus as ids, EOS included."""

    def __init__(
        self,
        source: Sentences,
        target: Sentences,
        reopen: tuple[Callable[..., "EncodedCorpus"], tuple[Any, ...]] | None = None,
        links: Sentences | None = None,
    ):
        """Takes both sides.

        Args:
            source: Sentences.
            target: Their translations.
            reopen: A function and its arguments that another process gets the same
                corpus from, so that it need not be sent there.
            links: Between the tokens of each pair, if there are any: source and
                target places in alternation.
        """
        self.source, self.target, self._reopen = source, target, reopen
        self.links = links
        self.lengths = np.stack([source.lengths, target.lengths], axis=1)  # [N, 2]

    def __reduce__(self) -> Any:
        """Pickles how to reopen the corpus, if that is known, instead of the ids."""
        parts = self.source, self.target, None, self.links
        return self._reopen or (EncodedCorpus, parts)

    def digest(self) -> str:
        """Identifies all ids, in memory or mapped; another word is another digest.

        Links are no part of it: they guide, and may be others when a run goes on.
        """
        return digest(self.source, self.target)


def encoded(
    source: Iterable[Sequence[int]], target: Iterable[Sequence[int]]
) -> EncodedCorpus:
    """Makes a corpus of ids without EOS."""
    return EncodedCorpus(joined(source), joined(target))


def joined(
    sentences: Iterable[Sequence[int]], kind: type[np.integer] = np.int32
) -> Sentences:
    """Sentences of ids without EOS, which is put behind each."""
    flat: list[int] = []
    lengths: list[int] = []
    for ids in sentences:
        flat += [*ids, EOS]
        lengths.append(len(ids) + 1)
    return Sentences(np.array(flat, kind), np.array(lengths, np.int32))


def with_end(ids: Sequence[int]) -> NDArray[np.int32]:
    """Ids followed by EOS."""
    return np.array([*ids, EOS], np.int32)


def pad(
    sentences: Sequence[NDArray[np.integer]], rows: int, length: int
) -> NDArray[np.int32]:
    """Packs sentences into ``[rows, length]``; rows left over hold no word."""
    block = np.full((rows, length), PAD, np.int32)
    for row, ids in zip(block, sentences):
        row[: len(ids)] = ids
    return block


def make_batch(
    corpus: EncodedCorpus, lines: NDArray[np.integer], rows: int, shape: Iterable[int]
) -> AnyBatch:
    """Pads the pairs of these lines to ``[rows, S]`` and ``[rows, T]``.

    Args:
        corpus: Pairs.
        lines: Numbers of the pairs to take, from 0.
        rows: Rows of the batch, at least as many as lines.
        shape: S and T.
    """
    source_length, target_length = map(int, shape)
    batch = Batch(
        source=pad([corpus.source[i] for i in lines], rows, source_length),
        target=pad([corpus.target[i] for i in lines], rows, target_length),
    )
    if corpus.links is None:
        return batch
    whole = rows, target_length, source_length
    return LinkedBatch(*batch, _matrix(corpus.links, lines, whole))


def _matrix(
    links: Sentences, lines: NDArray[np.integer], shape: tuple[int, int, int]
) -> NDArray[np.bool_]:
    """The links of these pairs in ``[rows, T, S]``."""
    matrix = np.zeros(shape, np.bool_)
    for row, line in zip(matrix, lines):
        source, target = links[line].reshape(-1, 2).T
        row[target, source] = True
    return matrix
