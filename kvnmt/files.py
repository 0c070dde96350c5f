# SPDX-License-Identifier: Apache-2.0
"""Files that are whole or not there, their digests, sealed manifests, and locks."""

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from kvnmt.errors import UserError, reason_of

MANIFEST = "manifest.json"
SMALL = 2**24  # bytes
ADDRESS = re.compile("[a-z][a-z0-9+.-]+:/")  # one letter is a drive
ALGORITHMS = {  # by the digits of a digest
    64: hashlib.sha256,
    32: partial(hashlib.blake2b, digest_size=16),  # in checkpoints of versions before
}


class DamagedError(Exception):
    """A file is not what was written; the message says which and why."""


def make_folder(path: Path) -> None:
    """Makes a folder, unless it is there.

    Raises:
        UserError: It cannot be made.
    """
    check_local(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise not_made(path, error) from None


def check_path(path: Path) -> None:
    """Makes sure that libraries in other languages can open a path.

    Raises:
        UserError: It holds bytes that are not UTF-8, or is an address.
    """
    check_local(path)
    try:
        str(path.absolute()).encode()
    except UnicodeEncodeError:
        name = str(path.absolute()).encode(errors="backslashreplace").decode()
        raise UserError(
            f"'{name}' has a name that is not UTF-8, or the locale is not (LANG, "
            "PYTHONUTF8=1); rename the folder, or choose another."
        ) from None


def check_local(path: Path) -> None:
    """Makes sure that a path is none of a bucket, which would be a folder here.

    Raises:
        UserError: It begins as an address does.
    """
    if ADDRESS.match(str(path)):
        address = str(path).replace(":/", "://", 1)  # a path has lost the second one
        raise UserError(
            f"'{address}' is an address and no folder here; mount the bucket, as with "
            "gcsfuse (one with hierarchical namespaces, whose folders can be renamed), "
            "and name a folder in it."
        )


def not_made(path: Path, error: OSError) -> UserError:
    """What is said of a folder that the system does not make."""
    why = reason_of(error)
    return UserError(f"'{path}' cannot be made: {why}; name another place.")


def check_once(paths: Iterable[Path]) -> None:
    """Makes sure that no path is given twice, however it is written.

    Raises:
        UserError: One is.
    """
    seen: set[str] = set()
    for path in paths:
        real = os.path.realpath(path)
        if real in seen:
            raise UserError(f"'{path}' is named twice; once is enough.")
        seen.add(real)


def write_whole(
    path: Path, content: str | bytes, until: str | None = None, sync: bool = True
) -> None:
    """Writes a file, whole or not at all; ``sync``: it is on the disk before.

    It has the name ``until`` then. One that replaces another keeps its permissions.
    """
    part = path.with_name(until or f"{path.name}.new")
    try:
        with part.open("wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
            file.flush()
            if sync:
                os.fsync(file.fileno())
        if path.exists():
            shutil.copymode(path, part)
        part.replace(path)
    except BaseException:  # an interrupt leaves nothing, either
        with suppress(OSError):
            part.unlink()
        raise


def write_json(path: Path, plain: dict[str, Any]) -> None:
    """Writes plain data as JSON, whole or not at all."""
    write_whole(path, json.dumps(plain, indent=2) + "\n")


def read_small(path: Path, most: int = SMALL) -> bytes:
    """The contents of a file that is never large, such as a config.

    Raises:
        DamagedError: It is larger than ``most`` bytes; none is read.
        OSError: It cannot be read.
    """
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size > most:
            raise DamagedError(f"'{path.name}' has more than {most:,} bytes")
        return file.read(most)


def digest(content: bytes, digits: int = 64) -> str:
    """The digest of some bytes, in so many hexadecimal digits."""
    return ALGORITHMS[digits](content).hexdigest()


def digest_of(path: Path, digits: int = 64) -> str:
    """The digest of the contents of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, ALGORITHMS[digits]).hexdigest()


def write_manifest(folder: Path, plain: dict[str, Any]) -> None:
    """Writes the manifest of a folder: the digest of all the rest, then JSON."""
    text = json.dumps(plain, indent=1) + "\n"
    write_whole(folder / MANIFEST, f"{digest(text.encode())}\n{text}")


def read_manifest(folder: Path) -> dict[str, Any]:
    """Reads the manifest of a folder.

    Raises:
        DamagedError: It is missing or was changed.
        OSError: It is there and cannot be read.
    """
    _check_kind(folder, MANIFEST)
    content = read_small(folder / MANIFEST)
    seal, _, text = content.partition(b"\n")
    if len(seal) in ALGORITHMS and digest(text, len(seal)).encode() == seal:
        with suppress(ValueError, RecursionError):
            if isinstance(plain := json.loads(text), dict):
                return plain
        raise DamagedError(f"'{MANIFEST}' is no manifest")
    raise DamagedError(f"'{MANIFEST}' was changed after it was written")


def check_files(folder: Path, digests: dict[str, str]) -> None:
    """Compares files with their digests, by path in their folder.

    Raises:
        DamagedError: A file is missing or is not what was written; it is named.
        OSError: A file is there and cannot be read.
    """
    for name, expected in digests.items():
        if len(expected) not in ALGORITHMS or not stays_inside(name):
            raise DamagedError(f"'{MANIFEST}' is no manifest")
        _check_kind(folder, name)
        if digest_of(folder / name, len(expected)) != expected:
            raise DamagedError(f"'{name}' was changed after it was written")


def _check_kind(folder: Path, name: str) -> None:
    """Refuses what is not there, and what is no file: a pipe would be waited for."""
    try:
        mode = (folder / name).stat().st_mode
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            raise
        raise DamagedError(f"'{name}' is missing") from None
    if not stat.S_ISREG(mode):
        raise DamagedError(f"'{name}' is no file")


def stays_inside(name: str) -> bool:
    """Whether a path below a folder leads nowhere else, unless by a link."""
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and "\0" not in name


@contextmanager
def locked(path: Path, *, wait: bool = True, shared: bool = False) -> Iterator[bool]:
    """Keeps other processes out while it is open; yields whether it can do so.

    It cannot if the file system cannot lock, as some network file systems.

    Args:
        path: A file only for this lock; it is made, and stays.
        wait: Whether to wait for a process that holds the lock, or to refuse at once.
        shared: Whether to share the lock; processes that do not share it are kept out.

    Raises:
        BlockingIOError: Another process holds the lock, and this does not wait.
        OSError: The file cannot be made.
    """
    with path.open("a+") as file:  # on NFS who shares a lock must be able to read
        try:
            kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
            fcntl.flock(file, kind | (0 if wait else fcntl.LOCK_NB))
            locks = True
        except BlockingIOError:
            raise
        except OSError:
            locks = False
        yield locks
