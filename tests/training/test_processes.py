# SPDX-License-Identifier: Apache-2.0
"""Two processes train what one trains."""

import json
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from kvnmt.runs import config
from kvnmt.runs import train as experiment
from kvnmt.runs.directory import load_run
from kvnmt.training import manifest as manifests
from tests.helpers import quiet, records, tiny, toy_data

PROGRAM = """
import json, sys
import jax
jax.config.update("jax_num_cpu_devices", 2)
from kvnmt import devices
from kvnmt.errors import run_program
from kvnmt.runs import train
from kvnmt.runs.config import from_plain
from pathlib import Path
folder, plain, port, process, *resume = sys.argv[1:]
devices.join(f"localhost:{port}", 2, int(process))
config = from_plain(json.loads(plain))
run = lambda: train.run(config, Path(folder), resume=bool(resume))
run_program("kvnmt", run)
"""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("localhost", 0))
        return one.getsockname()[1]


def start_two(
    folder: Path, exp: config.Experiment, *resume: str
) -> list[subprocess.Popen]:
    """Trains in two processes of two devices each."""
    port, plain = str(free_port()), json.dumps(config.to_plain(exp))
    given = [sys.executable, "-c", PROGRAM, str(folder), plain, port]
    return [
        subprocess.Popen([*given, str(i), *resume], stderr=subprocess.PIPE, text=True)
        for i in range(2)
    ]


def end_two(both: list[subprocess.Popen], status: int = 0) -> list[str]:
    """Waits for both; what they said."""
    said = [one.communicate(timeout=300)[1] for one in both]
    assert [one.returncode for one in both] == [status, status], said
    return said


def check_close(folder: Path, *names: str) -> None:
    """Figures and parameters to rounding."""
    for ours, theirs in zip(*(records(folder / n) for n in names)):
        for name in ("step", "train_loss", "valid_loss", "valid_bleu"):
            assert ours[name] == pytest.approx(theirs[name], rel=1e-5), name
    params = (jax.device_get(load_run(folder / n).params) for n in names)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), *params)


@pytest.mark.slow
def test_two_processes_train_what_one_trains(tmp_path):
    """With dropout and batches that are not full, in parts, words split over devices.

    Stopped and taken up again by two, and by one process of eight devices.
    """
    data = toy_data(tmp_path / "text")
    choices = {"batch_tokens": 64, "shapes": 1, "accumulate": 2, "model_axis": 2}
    exp, one = (tiny(data, epochs=n, **choices) for n in (2, 1))
    said = end_two(start_two(tmp_path / "two", one))
    assert "training pairs" in said[0] and not said[1].strip()
    shutil.copytree(tmp_path / "two", tmp_path / "other")
    end_two(start_two(tmp_path / "two", exp, "resume"))
    experiment.run(exp, tmp_path / "other", resume=True, console=quiet())
    plain = tiny(data, epochs=2, **(choices | {"model_axis": 1}))
    experiment.run(plain, tmp_path / "one", console=quiet())
    check_close(tmp_path, "one", "two")
    check_close(tmp_path, "one", "other")


@pytest.mark.slow
def test_a_signal_to_one_of_two_processes_ends_both(tmp_path):
    """At the same step, saved; then on as if nothing had been."""
    exp = tiny(toy_data(tmp_path / "text"), epochs=15, validate_every=30, shapes=1)
    both = start_two(tmp_path / "two", exp)
    for line in both[0].stderr:
        if "largest batch" in line:
            break
    both[1].send_signal(signal.SIGTERM)
    said = end_two(both, 128 + signal.SIGTERM)
    assert "after step" in said[0] and "Traceback" not in "".join(said)
    end_two(start_two(tmp_path / "two", exp, "resume"))
    end_two(start_two(tmp_path / "whole", exp))
    ours, theirs = (
        manifests.read(tmp_path / name / "checkpoints" / "60").content
        for name in ("two", "whole")
    )
    assert ours == theirs
