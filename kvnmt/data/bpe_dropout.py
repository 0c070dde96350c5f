# SPDX-License-Identifier: Apache-2.0
"""A byte-pair encoding with merges left out by chance (Provilkov et al. 2020).

The same line and seed give the same pieces in every process. SentencePiece cannot do
that: up to version 0.2.1 only a thread's first seed counts, and from 0.2.2 on every
process mixes a number of its own into it.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

from sentencepiece import sentencepiece_model_pb2

PROTOCOL: Any = sentencepiece_model_pb2  # its classes are made when it is imported
SPACE = "\u2581"  # what SentencePiece writes for one
LONGEST = 2_000  # characters of a line: the time grows with the square of a word's
WORD = re.compile(f"{SPACE}?[^{SPACE}]+|{SPACE}")  # no piece goes over a space


class Merges(NamedTuple):
    """What a model merges: the highest score first, the leftmost of equals."""

    scores: Mapping[str, float]  # of what a merge may make
    unused: Set[str]  # what is merged on the way to longer pieces alone
    symbols: Sequence[str] = ()  # what is a piece wherever it stands

    def pieces(
        self, text: str, dropout: float, draw: Callable[[], float]
    ) -> Iterator[str]:
        """The pieces of a line, by algorithm 1 of the paper.

        Args:
            text: As SentencePiece normalises it.
            dropout: Chance of a merge to be left out, each time that it could be made.
            draw: Gives random numbers from 0 to 1.
        """
        for word in self._words(text):
            if word in self.symbols:
                yield word
                continue
            symbols, parts = list(word), {}
            while pairs := list(self._pairs(symbols, dropout, draw)):
                place = -max(pairs)[1]
                left, right = symbols[place : place + 2]
                parts[left + right] = left, right
                symbols[place : place + 2] = [left + right]
            yield from self._used(symbols, parts)

    def _words(self, text: str) -> Iterator[str]:
        """What no piece goes beyond, symbols by themselves: the longest that fits."""
        longest = sorted(map(re.escape, self.symbols), key=len, reverse=True)
        parts = re.split(f"({'|'.join(longest)})", text) if longest else [text]
        for part in parts:
            yield from [part] if part in self.symbols else WORD.findall(part)

    def _pairs(
        self, symbols: list[str], dropout: float, draw: Callable[[], float]
    ) -> Iterator[tuple[float, int]]:
        """Neighbours that may be merged now: their score, and minus their place."""
        for place, (left, right) in enumerate(zip(symbols, symbols[1:])):
            score = self.scores.get(left + right)
            if score is not None and draw() >= dropout:
                yield score, -place

    def _used(
        self, symbols: Iterable[str], parts: Mapping[str, tuple[str, str]]
    ) -> Iterator[str]:
        """The symbols, and for those that are unused what they were merged from."""
        for symbol in symbols:
            if symbol in self.unused and symbol in parts:
                yield from self._used(parts[symbol], parts)
            else:
                yield symbol


def merges_of(model: bytes) -> Merges:
    """What a SentencePiece model merges."""
    kinds = PROTOCOL.ModelProto.SentencePiece
    pieces = PROTOCOL.ModelProto.FromString(model).pieces
    merged = [piece for piece in pieces if piece.type in (kinds.NORMAL, kinds.UNUSED)]
    return Merges(
        scores={piece.piece: piece.score for piece in merged if piece.piece[1:]},
        unused={piece.piece for piece in merged if piece.type == kinds.UNUSED},
        symbols=[piece.piece for piece in pieces if piece.type == kinds.USER_DEFINED],
    )
