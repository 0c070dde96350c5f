# SPDX-License-Identifier: Apache-2.0
"""Lines and sentences of ids that a caller gives: checked before any work, and read."""

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import chain

import numpy as np

from kvnmt.data.vocabularies import Vocabulary
from kvnmt.data.vocabulary import EOS, UNK, Subwords, Words
from kvnmt.errors import UserError

NOWHERE = "\uffff"  # a character that no text has, and no vocabulary
LARGEST = 2**31  # numbers of sentences are below it
APART = 15_485_863  # between two parts of a line: a prime number


def check_ids(sentences: Sequence[Sequence[int]], words: int, what: str) -> None:
    """Refuses sentences with ids that are no words.

    An array would accept them: an id that is too large would read the last row of a
    table, and words would follow an end of sentence.

    Args:
        sentences: Ids without EOS.
        words: Rows of the vocabulary.
        what: What each of them is, for people.

    Raises:
        UserError: An id is outside of the vocabulary, or ends the sentence.
    """
    try:
        flat = np.array([*chain.from_iterable(sentences)])
    except (TypeError, ValueError):  # not iterable, or of unlike shapes
        flat = np.array(["no ids"])
    if flat.ndim != 1 or len(flat) and flat.dtype.kind not in "iu":
        raise UserError(
            f"a {what} is a list of ids; encode text with the vocabulary first."
        )
    wrong = np.flatnonzero((flat <= EOS) | (flat >= words))
    if not len(wrong):
        return
    ends = np.cumsum([len(ids) for ids in sentences])
    place, found = int(np.searchsorted(ends, wrong[0], "right")), int(flat[wrong[0]])
    reason = f"the vocabulary has ids up to {words - 1}, and those of words begin at 1"
    if found == EOS:
        reason = "that is the end of sentence, which is added by itself"
    raise UserError(f"{what} {place}, counted from 0, holds the id {found}; {reason}.")


def check_counts(ours: int, what: str, theirs: int, others: str) -> None:
    """Refuses lists that belong together and differ in length.

    Raises:
        UserError: They do; both lengths are named.
    """
    if ours != theirs:
        raise UserError(
            f"there are {ours} {what} but {theirs} {others}; give one each."
        )


def text_lines(
    lines: Iterable[str], names: tuple[str, str] = ("line", "lines")
) -> list[str]:
    """A list of lines; a single text is refused: it would be a list of letters.

    Args:
        lines: What somebody gave.
        names: What one of them is called, and several.

    Raises:
        UserError: They are something else.
    """
    one, several = names
    if isinstance(lines, (str, bytes)):
        raise UserError(
            f"a list of {several} is needed; put a single {one} in brackets."
        )
    if isinstance(lines, (Set, Mapping)) or not isinstance(lines, Iterable):
        kind = type(lines).__name__
        raise UserError(f"a list of {several} is needed, and this is of type {kind}.")
    lines = list(lines)
    for number, line in enumerate(lines):
        if not isinstance(line, str):
            kind = type(line).__name__
            raise UserError(
                f"{one} {number}, counted from 0, is of type {kind}; pass texts alone."
            )
        if "\n" in line:
            raise UserError(
                f"{one} {number}, counted from 0, holds a line feed; split it there."
            )
        try:
            line.encode()
        except UnicodeEncodeError:
            raise UserError(
                f"{one} {number}, counted from 0, holds half of a surrogate pair, "
                "which no UTF-8 text has; decode it anew."
            ) from None
    return lines


def part_number(line: int, part: int) -> int:
    """The number of a part of a line that was cut; a whole line has its own.

    What is drawn for a part depends on it, and not on how other lines were cut.

    Args:
        line: Its place among all lines, from 0.
        part: Its place in the line, from 0.
    """
    return (line + part * APART) % LARGEST


def begun_ids(vocabulary: Vocabulary, text: str) -> list[int]:
    """Ids of text that a translation is to begin with.

    It may be the beginning of one that was written: an unknown word in it is that same
    token again, not the characters that show it.
    """
    if isinstance(vocabulary, Words):
        return vocabulary.encode(text)  # a word that is spelt so is unknown
    mark = vocabulary.decode([UNK]).strip()
    if not mark:
        return vocabulary.encode(text)
    shown = re.escape(mark)
    if isinstance(vocabulary, Subwords):
        shown = f"(?:^| ){shown}(?: |$)"
    ids = vocabulary.encode(re.sub(shown, NOWHERE, text))
    return ids if UNK in ids else vocabulary.encode(text)
