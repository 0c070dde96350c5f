# SPDX-License-Identifier: Apache-2.0
"""One vocabulary: sentences of one language to ids and back.

Those of source and target together are in `kvnmt.data.vocabularies`. Id 0 ends a
sentence, id 1 stands for every unknown word; both have a row in the embedding table, as
in the papers. An id below zero is no word at all (padding).

Words are what stands between ASCII spaces. Characters are Unicode code points, spaces
too. Subwords are SentencePiece's byte-pair encoding, learnt by `kvnmt.data.subwords`;
those of subword-nmt and fastBPE are in `kvnmt.data.codes`. No encoding ends with EOS,
and decoding leaves EOS and padding out.
"""

import random
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import ClassVar

import sentencepiece

from kvnmt.data.bpe_dropout import LONGEST, SPACE, Merges, merges_of
from kvnmt.data.config import Kind
from kvnmt.errors import OptionError

EOS, UNK, PAD = 0, 1, -1
SPECIAL = ("</s>", "<unk>")


class _Known(dict[str, int]):
    """Ids of words; the id of any other word is UNK."""

    def __missing__(self, word: str) -> int:
        return UNK


@dataclass(frozen=True)
class Listed:
    """Words, pieces of words or characters, by their place in a list."""

    words: tuple[str, ...] | str  # ids 2, 3, ...

    @cached_property
    def _ids(self) -> dict[str, int]:
        return _Known(zip(self.words, count(len(SPECIAL))))

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return (*SPECIAL, *self.words)

    def __len__(self) -> int:
        """The words and the two specials."""
        return len(self.words) + len(SPECIAL)

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The word of every id that is one."""
        return [self._names[i] for i in ids if i >= 0]


@dataclass(frozen=True)
class Words(Listed):
    """A vocabulary of words, the most frequent first."""

    kind: ClassVar[Kind] = "words"
    suffix: ClassVar[str] = ".words"

    def encode(self, line: str) -> list[int]:
        """Ids of the words between spaces; an unknown word is UNK."""
        return list(map(self._ids.__getitem__, filter(None, line.split(" "))))

    def decode(self, ids: Iterable[int]) -> str:
        """Words joined by spaces."""
        return " ".join(self.pieces(i for i in ids if i > EOS))

    @property
    def data(self) -> bytes:
        """One word per line."""
        return "".join(f"{word}\n" for word in self.words).encode()


@dataclass(frozen=True)
class Characters(Listed):
    """A vocabulary of code points; spaces at the ends of a line are dropped."""

    kind: ClassVar[Kind] = "characters"
    suffix: ClassVar[str] = ".characters"

    def encode(self, line: str) -> list[int]:
        """Ids of the characters; an unknown one is UNK."""
        return list(map(self._ids.__getitem__, line.strip(" ")))

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The character of every id that is one; a space as SentencePiece writes it."""
        return [SPACE if name == " " else name for name in super().pieces(ids)]

    def decode(self, ids: Iterable[int]) -> str:
        """The characters one behind the other."""
        return "".join(self._names[i] for i in ids if i > EOS)

    @property
    def data(self) -> bytes:
        """All of them in one line."""
        return "".join(self.words).encode()


@dataclass(frozen=True)
class Subwords:
    """A vocabulary of SentencePiece's byte-pair encoding."""

    kind: ClassVar[Kind] = "bpe"
    suffix: ClassVar[str] = ".model"
    data: bytes  # the serialised model

    @cached_property
    def _processor(self) -> sentencepiece.SentencePieceProcessor:
        return sentencepiece.SentencePieceProcessor(model_proto=self.data)

    @property
    def has_bytes(self) -> bool:
        """Whether a character without a piece becomes bytes, of which it has all."""
        return any(self._processor.is_byte(number) for number in range(self._size))

    @cached_property
    def _merges(self) -> Merges:
        return merges_of(self.data)

    @cached_property
    def _size(self) -> int:
        size = self._processor.get_piece_size()
        while size and self._processor.is_unused(size - 1):
            size -= 1
        return size

    def __len__(self) -> int:
        """Pieces, the two specials included, but none of those marked unused."""
        return self._size

    def encode(self, line: str) -> list[int]:
        """Ids of the pieces."""
        return self._processor.encode(line)

    def sample(self, line: str, dropout: float, number: int) -> list[int]:
        """Ids of pieces that were merged with some merges left out by chance.

        This is the BPE-dropout of Provilkov et al. (2020), `kvnmt.data.bpe_dropout`. A
        line of more than 2 000 characters keeps all its merges.

        Args:
            line: A sentence.
            dropout: Chance of a merge to be left out, each time that it could be made.
            number: Of the sample: the same line and number give the same pieces.
        """
        text = self._processor.normalize(line)
        if len(text) > LONGEST:
            return self.encode(line)
        draw = random.Random(zlib.crc32(f"{number} {line}".encode())).random
        ids: list[int] = []
        for piece in self._merges.pieces(text, dropout, draw):
            n = self._processor.piece_to_id(piece)
            if n != UNK or ids[-1:] != [UNK]:  # unknown characters in a row are one
                ids.append(n)
        return ids

    @property
    def symbols(self) -> Sequence[str]:
        """What is a piece wherever it stands, such as the tag of a language."""
        return self._merges.symbols

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The piece of every id that is one."""
        return [self._processor.id_to_piece(int(i)) for i in ids if i >= 0]

    def decode(self, ids: Iterable[int]) -> str:
        """Pieces joined to words, with no line feed, which a byte may be."""
        text = self._processor.decode([int(i) for i in ids if i > EOS])
        return text.replace("\n", " ")


def count_words(lines: Iterable[str]) -> Counter[str]:
    """Counts words, which are what stands between spaces."""
    return Counter(filter(None, " ".join(lines).split(" ")))


def count_characters(lines: Iterable[str]) -> Counter[str]:
    """Counts code points, but no spaces at the ends of a line."""
    return Counter("".join(line.strip(" ") for line in lines))


def keep_words(
    counts: Mapping[str, int], *, min_count: int = 1, size: int | None = None
) -> Words:
    """Takes the most frequent words, in order of frequency, then of spelling.

    Args:
        counts: How often every word occurs in the training text.
        min_count: A word must occur at least this often.
        size: At most this many rows, the two specials included.

    Raises:
        UserError: No word is kept.
    """
    return Words(tuple(ranked(counts, min_count, size)))


def keep_characters(
    counts: Mapping[str, int], *, min_count: int = 1, size: int | None = None
) -> Characters:
    """Does with characters what `keep_words` does with words."""
    return Characters("".join(ranked(counts, min_count, size)))


def ranked(counts: Mapping[str, int], min_count: int, size: int | None) -> list[str]:
    """The most frequent tokens, in order of frequency, then of spelling.

    Raises:
        OptionError: None is kept.
    """
    order = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    # In the text the specials are unknown words.
    kept = [word for word, n in order if n >= min_count and word not in SPECIAL]
    limit = None if size is None else max(size - len(SPECIAL), 0)
    if not kept[:limit]:
        raise OptionError(
            f"no word is kept with {{0}} {min_count} and {{1}} {size}; lower the first "
            "or raise the second.",
            *("data.min_count", "data.vocabulary_size"),
        )
    return kept[:limit]
