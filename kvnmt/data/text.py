# SPDX-License-Identifier: Apache-2.0
"""Reading text: bytes, split on the line feed alone, decoded strictly.

U+2028, NEL, form feed and their like neither split nor join lines here, as they do
in `str.splitlines`. A carriage return before the line feed is dropped.

A file that begins with the two bytes of gzip is decompressed, whatever its name: no
UTF-8 text begins with them.
"""

import gzip
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from kvnmt.errors import UserError

GZIP = b"\x1f\x8b"  # a whole character and a byte that can only continue one
Empty: TypeAlias = Literal["stop", "skip", "keep"]


class Parallel(NamedTuple):
    """Sentences and their translations, and how many pairs were left out."""

    source: list[str]
    target: list[str]
    empty: int = 0  # pairs skipped because a side is empty


class Pairs(NamedTuple):
    """Sentences and their translations as they were read, and where they stand."""

    source: Sequence[str]
    target: Sequence[str]
    places: tuple[str, str]  # what a sentence's number from 1 follows, of each side
    whole: str  # what there is one of for every pair, for people


def read_lines(path: Path | str) -> list[str]:
    """Reads the lines of a UTF-8 file, plain or compressed with gzip.

    Raises:
        UserError: The file cannot be read or decompressed, or a line of it is not
            UTF-8.
    """
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise UserError(f"there is no file '{path}'; check the path.") from None
    except OSError as error:
        raise UserError(f"'{path}' cannot be read: {error.strerror}.") from None
    if data.startswith(GZIP):
        data = _decompress(data, path)
    return decode_lines(data, str(path))


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
        sentence: What stands there.
        place: What the number follows, for people: ``"train.de, line"``.
        number: Of the sentence, from 1.

    Raises:
        UserError: The sentence is not UTF-8.
    """
    try:
        return sentence.decode("utf-8")
    except UnicodeDecodeError as error:
        byte = sentence[error.start]
        raise UserError(
            f"{place} {number}: byte {error.start + 1} (0x{byte:02x}) is not "
            f"UTF-8; convert the text, for example with iconv."
        ) from None


def read_parallel(
    source: Path | str, target: Path | str, *, empty: Empty = "stop"
) -> Parallel:
    """Reads two files whose lines translate each other.

    Args:
        source: File of source sentences.
        target: File of their translations.
        empty: What to do with a pair that has an empty side.

    Raises:
        UserError: A file is missing, empty or not UTF-8; the line counts differ; a
            line is empty and ``empty`` is ``stop``.
    """
    sides = read_lines(source), read_lines(target)
    for path, lines in zip((source, target), sides):
        if not lines:
            raise UserError(f"'{path}' is empty; it needs one sentence per line.")
    if len(sides[0]) != len(sides[1]):
        raise UserError(
            f"'{source}' has {len(sides[0])} lines but '{target}' has "
            f"{len(sides[1])}; line n of one must translate line n of the other."
        )
    places = f"{source}, line", f"{target}, line"
    return choose(Pairs(*sides, places, f"line of '{source}' and '{target}'"), empty)


def read_tsv(path: Path | str, *, empty: Empty = "stop") -> Parallel:
    """Reads a file of lines that hold a sentence, a tab and its translation.

    Nothing is quoted. A blank line is a pair of two empty sides.

    Args:
        path: The file.
        empty: What to do with a pair that has an empty side.

    Raises:
        UserError: The file is missing, empty or not UTF-8; a line has no tab or more
            than one; a side is empty and ``empty`` is ``stop``.
    """
    lines = read_lines(path)
    if not lines:
        raise UserError(f"'{path}' is empty; it needs one pair per line.")
    rows = [_columns(line, path, number) for number, line in enumerate(lines, 1)]
    source, target = zip(*rows)
    places = f"{path}, the source of line", f"{path}, the target of line"
    return choose(Pairs(source, target, places, f"line of '{path}'"), empty)


def choose(pairs: Pairs, empty: Empty) -> Parallel:
    """Leaves out pairs with an empty side, refuses or keeps them.

    Raises:
        UserError: A side is empty and ``empty`` is ``stop``; or nothing is left.
    """
    both = list(zip(pairs.source, pairs.target))
    whole = [bool(source.strip() and target.strip()) for source, target in both]
    if empty == "keep" or all(whole):
        return Parallel(list(pairs.source), list(pairs.target))
    if empty == "stop":
        number = whole.index(False)
        side = 1 if both[number][0].strip() else 0
        raise UserError(
            f"{pairs.places[side]} {number + 1} is empty; remove the pair, or skip "
            "such pairs with --data.empty skip."
        )
    kept = [pair for pair, has_both in zip(both, whole) if has_both]
    if not kept:
        raise UserError(f"no {pairs.whole} has both sides.")
    return Parallel([s for s, _ in kept], [t for _, t in kept], len(both) - len(kept))


def _decompress(data: bytes, path: Path | str) -> bytes:
    try:
        return gzip.decompress(data)
    except EOFError:
        reason = "it ends too early"
    except (gzip.BadGzipFile, zlib.error) as error:
        reason = f"it is damaged ({error})"
    raise UserError(
        f"'{path}' cannot be decompressed: {reason}; copy it again, check it with "
        "gzip -t."
    )


def _columns(line: str, path: Path | str, number: int) -> tuple[str, str]:
    columns = line.split("\t") if line.strip() else ["", ""]
    if len(columns) != 2:
        raise UserError(
            f"{path}, line {number} has {len(columns)} column"
            f"{'' if len(columns) == 1 else 's'}; it needs two: a sentence, a tab and "
            "its translation."
        )
    return columns[0], columns[1]
