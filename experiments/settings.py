# SPDX-License-Identifier: Apache-2.0
"""What tells the figures of one row from those of another: its text."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from kvnmt.errors import UserError
from kvnmt.files import digest, digest_of
from kvnmt.runs.config import Experiment

# Fields of a config that name files of text.
FILES = (
    *("source", "target", "valid_source", "valid_target"),
    *("pairs", "valid_pairs"),
)


def text_digest(paths: Iterable[Path]) -> str | None:
    """Tells texts apart by their contents; None: there are none, or one is missing.

    Args:
        paths: The files in a fixed order.
    """
    try:
        parts = [_digest_of(path) for path in paths]
    except OSError:
        return None
    return digest(" ".join(parts).encode(), 32)[:12] if parts else None


def text_files(experiment: Experiment) -> list[Path]:
    """The files that a config trains and validates on."""
    named = (getattr(experiment.data, name) for name in FILES)
    return [path for path in named if path is not None]


def check_same_text(noted: str | None, now: str | None, folder: Path) -> None:
    """Makes sure that a result is that of a text.

    Args:
        noted: Digest of the text that was measured on; None: it was not noted.
        now: Digest of the text of the row; None: it cannot be read.
        folder: Where the result stands.

    Raises:
        UserError: It is that of another text.
    """
    if None not in (noted, now) and noted != now:
        raise UserError(
            f"the run in '{folder}' was measured on other text than this; choose "
            "another --workdir."
        )


def _digest_of(path: Path) -> str:
    """The digest of a file; it is read again only if it was written again."""
    about = path.stat()
    return _digest_of_version(path.resolve(), about.st_size, about.st_mtime_ns)


@cache
def _digest_of_version(path: Path, size: int, changed: int) -> str:
    return digest_of(path, 32)
