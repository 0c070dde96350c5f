# SPDX-License-Identifier: Apache-2.0
"""Reading text: bytes, split on the line feed alone, decoded strictly.

U+2028, NEL, form feed and their like neither split nor join lines here, as they do
in `str.splitlines`. A carriage return before the line feed is dropped.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import islice, zip_longest
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from kvnmt.data.lines import bare, count_lines, disguise, opened, read_blocks
from kvnmt.errors import OptionError, UserError, counted

BLOCK = 10_000  # pairs read at a time
# Spaces, control characters and others that nobody sees, U+FFFD for what is lost.
_BLANK = re.compile(
    r"[\s\0-\x1f\x7f-\x9f\xad\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufffd]*"
)
Faulty: TypeAlias = Literal["stop", "skip", "keep"]


class Block(NamedTuple):
    """Consecutive pairs of undecoded sentences, and their place in the text."""

    source: list[bytes]
    target: list[bytes]
    first: int  # number of the first, from 1
    # what its number follows, by side and of the links: ``a.de, line``
    places: tuple[str, ...]
    links: list[bytes] | None = (
        None  # between the words of each pair, if they are given
    )


class Parallel(NamedTuple):
    """Sentences and their translations, and how many pairs were left out."""

    source: list[str]
    target: list[str]
    empty: int = 0  # pairs skipped because a side is empty
    undecodable: int = 0  # pairs skipped because a side is not UTF-8


def read_lines(path: Path | str) -> list[str]:
    """Reads the lines of a UTF-8 file, plain or compressed with gzip.

    Raises:
        UserError: The file cannot be read or decompressed, or a line of it is not
            UTF-8.
    """
    with opened(path, once=True) as file:
        return decode_lines(file, str(path))


def decode_lines(lines: Iterable[bytes], name: str) -> list[str]:
    """Decodes the lines of a file called ``name``.

    Raises:
        UserError: A line is not UTF-8.
    """
    place = f"{name}, line"
    return [decode(bare(line), place, number) for number, line in enumerate(lines, 1)]


def decode(sentence: bytes, place: str, number: int) -> str:
    """Decodes a sentence.

    Args:
        sentence: Its bytes.
        place: What the number follows, for people: ``"train.de, line"``.
        number: Of the sentence, from 1.

    Raises:
        UserError: The sentence is not UTF-8.
    """
    try:
        return sentence.decode("utf-8")
    except UnicodeDecodeError as error:
        byte, remedy = sentence[error.start], "convert the text, as with iconv"
        if number == 1:
            remedy = disguise(sentence) or remedy
        place = f"{place} {number}: byte {error.start + 1} (0x{byte:02x})"
        raise UserError(f"{place} is not UTF-8; {remedy}.") from None


def read_parallel(
    source: Path | str, target: Path | str, *, faulty: Faulty = "stop"
) -> Parallel:
    """Reads two files whose lines translate each other.

    Args:
        source: File of source sentences.
        target: File of their translations.
        faulty: What to do with a pair that has an empty side or is not UTF-8.

    Raises:
        UserError: A file is missing or empty; the line counts differ; nothing is
            left; what `clean` raises.
    """
    count_parallel(source, target)
    blocks = parallel_blocks(source, target)
    return collect(blocks, faulty, f"line of '{source}' and '{target}'")


def count_parallel(source: Path | str, target: Path | str) -> int:
    """Returns how many lines each of the two files has.

    Raises:
        UserError: A file is missing or empty, or the line counts differ.
    """
    counts = count_lines(source), count_lines(target)
    for path, count in zip((source, target), counts):
        if not count:
            raise UserError(f"'{path}' is empty; it needs one sentence per line.")
    if counts[0] != counts[1]:
        raise UserError(
            f"'{source}' has {counted(counts[0], 'line')} but '{target}' has "
            f"{counts[1]}; line n of one must translate line n of the other."
        )
    return counts[0]


def parallel_blocks(
    source: Path | str, target: Path | str, size: int = BLOCK
) -> Iterator[Block]:
    """Reads two files of equally many lines, ``size`` lines at a time.

    Raises:
        UserError: A file cannot be read, or they no longer have equally many lines.
    """
    places = f"{source}, line", f"{target}, line"
    first = 1
    for sources, targets in zip_longest(
        read_blocks(source, size), read_blocks(target, size), fillvalue=()
    ):
        if len(sources) != len(targets):
            raise UserError(
                f"'{source}' and '{target}' had equally many lines and no longer have; "
                "start again once nobody changes them."
            )
        yield Block(list(sources), list(targets), first, places)
        first += len(sources)


def count_tsv(path: Path | str) -> int:
    """Returns how many pairs the file has.

    Raises:
        UserError: The file is missing or empty.
    """
    count = count_lines(path)
    if not count:
        raise UserError(f"'{path}' is empty; it needs one pair per line.")
    return count


def tsv_blocks(
    path: Path | str, size: int = BLOCK, faulty: Faulty = "stop"
) -> Iterator[Block]:
    """Reads a file of sentence, tab and translation, ``size`` lines at a time.

    A line of other columns is an error, or, if ``faulty`` is ``skip``, empty.
    """
    places = f"{path}, the source of line", f"{path}, the target of line"
    with opened(path) as file:
        first = 1
        while lines := list(islice(file, size)):
            rows = [
                _columns(line, path, i, faulty) for i, line in enumerate(lines, first)
            ]
            source, target = map(list, zip(*rows))
            yield Block(source, target, first, places)
            first += len(lines)


def is_blank(line: str) -> bool:
    """Whether nothing in a line can be seen; subwords make no token of it."""
    return _BLANK.fullmatch(line) is not None


def clean(block: Block, faulty: Faulty) -> Parallel:
    """Decodes pairs; leaves out the faulty ones, refuses them or keeps empty ones.

    Raises:
        UserError: What `numbered` raises.
    """
    return numbered(block, faulty)[0]


def numbered(block: Block, faulty: Faulty) -> tuple[Parallel, list[int]]:
    """As `clean`, with the number of every pair that is left, from 1.

    Raises:
        UserError: A side is not UTF-8 and ``faulty`` is not ``skip``, or empty and
            ``faulty`` is ``stop``.
    """
    kept, numbers, empty, undecodable = Parallel([], []), [], 0, 0
    for number, pair in enumerate(zip(block.source, block.target), block.first):
        try:
            source, target = (
                decode(side, place, number) for side, place in zip(pair, block.places)
            )
        except UserError:
            if faulty != "skip":
                raise
            undecodable += 1
            continue
        blank = is_blank(source), is_blank(target)
        if faulty != "keep" and any(blank):
            if faulty == "stop":
                side = blank.index(True)
                nothing = not (target if side else source).strip()
                what = "is empty" if nothing else "holds nothing that can be seen"
                raise faulty_side(block, number, side, what)
            empty += 1
            continue
        kept.source.append(source)
        kept.target.append(target)
        numbers.append(number)
    return kept._replace(empty=empty, undecodable=undecodable), numbers


def faulty_side(block: Block, number: int, side: int, what: str) -> UserError:
    """Builds the error for a pair of a block with a side of which nothing is left."""
    return OptionError(
        f"{block.places[side]} {number} {what}; remove the pair, or skip such pairs "
        "with {0} skip.",
        "data.faulty",
    )


def collect(blocks: Iterable[Block], faulty: Faulty, unit: str) -> Parallel:
    """Cleans all blocks and joins them.

    Args:
        blocks: Of one text.
        faulty: What to do with a pair that has an empty side or is not UTF-8.
        unit: What holds a pair, for people: ``line of 'a' and 'b'``.

    Raises:
        UserError: Nothing is left; what `clean` raises.
    """
    source, target, empty, undecodable = [], [], 0, 0
    for block in blocks:
        kept = clean(block, faulty)
        source += kept.source
        target += kept.target
        empty, undecodable = empty + kept.empty, undecodable + kept.undecodable
    if not source:
        raise nothing_left(unit)
    return Parallel(source, target, empty, undecodable)


def nothing_left(unit: str) -> UserError:
    """Builds the error for text of which every pair is faulty."""
    return UserError(f"no {unit} has both sides.")


def _columns(
    line: bytes, path: Path | str, number: int, faulty: Faulty
) -> tuple[bytes, bytes]:
    """Both sides of a line."""
    columns = bare(line).split(b"\t")
    if not line.strip():
        columns = [b"", b""]
    if len(columns) == 2:
        return columns[0], columns[1]
    if faulty == "skip":
        return b"", b""
    raise OptionError(
        f"{path}, line {number} has {counted(len(columns), 'column')}; it needs two: "
        "a sentence, a tab and its translation"
        f"{' (cut -f with the numbers of both)' if len(columns) > 2 else ''}, or "
        "skip such lines with {0} skip.",
        "data.faulty",
    )
