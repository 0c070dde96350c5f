# SPDX-License-Identifier: Apache-2.0
"""Files that are whole or not there, digests of them, and locks."""

import fcntl
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kvnmt.errors import UserError


def make_folder(path: Path) -> None:
    """Makes a folder, unless it is there.

    Raises:
        UserError: It cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"'{path}' cannot be made: {error.strerror}.") from None


def claim(path: Path, inputs: Iterable[Path | None]) -> None:
    """Makes sure, before the work, that a file can be written; leaves it as it is.

    Raises:
        UserError: It cannot, or it is one of the inputs.
    """
    for other in inputs:
        if other and other.resolve() == path.resolve():
            raise UserError(f"'{path}' is read too; write to another file.")
    try:
        path.open("ab").close()
    except OSError as error:
        raise UserError(f"'{path}' cannot be written: {error.strerror}.") from None


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Writes lines, each with a line feed.

    Raises:
        UserError: They cannot be written.
    """
    try:
        path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    except OSError as error:
        raise UserError(f"'{path}' cannot be written: {error.strerror}.") from None


def write_json(path: Path, plain: dict[str, Any]) -> None:
    """Writes plain data as JSON, whole or not at all."""
    whole = path.with_suffix(".new")  # never half a file under the name itself
    whole.write_text(json.dumps(plain, indent=2) + "\n")
    whole.replace(path)


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Keeps a second training out of a run directory.

    Raises:
        UserError: One is there already.
    """
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"another training writes to '{folder}'; wait until it has ended, or "
                "choose another folder."
            ) from None
        except OSError:
            pass  # some network file systems cannot lock
        yield
