# SPDX-License-Identifier: Apache-2.0
"""Standard input, some lines at a time."""

import sys
from codecs import BOM_UTF8
from collections.abc import Iterator
from typing import BinaryIO

from kvnmt.data.lines import bare
from kvnmt.data.text import decode
from kvnmt.errors import UserError, reason_of


def read_windows(stream: BinaryIO, size: int) -> Iterator[list[str]]:
    """Yields lines of standard input, ``size`` at a time, as soon as they are there.

    Raises:
        UserError: A line cannot be read or is not UTF-8; in the second case the lines
            before it were yielded.
    """
    window: list[str] = []
    for number, line in enumerate(_lines(stream), 1):
        if number == 1:
            line = line.removeprefix(BOM_UTF8)
        try:
            window.append(decode(bare(line), "standard input, line", number))
        except UserError:
            if window:
                yield window
            raise
        if len(window) == size:
            yield window
            window = []
    if window:
        yield window


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    """The lines as bytes: the line feed alone splits."""
    try:
        yield from stream
    except OSError as error:
        reason = reason_of(error)
        raise UserError(f"standard input cannot be read: {reason}.") from None


def awaited_lines(stream: BinaryIO) -> int | None:
    """How many lines there will be, where that can be known and somebody looks."""
    if not (sys.stderr.isatty() and stream.seekable()):
        return None
    here = stream.tell()
    count = sum(1 for _ in stream)
    stream.seek(here)
    return count
