# SPDX-License-Identifier: Apache-2.0
"""One pass over the bytes of a text file: what is odd in it, and its lines as numbers.

Nothing a file holds stops the pass. A line that is not UTF-8 is noted and goes on with
U+FFFD in place of what cannot be decoded. Lines end at the line feed alone, as
everywhere in kvnmt. What stays in memory are a few numbers per line, one per word and
every distinct word once; the text itself does not.
"""

import re
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kvnmt.data.lines import opened
from kvnmt.data.text import is_blank
from kvnmt.data.vocabularies import Vocabulary
from kvnmt.data.vocabulary import UNK

BLOCK = 1 << 22  # bytes; a block goes on to the end of its last line
LOST = "lost"  # what another program put in the place of bytes
KINDS = {  # odd characters; all that `str.split` takes for a space is among them
    "carriage-return": "\r",  # but one before a line feed
    "line-separator": "\u2028",
    "paragraph-separator": "\u2029",
    "next-line": "\x85",
    "form-feed": "\f",
    "vertical-tab": "\v",
    "byte-order-mark": "\ufeff",
    "information-separator": "\x1c-\x1e",
    "control": "\0-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f",
    LOST: "\ufffd",
    "zero-width": "\xad\u200b-\u200f\u202a-\u202e\u2060-\u206f",
    "tab": "\t",
    "odd-space": "\xa0\u1680\u2000-\u200a\u202f\u205f\u3000",
}
WINDOWS = "windows-line-end"  # a carriage return before a line feed
ODD_CHARACTER = re.compile(f"[{''.join(KINDS.values())}]")  # a character of any kind
Index: TypeAlias = dict[str, int]  # words, numbered as they are first seen
_KINDS = {kind: re.compile(f"[{chars}]") for kind, chars in KINDS.items()}


class Undecodable(NamedTuple):
    """The first byte of a line that is not UTF-8; all places are counted from 1."""

    line: int
    byte: int  # in the line
    offset: int  # in the file
    value: int  # of the byte


@dataclass
class Odd:
    """How often a kind of odd character occurs, and on which line first."""

    line: int  # from 1
    count: int = 0


@dataclass(frozen=True)
class Scan:
    """The figures of a file; arrays have an entry per line."""

    path: str
    undecodable: list[Undecodable]  # one for each such line
    odd: dict[str, Odd]  # by kind
    words: NDArray[np.int32]  # numbers of all words, line after line
    starts: NDArray[np.int64]  # of every line in ``words``, and the end
    tokens: NDArray[np.int32]  # of the vocabulary; without a vocabulary, words
    unknown: int  # tokens the vocabulary lacks; without a vocabulary 0
    letters: NDArray[np.int32]  # characters
    hashes: NDArray[np.int64]  # of the text without spaces around it
    blank: NDArray[np.bool_]  # nothing but spaces, or nothing that becomes a token

    def __len__(self) -> int:
        """Returns the number of lines."""
        return len(self.blank)

    @property
    def broken(self) -> NDArray[np.bool_]:
        """Which lines are not UTF-8."""
        broken = np.zeros(len(self), np.bool_)
        broken[[fault.line - 1 for fault in self.undecodable]] = True
        return broken


def scan(
    path: Path | str,
    index: Index,
    vocabulary: Vocabulary | None = None,
    block: int = BLOCK,
) -> Scan:
    """Reads a file once.

    Args:
        path: The file; any bytes will do that are not those of packed text.
        index: Numbers of the words; new words are added.
        vocabulary: Counts tokens and unknown words, instead of words.
        block: Bytes that are read at a time.

    Raises:
        UserError: The file cannot be read, or is text of another kind.
    """
    reading = _Pass(index, vocabulary)
    with opened(path) as file:
        reading.bytes = file.tell()  # a byte-order mark
        while start := file.read(block):
            reading.add(start + file.readline())  # whole lines
    return reading.scan(str(path))


class _Pass:
    """The figures of what has been read so far."""

    def __init__(self, index: Index, vocabulary: Vocabulary | None) -> None:
        self.index, self.vocabulary = index, vocabulary
        self.lines = self.bytes = self.unknown = 0  # read before this block
        self.undecodable: list[Undecodable] = []
        self.odd: dict[str, Odd] = {}
        self.words, self.counts = array("i"), array("i")
        self.tokens, self.letters = array("i"), array("i")
        self.hashes, self.blank = array("q"), bytearray()

    def add(self, block: bytes) -> None:
        """Counts a block of lines, the last perhaps without a line feed."""
        try:
            lines = block.decode().split("\n")
        except UnicodeDecodeError:
            lines = self._decode(block)
        if ODD_CHARACTER.search("\n".join(lines)):
            self._add_odd(lines)
        if block.endswith(b"\n"):
            lines.pop()
        for line in lines:
            self._add_line(line.removesuffix("\r"))
        self.lines += len(lines)
        self.bytes += len(block)

    def scan(self, path: str) -> Scan:
        """Returns everything as arrays."""
        counts = np.array(self.counts, np.int64)
        tokens = self.counts if self.vocabulary is None else self.tokens
        return Scan(
            path=path,
            undecodable=self.undecodable,
            odd=self.odd,
            words=np.frombuffer(self.words, np.int32),  # all of them: no copy
            starts=np.concatenate([[0], np.cumsum(counts)]),
            tokens=np.array(tokens, np.int32),
            unknown=self.unknown,
            letters=np.array(self.letters, np.int32),
            hashes=np.array(self.hashes, np.int64),
            blank=np.array(self.blank, np.bool_),
        )

    def _add_line(self, line: str) -> None:
        words = list(filter(None, line.split(" ")))
        index = self.index
        self.words.extend([index.setdefault(word, len(index)) for word in words])
        self.counts.append(len(words))
        text = line.strip()
        self.letters.append(len(text))
        self.hashes.append(hash(text))
        nothing = is_blank(text)
        if self.vocabulary is not None:
            ids = self.vocabulary.encode(line)
            self.tokens.append(len(ids))
            self.unknown += ids.count(UNK)
            nothing = nothing or not ids
        self.blank.append(nothing)

    def _decode(self, block: bytes) -> list[str]:
        lines, start = [], self.bytes
        for number, line in enumerate(block.split(b"\n"), self.lines + 1):
            try:
                lines.append(line.decode())
            except UnicodeDecodeError as error:
                self.undecodable.append(
                    Undecodable(
                        line=number,
                        byte=error.start + 1,
                        offset=start + error.start + 1,
                        value=line[error.start],
                    )
                )
                lines.append(line.decode(errors="replace"))
            start += len(line) + 1
        return lines

    def _add_odd(self, lines: list[str]) -> None:
        """Counts the odd characters of every line."""
        broken = {fault.line for fault in self.undecodable if fault.line > self.lines}
        for number, line in enumerate(lines, self.lines + 1):
            if not ODD_CHARACTER.search(line):
                continue
            if line.endswith("\r"):
                self._count(WINDOWS, number, 1)
                line = line[:-1]
            for kind, pattern in _KINDS.items():
                if number in broken and kind == LOST:
                    continue  # put there by the pass itself
                if count := len(pattern.findall(line)):
                    self._count(kind, number, count)

    def _count(self, kind: str, line: int, count: int) -> None:
        self.odd.setdefault(kind, Odd(line)).count += count
