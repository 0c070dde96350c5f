# SPDX-License-Identifier: Apache-2.0
"""Whether all processes see the same folder: each machine may have one of that name."""

import secrets
import time
from contextlib import suppress
from pathlib import Path

from kvnmt.companions import LOOK, gathered, number
from kvnmt.errors import UserError

MARK = "seen-by-all-"  # begins the name of a file that is there for a moment
PATIENCE = 60.0  # seconds after which NFS looks again for a folder that was not there


def check_shared(folder: Path) -> None:
    """Makes sure that all processes see a folder of the first one.

    Where the first has none, or cannot write to it, what follows says so.

    Raises:
        UserError: One does not see it.
    """
    if blind := blind_to(folder, PATIENCE):
        raise UserError(
            f"process {blind[0]} does not see '{folder}' of the first process; name a "
            "folder on a file system that all processes share."
        )


def blind_to(folder: Path, seconds: float) -> list[int]:
    """The numbers of the processes that do not see a folder of the first one.

    It writes a file there, for which the others look; if it cannot, nobody is blind.

    Args:
        folder: As each process calls it.
        seconds: How long they look.
    """
    own, count = number()
    if count == 1:
        return []
    name = f"{MARK}{secrets.token_hex(8)}"
    try:
        wrote = own == 0 and _write(folder / name)
        name = gathered(name if wrote else "")[0]
        sees = not name or _appears(folder / name, seconds)
        return [n for n, seen in enumerate(gathered(str(sees))) if seen != str(True)]
    finally:
        if own == 0:
            with suppress(OSError):
                (folder / name).unlink()


def _write(path: Path) -> bool:
    """Writes an empty file; whether that could be."""
    with suppress(OSError):
        path.touch()
        return True
    return False


def _appears(path: Path, seconds: float) -> bool:
    """Whether a file can be seen soon."""
    end = time.monotonic() + seconds
    while not path.exists():
        if time.monotonic() > end:
            return False
        time.sleep(LOOK)
    return True
