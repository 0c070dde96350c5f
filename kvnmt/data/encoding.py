# SPDX-License-Identifier: Apache-2.0
"""From blocks of text to the ids of the pairs that are trained on."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kvnmt.data.text import Block, Faulty, Parallel, clean, faulty_side
from kvnmt.data.vocabularies import Vocabularies
from kvnmt.data.vocabulary import EOS, AnyVocabulary, Subwords

Encode: TypeAlias = Callable[[AnyVocabulary, str], list[int]]


class Ids(NamedTuple):
    """Ids of sentences one behind the other, each with EOS, and their lengths."""

    ids: NDArray[np.integer]
    lengths: NDArray[np.int32]


@dataclass
class Dropped:
    """How many pairs were left out, by the first rule that refused them."""

    empty: int = 0
    undecodable: int = 0
    too_long: int = 0
    uneven: int = 0  # one side too many times as long as the other

    def __iadd__(self, other: "Dropped") -> "Dropped":
        """Adds the counts of other pairs."""
        for name, count in vars(other).items():
            setattr(self, name, getattr(self, name) + count)
        return self


class EncodedBlock(NamedTuple):
    """The pairs that are kept of a block of text."""

    source: Ids
    target: Ids
    dropped: Dropped


class Tokenised(NamedTuple):
    """The pairs of a block both of whose sides become tokens."""

    text: Parallel  # these pairs, and how many were left out
    source: list[list[int]]  # ids without EOS
    target: list[list[int]]


def tokenised(
    vocabularies: Vocabularies,
    block: Block,
    faulty: Faulty,
    encode: Encode = lambda words, line: words.encode(line),
) -> Tokenised:
    """Turns a block into ids; what becomes no token is as faulty as an empty side.

    Subwords leave out what cannot be seen, zero-width and control characters.

    Args:
        vocabularies: Of both sides.
        block: Pairs.
        faulty: What to do with pairs that are.
        encode: Ids of a line, without EOS.

    Raises:
        UserError: A side becomes no token and ``faulty`` is ``stop``; what `clean`
            raises.
    """
    text = clean(block, faulty)
    kept = Tokenised(Parallel([], []), [], [])
    nothing = 0
    for number, pair in enumerate(zip(text.source, text.target), block.first):
        ids = [encode(words, line) for words, line in zip(vocabularies, pair)]
        if not all(ids):
            if faulty == "stop":
                raise faulty_side(
                    block, number, ids.index([]), "holds nothing that becomes a token"
                )
            nothing += 1
            continue
        for lines, line in zip((kept.text.source, kept.text.target), pair):
            lines.append(line)
        kept.source.append(ids[0])
        kept.target.append(ids[1])
    left_out = {"empty": text.empty + nothing, "undecodable": text.undecodable}
    return kept._replace(text=kept.text._replace(**left_out))


@dataclass(frozen=True)
class PairEncoder:
    """Turns blocks of text into ids; another process gets a copy."""

    vocabularies: Vocabularies
    faulty: Faulty  # what to do with pairs that have an empty side or are not UTF-8
    longest: int  # tokens of a side that is kept, at most
    max_ratio: float | None  # of the longer side to the shorter, at most
    subword_dropout: float = 0.0
    segmentations: int = 1

    def __call__(self, block: Block) -> EncodedBlock:
        """The ids of the pairs that are kept, and how many are not.

        A block of several segmentations is as many blocks, one behind the other.
        """
        dropped = Dropped()
        sources, targets = [], []
        for number in range(self.segmentations):
            encode = partial(self._encode, number)
            pairs = tokenised(self.vocabularies, block, self.faulty, encode)
            dropped += Dropped(pairs.text.empty, pairs.text.undecodable)
            for source_ids, target_ids in zip(pairs.source, pairs.target):
                short, long = sorted((len(source_ids), len(target_ids)))
                if long > self.longest:
                    dropped.too_long += 1
                elif self.max_ratio and long > self.max_ratio * short:
                    dropped.uneven += 1
                else:
                    sources.append(source_ids)
                    targets.append(target_ids)
        return EncodedBlock(
            source=_flat(sources, len(self.vocabularies.source)),
            target=_flat(targets, len(self.vocabularies.target)),
            dropped=dropped,
        )

    def _encode(self, number: int, words: AnyVocabulary, line: str) -> list[int]:
        if self.subword_dropout and isinstance(words, Subwords):
            return words.sample(line, self.subword_dropout, number)
        return words.encode(line)


def _flat(sentences: list[list[int]], size: int) -> Ids:
    flat: list[int] = []
    for ids in sentences:
        flat += ids
        flat.append(EOS)
    lengths = np.array([len(ids) + 1 for ids in sentences], np.int32)
    return Ids(np.array(flat, id_type(size)), lengths)


def id_type(size: int) -> type[np.integer]:
    """The smallest type for the ids of a vocabulary of this size."""
    return np.uint16 if size <= 1 << 16 else np.int32
