# SPDX-License-Identifier: Apache-2.0
"""Lines of files, plain or compressed with gzip, as bytes.

A file that begins with the two bytes of gzip, as no UTF-8 text does, is decompressed.
The byte-order mark that some editors put before UTF-8 text is no part of it.
"""

import contextlib
import gzip
import io
import zlib
from codecs import BOM_UTF8
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from kvnmt.errors import UserError, reason_of

GZIP = b"\x1f\x8b"  # a whole character and a byte that can only continue one
# What other files than UTF-8 text begin with, and what to do about it.
_PACKED = "it is compressed, so give what {} makes of it"
_DISGUISES = {
    GZIP: _PACKED.format("gzip -dc"),
    b"\xfd7zXZ": _PACKED.format("xz -dc"),
    b"\x28\xb5\x2f\xfd": _PACKED.format("zstd -dc"),
    b"BZh91AY": _PACKED.format("bzip2 -dc"),
    b"PK\x03\x04": _PACKED.format("unzip -p"),
    b"\xff\xfe": "it is UTF-16, so convert it, as with iconv -f UTF-16 -t UTF-8",
    b"\xfe\xff": "it is UTF-16, so convert it, as with iconv -f UTF-16 -t UTF-8",
}


@contextlib.contextmanager
def opened(path: Path | str, once: bool = False) -> Iterator[BinaryIO | gzip.GzipFile]:
    """Opens a file, plain or compressed with gzip, for reading the bytes of its text.

    Args:
        path: The file.
        once: Nobody opens it again, so that it may be a pipe.

    Raises:
        UserError: The file is no text, or cannot be read or decompressed, now or while
            it is open.
    """
    try:
        with Path(path).open("rb") as raw:
            if not (once or raw.seekable()):
                raise UserError(
                    f"'{path}' is a pipe, and text is read several times; write it to "
                    "a file first."
                )
            whole = raw if raw.seekable() else io.BytesIO(raw.read())
            packed = whole.read(len(GZIP)) == GZIP
            whole.seek(0)
            file = gzip.open(whole) if packed else whole
            start = file.read(max(map(len, _DISGUISES)))
            if remedy := disguise(start):
                raise UserError(f"'{path}' is no text: {remedy}.")
            file.seek(len(BOM_UTF8) if start.startswith(BOM_UTF8) else 0)
            yield file
    except FileNotFoundError:
        place = "" if Path(path).is_absolute() else ", seen from the current folder"
        raise UserError(f"there is no file '{path}'{place}; check the path.") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        ends = isinstance(error, EOFError)
        reason = "it ends too early" if ends else f"it is damaged ({error})"
        if isinstance(error, gzip.BadGzipFile):  # cat of packed text and of plain text
            reason += ", or something else was put behind it"
        raise UserError(
            f"'{path}' cannot be decompressed: {reason}; make it again, check it with "
            "gzip -t."
        ) from None
    except OSError as error:
        raise UserError(f"'{path}' cannot be read: {reason_of(error)}.") from None


def count_lines(path: Path | str) -> int:
    """Returns how many lines a file has; the last may lack its line feed."""
    count, last = 0, b"\n"
    with opened(path) as file:
        while data := file.read(1 << 20):
            count += data.count(b"\n")
            last = data[-1:]
    return count + (last != b"\n")


def read_blocks(path: Path | str, size: int) -> Iterator[list[bytes]]:
    """Reads so many lines of a file at a time, without their ends."""
    with opened(path) as file:
        while lines := list(map(bare, islice(file, size))):
            yield lines


def disguise(start: bytes) -> str:
    """Advice on bytes that begin unlike a text of UTF-8; empty: none is needed."""
    remedies = (what for begin, what in _DISGUISES.items() if start.startswith(begin))
    return next(remedies, "")


def bare(line: bytes) -> bytes:
    """A line without its end."""
    return line.removesuffix(b"\n").removesuffix(b"\r")
