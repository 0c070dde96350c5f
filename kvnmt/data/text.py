# SPDX-License-Identifier: Apache-2.0
"""Reading text: bytes, split on the line feed alone, decoded strictly.

U+2028, NEL, form feed and their like neither split nor join lines here, as they do
in `str.splitlines`. A carriage return before the line feed is dropped.

A file that begins with the two bytes of gzip, as no UTF-8 text does, is decompressed.
"""

import contextlib
import gzip
import zlib
from collections.abc import Iterable, Iterator
from itertools import islice, zip_longest
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple, TypeAlias

from kvnmt.errors import OptionError, UserError, counted

GZIP = b"\x1f\x8b"  # a whole character and a byte that can only continue one
BLOCK = 10_000  # pairs read at a time
Faulty: TypeAlias = Literal["stop", "skip", "keep"]


class Block(NamedTuple):
    """Consecutive pairs of undecoded sentences, and their place in the text."""

    source: list[bytes]
    target: list[bytes]
    first: int  # number of the first, from 1
    places: tuple[str, str]  # what its number follows, by side: ``a.de, line``


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
    with opened(path) as file:
        return decode_lines(file.read(), str(path))


def decode_lines(data: bytes, name: str) -> list[str]:
    """Splits and decodes the contents of a file called ``name``.

    Raises:
        UserError: A line is not UTF-8.
    """
    lines = data.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    place = f"{name}, line"
    return [
        decode(line.removesuffix(b"\r"), place, number)
        for number, line in enumerate(lines, 1)
    ]


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
        if number == 1 and sentence.startswith(GZIP):
            remedy = "it is compressed, so give what gzip -dc makes of it"
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
        _lines(source, size), _lines(target, size), fillvalue=()
    ):
        if len(sources) != len(targets):
            raise UserError(
                f"'{source}' and '{target}' had equally many lines and no longer have; "
                "start again once nobody changes them."
            )
        yield Block(list(sources), list(targets), first, places)
        first += len(sources)


def count_lines(path: Path | str) -> int:
    """Returns how many lines a file has; the last may lack its line feed."""
    count, last = 0, b"\n"
    with opened(path) as file:
        while data := file.read(1 << 20):
            count += data.count(b"\n")
            last = data[-1:]
    return count + (last != b"\n")


def count_tsv(path: Path | str) -> int:
    """Returns how many pairs the file has.

    Raises:
        UserError: The file is missing or empty.
    """
    count = count_lines(path)
    if not count:
        raise UserError(f"'{path}' is empty; it needs one pair per line.")
    return count


def tsv_blocks(path: Path | str) -> Iterator[Block]:
    """Reads a file of sentence, tab and translation, some lines at a time."""
    places = f"{path}, the source of line", f"{path}, the target of line"
    with opened(path) as file:
        first = 1
        while lines := list(islice(file, BLOCK)):
            rows = [_columns(line, path, i) for i, line in enumerate(lines, first)]
            source, target = map(list, zip(*rows))
            yield Block(source, target, first, places)
            first += len(lines)


def clean(block: Block, faulty: Faulty) -> Parallel:
    """Decodes pairs; leaves out the faulty ones, refuses them or keeps empty ones.

    Raises:
        UserError: A side is not UTF-8 and ``faulty`` is not ``skip``, or empty and
            ``faulty`` is ``stop``.
    """
    kept, empty, undecodable = Parallel([], []), 0, 0
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
        if faulty != "keep" and not (source.strip() and target.strip()):
            if faulty == "stop":
                raise faulty_side(block, number, 1 if source.strip() else 0, "is empty")
            empty += 1
            continue
        kept.source.append(source)
        kept.target.append(target)
    return kept._replace(empty=empty, undecodable=undecodable)


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


@contextlib.contextmanager
def opened(path: Path | str) -> Iterator[BinaryIO | gzip.GzipFile]:
    """Opens a file, plain or compressed with gzip, for reading bytes.

    Raises:
        UserError: The file cannot be read or decompressed, now or while it is open.
    """
    try:
        with Path(path).open("rb") as raw:
            if not raw.seekable():
                raise UserError(
                    f"'{path}' is a pipe, and text is read several times; write it to "
                    "a file first."
                )
            packed = raw.read(len(GZIP)) == GZIP
            raw.seek(0)
            yield gzip.open(raw) if packed else raw
    except FileNotFoundError:
        place = "" if Path(path).is_absolute() else ", seen from the current folder"
        raise UserError(f"there is no file '{path}'{place}; check the path.") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        ends = isinstance(error, EOFError)
        reason = "it ends too early" if ends else f"it is damaged ({error})"
        raise UserError(
            f"'{path}' cannot be decompressed: {reason}; copy it again, check it with "
            "gzip -t."
        ) from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(f"'{path}' cannot be read: {reason}.") from None


def _lines(path: Path | str, size: int) -> Iterator[list[bytes]]:
    with opened(path) as file:
        while lines := list(map(_bare, islice(file, size))):
            yield lines


def _bare(line: bytes) -> bytes:
    return line.removesuffix(b"\n").removesuffix(b"\r")


def _columns(line: bytes, path: Path | str, number: int) -> tuple[bytes, bytes]:
    columns = _bare(line).split(b"\t")
    if not line.strip():
        columns = [b"", b""]
    if len(columns) != 2:
        raise UserError(
            f"{path}, line {number} has {len(columns)} column"
            f"{'' if len(columns) == 1 else 's'}; it needs two: a sentence, a tab and "
            "its translation."
        )
    return columns[0], columns[1]
