# SPDX-License-Identifier: Apache-2.0
"""Runs that are killed, asked to leave, or out of disk end as if nothing had been."""

import os
import random
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from kvnmt.runs.config import Experiment
from kvnmt.training import records as metrics
from kvnmt.training.checkpoints import manifest as manifests
from tests.helpers import timeless, tiny, toy_data
from tests.training.children import KILLED, End, quick, start

# KVNMT_KILLS=30 for a thorough look; it takes some minutes.
KILLS = int(os.environ.get("KVNMT_KILLS", "2"))
# Changes of files before a kill: while the run is made, and while it saves.
MAKING, SAVING = (1, 20), (30, 100)


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("kills")


@pytest.fixture(scope="module")
def exp(base) -> Experiment:
    """Dropout, parts, a mean, saves between validations; longer than all lives."""
    epochs = 5 * KILLS - 1
    choices = {"epochs": epochs, "validate_every": 20, "save_every": 7, "patience": 99}
    own = {"accumulate": 2, "ema": 0.9, "keep_every": 100, "shapes": 1}
    return quick(tiny(toy_data(base / "text"), **choices, **own))


@pytest.fixture(scope="module")
def whole(base, exp) -> Path:
    """A run that was never disturbed."""
    start(base / "log", base / "whole", exp).end(0)
    return base / "whole"


def last(folder: Path) -> manifests.Manifest:
    steps = (int(path.name) for path in (folder / "checkpoints").iterdir())
    newest = folder / "checkpoints" / str(max(steps))
    manifest = manifests.read(newest)
    manifests.check(newest, manifest)
    return manifest


def check_same(some: Path, other: Path) -> None:
    """The digest of all arrays, the progress, the records, what is kept."""
    ours, theirs = last(some), last(other)
    assert (ours.step, ours.content) == (theirs.step, theirs.content)
    assert timeless(ours.progress) == timeless(theirs.progress)
    records = ([*map(timeless, metrics.read(folder))] for folder in (some, other))
    assert next(records) == next(records)
    kept = (
        sorted(p.name for p in (f / "checkpoints").iterdir()) for f in (some, other)
    )
    assert next(kept) == next(kept)


@pytest.mark.slow
def test_kills_and_signals_at_any_moment_change_nothing(base, exp, whole):
    """SIGKILL while starting, saving, validating; each signal."""
    moments, log, folder = random.Random(2), base / "log", base / "killed"
    for n in range(KILLS):
        at = moments.randint(*(SAVING if n % 2 else MAKING))
        start(log, folder, exp, end=End(kill_at=at)).end(KILLED)
    assert any((folder / "checkpoints").iterdir())  # perhaps half of one
    for number, step in ((signal.SIGTERM, 1), (signal.SIGINT, 12)):
        end = End(leave_at=step, signals=(number, number))  # as `timeout` sends it
        said = start(log, folder, exp, end=end).end(128 + number)
        assert signal.Signals(number).name in said and "--resume" in said
        assert "damaged" not in said
    assert last(folder).step > 0
    start(log, folder, exp).end(0)
    check_same(folder, whole)
    assert not list((folder / "checkpoints").glob("*unfinished*"))
    assert not (folder / "damaged").exists()


@pytest.mark.slow
def test_a_full_disk_is_told_and_a_run_goes_on_once_there_is_room(base, exp, whole):
    """On a disk of its own, if one can be made here."""
    disk = base / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(mount).returncode:
        pytest.skip("no disk can be made here")
    try:
        said = start(base / "log", disk / "run", exp).end(2)
        assert "No space left on device" in said and "--resume" in said
        assert last(disk / "run").step > 0
        more = ["mount", "-o", "remount,size=64m", str(disk)]
        subprocess.run(more, check=True)
        start(base / "log", disk / "run", exp).end(0)
        check_same(disk / "run", whole)
    finally:
        subprocess.run(["umount", str(disk)], check=True)
