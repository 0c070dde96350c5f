# SPDX-License-Identifier: Apache-2.0
"""The manifest of a checkpoint: what it is, and the digest of every file in it.

It is the last file written into a checkpoint before the folder gets its name, so a
checkpoint without it is not one. It seals itself: its first line is the digest of
the rest.
"""

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kvnmt.typing import PyTree

NAME = "manifest.json"


class DamagedError(Exception):
    """A checkpoint is not what was written; the message says in what."""


@dataclass(frozen=True)
class Manifest:
    """What is known of a checkpoint."""

    step: int
    content: str  # digest of the arrays, the same however they are laid out
    about: dict[str, PyTree]  # vocabularies, versions
    progress: dict[str, Any]  # what training goes on with, beside the arrays
    score: float | None = None  # higher is better; None: not validated
    files: dict[str, str] | None = None  # digest by path below the checkpoint


def write(folder: Path, manifest: Manifest) -> None:
    """Writes the manifest of a checkpoint; never half of it."""
    text = json.dumps(asdict(manifest), indent=1) + "\n"
    new = folder / f"{NAME}.new"
    with new.open("w") as file:
        file.write(f"{_digest(text.encode())}\n{text}")
        file.flush()
        os.fsync(file.fileno())
    new.replace(folder / NAME)


def read(folder: Path) -> Manifest:
    """Reads the manifest of a checkpoint.

    Raises:
        DamagedError: It is missing or was changed.
    """
    try:
        seal, _, text = (folder / NAME).read_bytes().partition(b"\n")
    except OSError as error:
        raise DamagedError(f"'{NAME}' cannot be read: {error.strerror}") from None
    if seal.decode(errors="replace") != _digest(text):
        raise DamagedError(f"'{NAME}' was changed after it was written")
    return Manifest(**json.loads(text))


def digests(folder: Path) -> dict[str, str]:
    """The digest of every file below a folder, by its path there."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    names = {path.relative_to(folder).as_posix(): path for path in paths}
    return {name: _file_digest(path) for name, path in names.items() if name != NAME}


def check(folder: Path) -> Manifest:
    """Reads the manifest of a checkpoint and compares every file with it.

    Raises:
        DamagedError: A file is missing or is not what was written; it is named.
    """
    manifest = read(folder)
    for name, digest in (manifest.files or {}).items():
        path = folder / name
        if not path.is_file():
            raise DamagedError(f"'{name}' is missing")
        try:
            found = _file_digest(path)
        except OSError as error:
            reason = error.strerror
            raise DamagedError(f"'{name}' cannot be read: {reason}") from None
        if found != digest:
            raise DamagedError(f"'{name}' was changed after it was written")
    return manifest


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(
            file, lambda: hashlib.blake2b(digest_size=16)
        ).hexdigest()


def _digest(text: bytes) -> str:
    return hashlib.blake2b(text, digest_size=16).hexdigest()
