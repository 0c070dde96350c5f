# SPDX-License-Identifier: Apache-2.0
"""Subwords by the merges of another program: the codes of subword-nmt or fastBPE.

Sennrich et al. (2016) cut a word into characters, of which the last has ``</w>`` behind
it, and merge neighbours in the order in which merges were learnt. All pieces but the
last of a word end in ``@@``. Text is given to kvnmt as whole words, and comes back so.
The pieces are those of ``subword-nmt apply-bpe``, with its ``--vocabulary`` too: a
piece that is not in the vocabulary is cut again into what it was merged from. A word of
more than 100 characters is merged in stretches of so many: time grows with the square.
"""

import random
import re
import zlib
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, TypeAlias

from kvnmt.data.config import Kind
from kvnmt.data.vocabulary import EOS, SPECIAL, UNK, Listed, ranked

MARK, END = "@@", "</w>"
VERSION, VOCABULARY = "#version: ", "#vocabulary"  # lines of a file
MOST, LONGEST = 100_000, 100  # words whose pieces are remembered, and their characters
Pair: TypeAlias = tuple[str, str]


@dataclass(frozen=True)
class Codes(Listed):
    """A vocabulary of what the merges of subword-nmt make of words.

    Without pieces it is none yet, and only cuts words.
    """

    kind: ClassVar[Kind] = "codes"
    suffix: ClassVar[str] = ".codes"
    merges: tuple[Pair, ...]  # the first is made first
    version: str = "0.2"  # 0.1: the end of a word is a symbol of its own

    def encode(self, line: str) -> list[int]:
        """Ids of the pieces of the words between spaces; an unknown one is UNK."""
        ids: list[int] = []
        for word in filter(None, line.split(" ")):
            known = self._remembered.get(word)
            if known is None:
                known = [self._ids[piece] for piece in self.cut(word)]
                if len(word) <= LONGEST:
                    if len(self._remembered) >= MOST:
                        self._remembered.clear()
                    self._remembered[word] = known
            ids += known
        return ids

    def sample(self, line: str, dropout: float, number: int) -> list[int]:
        """Ids of pieces that were merged with some merges left out by chance.

        Args:
            line: A sentence.
            dropout: Chance of a merge to be left out, each time that it could be made
                (Provilkov et al. 2020).
            number: Of the sample: the same line and number give the same pieces.

        Returns:
            Ids; a word that would have an unknown piece has its usual ids.
        """
        draw = random.Random(zlib.crc32(f"{number} {line}".encode())).random
        ids: list[int] = []
        for word in filter(None, line.split(" ")):
            pieces = self.cut(word, lambda: draw() < dropout)
            some = [self._ids[piece] for piece in pieces]
            ids += self.encode(word) if UNK in some else some
        return ids

    def cut(self, word: str, left_out: Callable[[], bool] | None = None) -> list[str]:
        """The pieces of a word, all but the last with the mark behind them.

        Args:
            word: At least one character.
            left_out: Whether a merge that could be made is left out; None: none is.
        """
        letters = self._symbols(word)
        symbols = [
            symbol
            for n in range(0, len(letters), LONGEST)
            for symbol in self._merged(letters[n : n + LONGEST], left_out)
        ]
        if symbols[-1] == END:
            symbols.pop()
        symbols[-1] = symbols[-1].removesuffix(END)
        *before, last = symbols
        pieces = [p for symbol in before for p in self._known(symbol, MARK)]
        return pieces + list(self._known(last, ""))

    def decode(self, ids: Iterable[int]) -> str:
        """Pieces joined to words."""
        text = " ".join(self.pieces(i for i in ids if i > EOS))
        return f"{text} ".replace(f"{MARK} ", "").removesuffix(" ")

    @property
    def data(self) -> bytes:
        """The merges as subword-nmt writes them, then a piece per line."""
        lines = [f"{VERSION}{self.version}", *map(" ".join, self.merges)]
        return "".join(f"{x}\n" for x in (*lines, VOCABULARY, *self.words)).encode()

    def _symbols(self, word: str) -> list[str]:
        if len(word) == 1:
            return [word]
        if self.version == "0.1":
            return [*word, END]
        return [*word[:-1], word[-1] + END]

    def _merged(
        self, symbols: list[str], left_out: Callable[[], bool] | None
    ) -> list[str]:
        """The symbols, merged as long as there is a merge that is not left out."""
        while len(symbols) > 1:
            places = [
                (rank, n)
                for n, pair in enumerate(zip(symbols, symbols[1:]))
                if (rank := self._ranks.get(pair)) is not None
                and not (left_out and left_out())
            ]
            if not places:
                break
            first = min(places)[0]
            merged, n = list[str](), 0
            for place in (at for rank, at in places if rank == first):
                if place >= n:  # else one half is in the merge before: x x x
                    merged += [*symbols[n:place], symbols[place] + symbols[place + 1]]
                    n = place + 2
            symbols = merged + symbols[n:]
        return symbols

    def _known(self, symbol: str, mark: str) -> Iterator[str]:
        """The piece, or those of which it was merged, as far as they are known."""
        left = [(symbol, mark)]
        while left:
            symbol, mark = left.pop()
            parts = self._parts.get(symbol if mark else symbol + END)
            # In version 0.1 the end is no part of the last letter. There subword-nmt
            # itself leaves the last piece whole, which is then unknown.
            if self.version == "0.1" and (parts is None or parts[1] == END):
                parts = self._parts.get(symbol)
            if symbol + mark in self._ids or parts is None or not self.words:
                yield symbol + mark
                continue
            left.append((parts[1] if mark else parts[1].removesuffix(END), mark))
            left.append((parts[0], MARK))

    @cached_property
    def _ranks(self) -> Mapping[Pair, int]:
        """When each merge is made; of two that are alike the first counts."""
        return {pair: n for n, pair in reversed(list(enumerate(self.merges)))}

    @cached_property
    def _parts(self) -> Mapping[str, Pair]:
        """What a piece was merged from; of several ways the one learnt first."""
        return {"".join(pair): pair for pair in self._ranks}

    @cached_property
    def _remembered(self) -> dict[str, list[int]]:
        return {}


def read_codes(data: bytes) -> Codes:
    """Reads merges, of subword-nmt, of fastBPE or with the pieces of `Codes.data`.

    Raises:
        ValueError: A line is no merge or no piece; it is named.
    """
    lines = data.removeprefix(BOM_UTF8).decode().rstrip("\n").split("\n")
    version, first = "0.1", 0
    if lines[0].startswith("#version"):
        version = re.sub(r"(\.0)*\s*$", "", lines[0].partition(":")[2].strip())
        first = 1
    if version not in ("0.1", "0.2"):
        raise ValueError(f"its version is {version}, and 0.1 and 0.2 are known")
    last = lines.index(VOCABULARY) if VOCABULARY in lines else len(lines)
    merges = [tuple(line.rstrip("\r ").split(" ")) for line in lines[first:last]]
    if not first and all(len(m) == 3 and m[2].isdecimal() for m in merges):
        version, merges = "0.2", [merge[:2] for merge in merges]  # fastBPE's, counted
    for number, merge in enumerate(merges, first + 1):
        if len(merge) != 2 or not all(merge):
            raise ValueError(f"line {number} is not two pieces, which are merged")
        if "".join(merge).endswith(END) and not merge[1].endswith(END):
            raise ValueError(f"line {number} cuts {END} in two")
    words = tuple(lines[last + 1 :])
    for number, word in enumerate(words, last + 2):
        if not word or " " in word or word in SPECIAL:
            raise ValueError(f"line {number} is no piece")
    if len({*words}) < len(words):
        raise ValueError("a piece stands in it twice")
    return Codes(words, tuple((a, b) for a, b in merges), version)


def keep_pieces(
    codes: Codes,
    counts: Mapping[str, int],
    *,
    min_count: int = 1,
    size: int | None = None,
) -> Codes:
    """Does with the pieces of words what `keep_words` does with words.

    Letters are pieces, too, though merged wherever they occur: what is cut again, or
    not merged by chance, becomes letters in the end.

    Args:
        codes: The merges.
        counts: How often every word occurs in the training text.
        min_count: A piece must occur at least this often.
        size: At most this many rows, the two specials included.

    Raises:
        OptionError: No piece is kept.
    """
    pieces: Counter[str] = Counter()
    letters: Counter[str] = Counter()
    for word, n in counts.items():
        for piece in codes.cut(word):
            pieces[piece] += n
        for letter in (*(f"{one}{MARK}" for one in word[:-1]), word[-1]):
            letters[letter] += n
    both = letters | pieces  # of either the greater count
    return replace(codes, words=tuple(ranked(both, min_count, size)))
