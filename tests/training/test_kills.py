# SPDX-License-Identifier: Apache-2.0
"""Runs that are killed, asked to leave, or out of disk end as if nothing had been."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kvnmt.runs import config
from kvnmt.runs.config import Experiment
from kvnmt.training import manifest as manifests
from kvnmt.training import records as metrics
from tests.helpers import tiny, toy_data

# KVNMT_KILLS=30 for a thorough look; it takes some minutes.
KILLS = int(os.environ.get("KVNMT_KILLS", "3"))
SECONDS = 1.5  # at most, from the first step to a kill
TIMES = ("tokens_per_second", "elapsed", "tokens", "seconds")
PROGRAM = """
import json, sys
from pathlib import Path
from kvnmt.errors import run_program
from kvnmt.runs import config, train
folder, plain = sys.argv[1:]
exp = config.from_plain(json.loads(plain))
run = lambda: train.run(exp, Path(folder), resume=Path(folder).exists())
run_program("kvnmt", run)
"""


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("kills")


@pytest.fixture(scope="module")
def exp(base) -> Experiment:
    """Dropout, parts, a mean, saves between validations; some seconds of steps."""
    choices = {"epochs": 30, "validate_every": 20, "save_every": 7, "patience": 99}
    own = {"accumulate": 2, "ema": 0.9, "workers": 1, "keep_every": 100}
    return tiny(toy_data(base / "text"), **choices, **own)


class Started(NamedTuple):
    """A training in a process of its own."""

    process: subprocess.Popen
    log: Path  # what it says

    def wait_for(self, word: str) -> None:
        """Waits until it says this, or ends."""
        while word not in self.log.read_text() and self.process.poll() is None:
            time.sleep(0.02)

    def end(self, status: int) -> str:
        """Waits until it ends, with this status; what it said."""
        found = self.process.wait(timeout=300)
        said = self.log.read_text()
        assert found == status and "Traceback" not in said, said
        return said


def start(base: Path, folder: Path, exp: Experiment) -> Started:
    """Begins or goes on, as whatever restarts killed jobs would."""
    plain = json.dumps(config.to_plain(exp))
    log = base / "log"
    with log.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(folder), plain], stderr=file
        )
    return Started(process, log)


@pytest.fixture(scope="module")
def whole(base, exp) -> Path:
    """A run that was never disturbed."""
    start(base, base / "whole", exp).end(0)
    return base / "whole"


def last(folder: Path) -> manifests.Manifest:
    steps = (int(path.name) for path in (folder / "checkpoints").iterdir())
    newest = folder / "checkpoints" / str(max(steps))
    manifest = manifests.read(newest)
    manifests.check(newest, manifest)
    return manifest


def timeless(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in TIMES}


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
def test_kills_at_any_moment_change_nothing(base, exp, whole):
    """SIGKILL: during steps, saves, validation, and while starting."""
    moments, folder, died = random.Random(1), base / "killed", 0
    while died < KILLS:
        training = start(base, folder, exp)
        training.wait_for("largest batch")
        time.sleep(moments.uniform(0, SECONDS))
        training.process.kill()
        if training.process.wait() == 0:
            break  # it was done before all kills
        died += 1
    start(base, folder, exp).end(0)
    assert died == KILLS
    check_same(folder, whole)
    assert not list((folder / "checkpoints").glob("*unfinished*"))
    assert not (folder / "damaged").exists()


@pytest.mark.slow
def test_a_signal_saves_and_leaves(base, exp, whole):
    """At once while compiling or validating; after the step otherwise."""
    folder = base / "asked"
    for number, moment in ((signal.SIGTERM, 0.0), (signal.SIGINT, 0.7)):
        training = start(base, folder, exp)
        training.wait_for("largest batch")
        time.sleep(moment)
        training.process.send_signal(number)
        said = training.end(128 + number)
        assert signal.Signals(number).name in said and "--resume" in said
    assert last(folder).step > 0
    start(base, folder, exp).end(0)
    check_same(folder, whole)


@pytest.mark.slow
def test_a_second_signal_leaves_at_once(base, exp):
    training = start(base, base / "twice", exp)
    training.wait_for("largest batch")
    training.process.send_signal(signal.SIGTERM)
    training.wait_for("once more leaves at once")
    training.process.send_signal(signal.SIGSTOP)
    training.process.send_signal(signal.SIGINT)
    training.process.send_signal(signal.SIGCONT)
    assert training.process.wait(60) in (128 + signal.SIGTERM, 128 + signal.SIGINT)


@pytest.mark.slow
def test_a_full_disk_is_told_and_a_run_goes_on_once_there_is_room(base, exp, whole):
    """On a disk of its own, if one can be made here."""
    disk = base / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(mount).returncode:
        pytest.skip("no disk can be made here")
    try:
        said = start(base, disk / "run", exp).end(2)
        assert "No space left on device" in said and "--resume" in said
        assert last(disk / "run").step > 0
        more = ["mount", "-o", "remount,size=64m", str(disk)]
        subprocess.run(more, check=True)
        start(base, disk / "run", exp).end(0)
        check_same(disk / "run", whole)
    finally:
        subprocess.run(["umount", str(disk)], check=True)
