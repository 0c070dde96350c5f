# SPDX-License-Identifier: Apache-2.0
"""What this process may use of its machine, and the containers around it allow."""

import math
import os
from collections.abc import Iterator
from pathlib import Path

UNLIMITED = 2**60  # version 1 of control groups writes nearly 2^63 for no limit
ROOT = Path("/")


def cores() -> int:
    """How many cores this process may use, at least one.

    A container may have a part of the time of all cores: as many as that part is.
    """
    may = getattr(os, "sched_getaffinity", None)  # not on every system
    count = len(may(0)) if may else os.cpu_count() or 1
    return min(count, core_limit() or count)


def core_limit(root: Path = ROOT) -> int | None:
    """Cores whose time the control groups of this process allow it, rounded up.

    None: all there are. As of `memory_limit`.
    """
    limits = []
    for folder in _groups(root, "cpu"):
        of_first = (
            _read(folder / f"cpu.cfs_{what}_us") for what in ("quota", "period")
        )
        time = _read(folder / "cpu.max").split() or [text.strip() for text in of_first]
        if all(map(str.isdecimal, time)):  # else "max" or -1
            limits.append(math.ceil(int(time[0]) / int(time[1])))
    return min(limits, default=None)


def memory_limit(root: Path = ROOT) -> int | None:
    """Bytes that the control groups of this process allow it; None: all there are.

    A group is also held to the limits of those around it. Inside a container they may
    be unknown; its own then stands at the top.

    Args:
        root: Below which ``proc`` and ``sys`` are.
    """
    names = "memory.max", "memory.limit_in_bytes"
    paths = (folder / name for folder in _groups(root, "memory") for name in names)
    limits = [int(text) for text in map(_read, paths) if text.strip().isdecimal()]
    return min((limit for limit in limits if limit < UNLIMITED), default=None)


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """The folders of the groups that this process is in, from the top."""
    for line in _read(root / "proc" / "self" / "cgroup").splitlines():
        _, controllers, group = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        # Without controllers: version 2, which has all of them in one tree.
        top = root / "sys" / "fs" / "cgroup" / (controller if controllers else "")
        parts = [part for part in group.split("/") if part not in ("", "..")]
        yield from (top.joinpath(*parts[:n]) for n in range(len(parts) + 1))


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
