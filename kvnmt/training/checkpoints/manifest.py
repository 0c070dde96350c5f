# SPDX-License-Identifier: Apache-2.0
"""The manifest of a checkpoint: what it is, and the digest of every file in it.

It is the last file written into a checkpoint before the folder gets its name, so a
checkpoint without it is not one.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import NoneType
from typing import Any

from kvnmt.errors import reason_of
from kvnmt.files import (
    MANIFEST,
    DamagedError,
    check_files,
    digest_of,
    read_manifest,
    write_manifest,
)
from kvnmt.typing import PyTree


class UnreadableError(DamagedError):
    """A checkpoint cannot be read now; perhaps it can another time."""


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
    write_manifest(folder, asdict(manifest))


def read(folder: Path) -> Manifest:
    """Reads the manifest of a checkpoint.

    Raises:
        DamagedError: It is missing or was changed.
        UnreadableError: The file system does not let it be read.
    """
    with _explaining():
        plain = read_manifest(folder)
    is_of = not folder.name.isdecimal() or plain.get("step") == int(folder.name)
    if not (is_of and _is_manifest(plain)):
        raise DamagedError(f"'{MANIFEST}' is no manifest of this checkpoint")
    return Manifest(**plain)


def digests(folder: Path) -> dict[str, str]:
    """The digest of every file below a folder, by its path there."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    names = {path.relative_to(folder).as_posix(): path for path in paths}
    return {name: digest_of(path) for name, path in names.items() if name != MANIFEST}


def check(folder: Path, manifest: Manifest, left_out: tuple[str, ...] = ()) -> None:
    """Compares the files of a checkpoint, but for some parts, with its manifest.

    Raises:
        DamagedError: A file is missing or is not what was written; it is named.
        UnreadableError: The file system does not let one be read.
    """
    with _explaining():
        files = manifest.files or {}
        others = files.keys() - {n for n in files if n.partition("/")[0] in left_out}
        check_files(folder, {name: files[name] for name in sorted(others)})


def _is_manifest(plain: dict[str, Any]) -> bool:
    """Whether fields are those of a `Manifest`; a run may come from anywhere."""
    kinds = {
        "step": int,
        "content": str,
        "about": dict,
        "progress": dict,
        "score": (int, float, NoneType),
        "files": (dict, NoneType),
    }
    return (
        {"step", "content", "about", "progress"} <= plain.keys() <= kinds.keys()
        and all(isinstance(value, kinds[name]) for name, value in plain.items())
        and isinstance(plain["about"].get("vocabularies", {}), dict)
        and all(isinstance(one, str) for one in (plain.get("files") or {}).values())
    )


@contextmanager
def _explaining() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        name = Path(error.filename or "a file").name
        kind = DamagedError if isinstance(error, FileNotFoundError) else UnreadableError
        raise kind(f"'{name}' cannot be read: {reason_of(error)}") from None
