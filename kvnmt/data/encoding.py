# SPDX-License-Identifier: Apache-2.0
"""From blocks of text to the ids of the pairs that are trained on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np

from kvnmt.data.batches import Sentences, joined
from kvnmt.data.codes import Codes
from kvnmt.data.links import Links, links_between, token_links
from kvnmt.data.text import Block, Faulty, Parallel, decode, faulty_side, numbered
from kvnmt.data.vocabularies import Vocabularies, Vocabulary
from kvnmt.data.vocabulary import Subwords

Encode: TypeAlias = Callable[[Vocabulary, str], list[int]]


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

    source: Sentences
    target: Sentences
    dropped: Dropped
    # Source and target places of every pair in alternation, if links are given.
    links: Sentences | None = None

    @property
    def parts(self) -> dict[str, Sentences]:
        """All arrays by their names."""
        sides = {"source": self.source, "target": self.target}
        return sides if self.links is None else sides | {"links": self.links}


class Tokenised(NamedTuple):
    """The pairs of a block both of whose sides become tokens."""

    text: Parallel  # these pairs, and how many were left out
    source: list[list[int]]  # ids without EOS
    target: list[list[int]]
    links: list[Links]  # between tokens; none where none are given


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
        UserError: A side becomes no token and ``faulty`` is ``stop``; a link is
            malformed or lies outside its pair; what `numbered` raises.
    """
    text, numbers = numbered(block, faulty)
    kept = Tokenised(Parallel([], []), [], [], [])
    nothing = 0
    for number, *pair in zip(numbers, text.source, text.target):
        ids = [encode(words, line) for words, line in zip(vocabularies, pair)]
        if not all(ids) and faulty != "keep":
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
        if block.links is not None:
            links = _links(block, number, pair)
            kept.links.append(token_links(vocabularies, pair, ids, links))
    left_out = {"empty": text.empty + nothing, "undecodable": text.undecodable}
    return kept._replace(text=kept.text._replace(**left_out))


def _links(block: Block, number: int, pair: Sequence[str]) -> Links:
    """The links between the words of a pair."""
    assert block.links is not None
    line, place = block.links[number - block.first], block.places[2]
    return links_between(pair, decode(line, place, number), f"{place} {number}")


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
        kept = Tokenised(Parallel([], []), [], [], [])
        for number in range(self.segmentations):
            encode = partial(self._encode, number)
            pairs = tokenised(self.vocabularies, block, self.faulty, encode)
            if number == 0:  # the same pairs are faulty each time
                dropped += Dropped(pairs.text.empty, pairs.text.undecodable)
            for place, ids in enumerate(zip(pairs.source, pairs.target)):
                short, long = sorted(map(len, ids))
                if long > self.longest:
                    dropped.too_long += 1
                elif self.max_ratio and long > self.max_ratio * short:
                    dropped.uneven += 1
                else:
                    kept.source.append(ids[0])
                    kept.target.append(ids[1])
                    kept.links.extend(pairs.links[place : place + 1])
        return EncodedBlock(
            source=joined(kept.source, id_type(len(self.vocabularies.source))),
            target=joined(kept.target, id_type(len(self.vocabularies.target))),
            dropped=dropped,
            links=None if block.links is None else self._flat_links(kept.links),
        )

    def _flat_links(self, pairs: list[Links]) -> Sentences:
        places = [place for links in pairs for link in sorted(links) for place in link]
        lengths = np.array([2 * len(links) for links in pairs], np.int32)
        return Sentences(np.array(places, id_type(self.longest)), lengths)

    def _encode(self, number: int, words: Vocabulary, line: str) -> list[int]:
        usual = words.encode(line)
        if not self.subword_dropout or len(usual) > self.longest:  # which is left out
            return usual
        if not isinstance(words, Subwords | Codes):
            return usual
        return words.sample(line, self.subword_dropout, number)


def id_type(size: int) -> type[np.integer]:
    """The smallest type for the ids of a vocabulary of this size."""
    return np.uint16 if size <= 1 << 16 else np.int32
