# SPDX-License-Identifier: Apache-2.0
"""A run of a stranger, and how it is refused."""

import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvnmt.errors import UserError
from kvnmt.runs.directory import load_run

GIGABYTE = 2**30


def refused(run: Path, *parts: str, read: Callable[[Path], Any] = load_run) -> None:
    """By one sentence, without much memory."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UserError) as error:
        read(run)
    message = str(error.value)
    assert all(part in message for part in parts), message
    assert "\n" not in message and len(message) < 1000
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert used < 512 * 1024  # KiB


def sparse(path: Path, size: int = 64 * GIGABYTE) -> None:
    """A file that takes no room, and much memory to read."""
    with path.open("r+b") as file:
        file.truncate(size)
