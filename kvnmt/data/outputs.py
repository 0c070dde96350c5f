# SPDX-License-Identifier: Apache-2.0
"""Files that a user asked for: whether they can be written, and how they are."""

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from kvnmt.errors import UserError, reason_of
from kvnmt.files import digest, write_whole

LONGEST_NAME = 180  # bytes of a name in that of a file, which may have 255


def claim(path: Path, inputs: Iterable[Path | None]) -> None:
    """Makes sure, before the work, that a file can be written; leaves it as it is.

    Raises:
        UserError: It cannot, is one of the inputs, or has a name of packed files.
    """
    for other in inputs:
        if other and _is_same(other, path):
            raise UserError(f"'{path}' is read too; write to another file.")
    if path.suffix == ".gz":
        raise UserError(
            f"'{path}' would hold plain text; give it another name, and pack it "
            "afterwards."
        )
    there = path.exists()
    try:
        if path.is_fifo():
            return  # who reads it would take the closing for the end
        path.open("ab").close()
        if not there:
            os.unlink(os.path.realpath(path))  # what a link leads to
    except OSError as error:
        raise UserError(f"'{path}' cannot be written: {reason_of(error)}.") from None


def in_file(name: str) -> str:
    """The name of a system as a part of the name of a file; a long one is cut."""
    name = name.replace("/", "-")
    content = name.encode(errors="surrogateescape")
    if len(content) <= LONGEST_NAME:
        return name
    return f"{name[: LONGEST_NAME // 4]}-{digest(content)[:8]}"  # 4 bytes a letter


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Writes lines, each with a line feed; raises what `write_output` raises."""
    write_output(path, "".join(f"{line}\n" for line in lines))


def write_output(path: Path, content: str | bytes) -> None:
    """Writes what a user asked for: a file whole, where it can be replaced.

    Raises:
        UserError: It cannot be written.
    """
    data = content if isinstance(content, bytes) else content.encode()
    try:
        if _replaceable(path):
            real = Path(os.path.realpath(path))  # what a link leads to
            # like no name of a user's own
            write_whole(real, data, f".{os.getpid()}-{digest(data)[:8]}.new")
        else:
            path.write_bytes(data)
    except OSError as error:
        raise UserError(f"'{path}' cannot be written: {reason_of(error)}.") from error


def _is_same(one: Path, other: Path) -> bool:
    """Whether two paths lead to one file, which may have several names."""
    with suppress(OSError):
        return os.path.samefile(one, other)
    return os.path.realpath(one) == os.path.realpath(other)  # not there yet


def _replaceable(path: Path) -> bool:
    """Whether a new file may replace this one: nothing else refers to it.

    A device, a pipe and a file that standard output goes to are written in place. So is
    a file that has further names, or is in a folder where no file may be made.
    """
    real = os.path.realpath(path)
    if not os.access(os.path.dirname(real), os.W_OK):
        return False
    if not path.exists():
        return not os.path.islink(real)  # which leads to itself
    there = path.stat()
    with suppress(OSError, ValueError):
        if any(os.path.samestat(there, os.fstat(n)) for n in (1, 2)):
            return False
    return stat.S_ISREG(there.st_mode) and there.st_nlink == 1
