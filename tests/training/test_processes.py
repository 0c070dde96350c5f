# SPDX-License-Identifier: Apache-2.0
"""Two processes train what one trains."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from kvnmt import experiment
from kvnmt.experiment import load_run
from tests.helpers import quiet, records, tiny, toy_data

PROGRAM = """
import json, sys
import jax
jax.config.update("jax_num_cpu_devices", 2)
from kvnmt import devices, experiment
from kvnmt.experiment import from_plain
from pathlib import Path
folder, plain, port, process, *resume = sys.argv[1:]
devices.join(f"localhost:{port}", 2, int(process))
config = from_plain(json.loads(plain))
experiment.run(config, Path(folder), resume=bool(resume))
"""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("localhost", 0))
        return one.getsockname()[1]


def run_two(folder: Path, exp: experiment.Experiment, *resume: str) -> list[str]:
    """Trains in two processes of two devices each; what they said."""
    port, plain = str(free_port()), json.dumps(experiment.to_plain(exp))
    given = [sys.executable, "-c", PROGRAM, str(folder), plain, port]
    kept = {k: v for k, v in os.environ.items() if not k.startswith("JAX")}
    both = [
        subprocess.Popen(
            [*given, str(i), *resume], stderr=subprocess.PIPE, text=True, env=kept
        )
        for i in range(2)
    ]
    said = [one.communicate(timeout=300)[1] for one in both]
    assert [one.returncode for one in both] == [0, 0], said
    return said


@pytest.mark.slow
def test_two_processes_train_what_one_trains(tmp_path):
    """With dropout and batches that are not full; stopped and taken up again."""
    data = toy_data(tmp_path / "text")
    exp, one = (tiny(data, epochs=n, batch_tokens=64) for n in (2, 1))
    said = run_two(tmp_path / "two", one)
    assert "training pairs" in said[0] and not said[1].strip()
    run_two(tmp_path / "two", exp, "resume")
    experiment.run(exp, tmp_path / "one", console=quiet())
    for ours, theirs in zip(*(records(tmp_path / n) for n in ("one", "two"))):
        for name in ("step", "train_loss", "valid_loss", "valid_bleu"):
            assert ours[name] == pytest.approx(theirs[name], rel=1e-5), name
    params = (jax.device_get(load_run(tmp_path / n).params) for n in ("one", "two"))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), *params)
