# SPDX-License-Identifier: Apache-2.0
"""The table of runs: how far each is, from its files alone."""

import json
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from kvnmt.errors import UserError
from kvnmt.files import locked
from kvnmt.runs.directory import load_experiment
from kvnmt.runs.overview import RunState, states
from kvnmt.training.checkpoints.folder import only_writer
from tests.helpers import records, steps_kept, trained, untrained


@pytest.fixture(scope="module")
def shared(tmp_path_factory) -> Path:
    return trained(tmp_path_factory.getbasetemp())


def state(folder: Path) -> RunState:
    (found,) = states([folder, folder / "checkpoints"])
    return found


def changed(folder: Path, path: str, value: object) -> None:
    plain = json.loads((folder / "config.json").read_text())
    plain["training"][path] = value
    (folder / "config.json").write_text(json.dumps(plain))


def test_a_finished_run(shared):
    told, made = records(shared), max(steps_kept(shared))
    best = max(told, key=lambda record: record["valid_bleu"])
    found = state(shared)
    assert found.system == "additive, conditional, previous_word"
    assert (found.step, found.steps, found.state) == (made, made, "finished")
    assert (found.figure, found.best) == ("valid_bleu", best["valid_bleu"])
    assert found.best_step == best["step"]
    assert found.since_best == len(told) - 1 - told.index(best)


def test_the_states_of_a_run(tmp_path, shared):
    folder = Path(shutil.copytree(shared, tmp_path / "run"))
    assert state(folder)._replace(run="") == state(shared)._replace(run="")
    changed(folder, "epochs", load_experiment(folder).training.epochs + 1)
    on = state(folder)
    assert (on.state, on.step < on.steps) == ("interrupted", True)
    changed(folder, "epochs", 1)  # fewer than were made
    assert state(folder).state == "finished"
    changed(folder, "epochs", load_experiment(shared).training.epochs + 1)
    changed(folder, "metric", "loss")
    assert state(folder).figure == "valid_loss"
    assert state(folder).best == min(one["valid_loss"] for one in records(folder))
    last = records(folder)[-1] | {"valid_loss": None}
    with (folder / "metrics.jsonl").open("a") as file:
        for more in (1, 2):
            step = last["step"] + more
            epoch = last["epoch"] * step / last["step"]
            file.write(json.dumps(last | {"step": step, "epoch": epoch}) + "\n")
    changed(folder, "patience", 2)
    assert state(folder).state == "stopped early"
    changed(folder, "min_epochs", load_experiment(shared).training.epochs + 1)
    assert state(folder).state == "interrupted"
    with locked(folder / "lock"):
        found = state(folder)
        assert (found.state, found.step) == ("training", last["step"] + 2)
    shutil.rmtree(folder / "checkpoints")
    assert state(folder).state == "no checkpoint yet" and state(folder).step == 0
    (folder / "metrics.jsonl").unlink()
    assert state(folder)[2:7] == (0, None, None, None, None)


def test_a_lock_that_tells_nothing(tmp_path, shared, monkeypatch):
    """As where a file system has no locks: a training may go on there."""
    folder = Path(shutil.copytree(shared, tmp_path / "run"))
    changed(folder, "epochs", load_experiment(folder).training.epochs + 1)
    (folder / "lock").touch()

    def none(file: object, kind: int) -> None:
        raise OSError("no locks available")

    monkeypatch.setattr("fcntl.flock", none)
    assert state(folder).state == "training or interrupted"
    assert state(shared).state == "finished"


def test_a_run_that_was_not_trained(tmp_path):
    assert state(untrained(tmp_path, "rnnencdec")).state == "parameters alone"


def test_a_look_keeps_no_training_out(tmp_path, monkeypatch):
    """It holds the lock for a moment, in which a training may begin."""
    look = ExitStack()
    look.enter_context(locked(tmp_path / "lock", shared=True))
    monkeypatch.setattr("time.sleep", lambda seconds: look.close())
    with only_writer(tmp_path, pytest.fail):
        pass


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("config.json", "{", "none of this version"),
        ("config.json", '{"model": 3}', "none of this version"),
        ("metrics.jsonl", "{\n{\n", "line 1 is no record"),
        ("metrics.jsonl", '{"step": 3, "epoch": 0}\n', "none of this version"),
    ],
)
def test_a_damaged_run_hides_no_other(tmp_path, shared, name, text, told):
    folder = Path(shutil.copytree(shared, tmp_path / "run"))
    (folder / name).write_text(text)
    damaged, whole = states([folder, shared])
    assert told in damaged.state and whole.state == "finished"


def test_where_there_is_no_run(tmp_path):
    with pytest.raises(UserError, match="no run directory; name some"):
        states([tmp_path])


def test_the_command_needs_no_jax(shared):
    code = (
        "import sys; from kvnmt.cli import main; main(['runs', *sys.argv[1:]]); "
        "print('jax' in sys.modules)"
    )
    command = [sys.executable, "-c", code, shared]
    table = subprocess.run(command, capture_output=True, text=True).stdout
    assert "finished" in table and table.endswith("False\n")
    given = subprocess.run([*command, "--json"], capture_output=True, text=True).stdout
    assert json.loads(given.splitlines()[0]) == state(shared)._asdict()
