# SPDX-License-Identifier: Apache-2.0
"""Reading text: bytes, split on the line feed alone, decoded strictly.

U+2028, NEL, form feed and their like neither split nor join lines here, as they do
in `str.splitlines`. A carriage return before the line feed is dropped.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from kvnmt.errors import UserError


class Parallel(NamedTuple):
    """Sentences and their translations, and how many pairs were left out."""

    source: list[str]
    target: list[str]
    empty: int = 0  # pairs skipped because a side is empty


def read_lines(path: Path | str) -> list[str]:
    """Reads the lines of a UTF-8 file.

    Raises:
        UserError: The file cannot be read, or a line of it is not UTF-8.
    """
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise UserError(f"there is no file '{path}'; check the path.") from None
    except OSError as error:
        raise UserError(f"'{path}' cannot be read: {error.strerror}.") from None
    return decode_lines(data, str(path))


def decode_lines(data: bytes, name: str) -> list[str]:
    """Splits and decodes the contents of a file called ``name``.

    Raises:
        UserError: A line is not UTF-8.
    """
    lines = data.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    return [decode_line(line, name, number) for number, line in enumerate(lines, 1)]


def decode_line(line: bytes, name: str, number: int) -> str:
    """Decodes one line, without its line end.

    Raises:
        UserError: The line is not UTF-8.
    """
    try:
        return line.rstrip(b"\n").removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError as error:
        byte = line[error.start]
        raise UserError(
            f"{name}, line {number}: byte {error.start + 1} (0x{byte:02x}) is not "
            f"UTF-8; convert the file, for example with iconv."
        ) from None


def read_parallel(
    source: Path | str,
    target: Path | str,
    *,
    empty: Literal["stop", "skip", "keep"] = "stop",
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
    if empty == "keep":
        return Parallel(*sides)
    kept = [pair for pair in zip(*sides) if pair[0].strip() and pair[1].strip()]
    if len(kept) < len(sides[0]) and empty == "stop":
        raise _empty_line(source, target, *sides)
    if not kept:
        raise UserError(f"no line of '{source}' and '{target}' has both sides.")
    return Parallel(
        [s for s, _ in kept], [t for _, t in kept], len(sides[0]) - len(kept)
    )


def _empty_line(
    source: Path | str,
    target: Path | str,
    source_lines: Sequence[str],
    target_lines: Sequence[str],
) -> UserError:
    for number, pair in enumerate(zip(source_lines, target_lines), 1):
        for path, line in zip((source, target), pair):
            if not line.strip():
                return UserError(
                    f"{path}, line {number} is empty; remove the pair from both "
                    "files, or skip such pairs with --data.empty skip."
                )
    raise AssertionError("no line is empty")
