# SPDX-License-Identifier: Apache-2.0
"""What the containers around a process allow it: memory, and the time of cores."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from kvnmt import machine
from kvnmt.machine import core_limit, cores, memory_limit


def write_groups(root: Path, groups: str | None, limits: Mapping[str, str]) -> None:
    """The groups of a process, and what stands in their files."""
    if groups is not None:
        (root / "proc" / "self").mkdir(parents=True)
        (root / "proc" / "self" / "cgroup").write_text(groups)
    for name, limit in limits.items():
        path = root / "sys" / "fs" / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{limit}\n")


V1, V2 = "4:memory:/a/b\n3:cpu:/a\n", "0::/a/b\n"
OLD, NEW = "memory.limit_in_bytes", "memory.max"
NONE = "9223372036854771712"  # of version 1


@pytest.mark.parametrize(
    ("groups", "limits", "least"),
    [
        (V2, {"a/b/memory.max": "3000", "a/memory.max": "max"}, 3000),
        (V2, {"a/b/memory.max": "3000", "a/memory.max": "2000"}, 2000),
        (V2, {"a/b/memory.max": "max", "memory.max": "max"}, None),
        (V2, {"memory.max": "4000"}, 4000),  # seen from inside a container
        (V2, {"other/memory.max": "5"}, None),
        ("0::/../../c\n", {"c/memory.max": "7"}, 7),
        (V1, {f"memory/a/b/{OLD}": "3000", f"memory/{OLD}": NONE}, 3000),
        (V1, {f"memory/a/b/{OLD}": NONE, f"memory/a/{OLD}": "1500"}, 1500),
        (V1, {f"memory/a/b/{OLD}": NONE}, None),
        (V1, {f"memory/{OLD}": "800"}, 800),
        (V1 + V2, {f"memory/a/{OLD}": "900", "a/b/memory.max": "850"}, 850),
        ("3:cpu,memory:/x\n", {f"memory/x/{OLD}": "6"}, 6),
        ("", {"memory.max": "5"}, None),
        (None, {}, None),
    ],
    ids=str,
)
def test_the_limit_of_a_container_counts(tmp_path, groups, limits, least):
    """The smallest on the path from the group of the process to the top."""
    write_groups(tmp_path, groups, limits)
    assert memory_limit(tmp_path) == least


QUOTA, PERIOD = "cpu.cfs_quota_us", "cpu.cfs_period_us"


@pytest.mark.parametrize(
    ("groups", "limits", "least"),
    [
        (V2, {"a/b/cpu.max": "200000 100000", "cpu.max": "max 100000"}, 2),
        (V2, {"a/b/cpu.max": "max 100000"}, None),
        (V2, {"a/cpu.max": "150000 100000", "a/b/cpu.max": "300000 100000"}, 2),
        (V2, {"cpu.max": "50000 100000"}, 1),
        (V1, {f"cpu/a/{QUOTA}": "400000", f"cpu/a/{PERIOD}": "100000"}, 4),
        (V1, {f"cpu/a/{QUOTA}": "-1", f"cpu/a/{PERIOD}": "100000"}, None),
        ("", {"cpu.max": "100000 100000"}, None),
    ],
    ids=str,
)
def test_time_of_cores_is_as_many_cores(tmp_path, groups, limits, least):
    write_groups(tmp_path, groups, limits)
    assert core_limit(tmp_path) == least


@pytest.mark.parametrize(("limit", "count"), [(None, 6), (2, 2), (9, 6)])
def test_cores_are_those_that_time_is_given_on(monkeypatch, limit, count):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {*range(6)}, False)
    monkeypatch.setattr(machine, "core_limit", lambda: limit)
    assert cores() == count
