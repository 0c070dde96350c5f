# SPDX-License-Identifier: Apache-2.0
"""The starts of a run: when each was, by which versions, and what it changed.

A config holds the choices of the last start alone. ``starts.jsonl`` has a line for
each: ``step``, ``time``, ``versions``, and ``changes``, the former and the new value of
each field that was given anew.
"""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from kvnmt.errors import flag
from kvnmt.files import DamagedError, read_small, write_whole
from kvnmt.runs.config import Experiment, changed_fields, leaves, to_plain
from kvnmt.training.checkpoints.folder import CheckpointFolder

NAME = "starts.jsonl"
# What decides what is learnt, of all that may change.
LEARNT = re.compile(r"(model|objective|optimizer)\.|training\.(dtype|precision|frozen)")
Changes = Mapping[str, tuple[Any, Any]]


def changes_of(before: Experiment, after: Experiment) -> Changes:
    """The former and the new value of each field in which two configs differ."""
    was, now = leaves(to_plain(before)), leaves(to_plain(after))
    paths = changed_fields(before, after)
    return {path: (was.get(path), now.get(path)) for path in paths}


def add_start(folder: Path, changes: Changes, versions: dict[str, str]) -> None:
    """Writes down that training begins, or goes on from the last checkpoint.

    Raises:
        OSError: It cannot be written.
    """
    kept = CheckpointFolder(folder / "checkpoints", False, lambda said: None).steps()
    start = {
        "step": kept[-1] if kept else 0,
        "time": datetime.now().astimezone().isoformat(timespec="seconds"),
        "versions": versions,
        "changes": changes,
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / NAME
    before = path.read_bytes() if path.exists() else b""
    write_whole(path, before + json.dumps(start).encode() + b"\n")


def told(changes: Changes) -> str:
    """A line that names what was given anew."""
    pairs = (f"{flag(path)} {was} -> {now}" for path, (was, now) in changes.items())
    return f"given anew: {', '.join(pairs)}"


def told_of_former(folder: Path, experiment: Experiment) -> str:
    """A line on a run that had other choices at first; or nothing.

    Args:
        folder: The run directory, which may be anybody's.
        experiment: Its config.
    """
    known, changed = leaves(to_plain(experiment)), dict[str, None]()
    with suppress(OSError, DamagedError):
        is_file = (folder / NAME).is_file()
        for line in read_small(folder / NAME).splitlines() if is_file else ():
            with suppress(ValueError, RecursionError, TypeError, KeyError):
                start = json.loads(line)
                if start["step"]:  # before the first, nothing had been learnt
                    given = filter(LEARNT.match, start["changes"])
                    changed |= dict.fromkeys(set(given) & known.keys())
    if not changed:
        return ""
    names = ", ".join(flag(path) for path in known if path in changed)
    return (
        f"note: '{folder}' trained with other values of {names} at first, see "
        f"'{folder / NAME}'; what is taken is the last"
    )
