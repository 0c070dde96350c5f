# SPDX-License-Identifier: Apache-2.0
"""Two processes train what one trains."""

import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from kvnmt import companions
from kvnmt.runs import train as experiment
from kvnmt.runs.config import Experiment
from kvnmt.runs.directory import load_run
from kvnmt.training.checkpoints import manifest as manifests
from kvnmt.training.config import TrainingConfig, plan_batches
from tests.helpers import (
    drawn,
    first_params,
    quiet,
    records,
    tiny,
    toy_data,
    write_untrained,
)
from tests.training.children import Cluster, End, quick, start
from tests.training.ports import free_port
from tests.training.pretended import in_both, pretend_two

LEAST = "lm-lstm"  # a system of few programs


def train_two(
    folder: Path,
    exp: Experiment,
    status: int = 0,
    end: End = End(),
    devices: int = 2,
    other: Experiment | None = None,
    elsewhere: Path | None = None,
):
    """Trains in two processes; what they said.

    Args:
        folder: Run directory.
        exp: What is trained.
        status: With which both end.
        end: When the second ends itself.
        devices: Of each process.
        other: What the second trains instead.
        elsewhere: Run directory of the second, if it is another.
    """
    port = free_port()
    both = [
        start(
            folder.parent / f"{folder.name}-{i}.log",
            elsewhere if i and elsewhere else folder,
            other if i and other else exp,
            end=end if i else End(),
            cluster=Cluster(port, i, devices=devices),
        )
        for i in range(2)
    ]
    return [process.end(status) for process in both]


def check_close(folder: Path, *names: str) -> None:
    """Figures and parameters to rounding."""
    for ours, theirs in zip(*(records(folder / n) for n in names), strict=True):
        for name in ("step", "train_loss", "valid_loss", "valid_bleu"):
            assert ours[name] == pytest.approx(theirs[name], rel=1e-5), name
    params = (jax.device_get(load_run(folder / n).params) for n in names)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), *params)


@pytest.mark.slow
def test_two_processes_train_what_one_trains(tmp_path):
    """With dropout and batches that are not full, in parts, words split over devices.

    A signal to the second ends both at the same step, saved; then two go on as if
    nothing had been, and so does one process of four devices.
    """
    data = toy_data(tmp_path / "text")
    choices = {"batch_tokens": 64, "shapes": 1, "accumulate": 2, "epochs": 2}
    choices["log_every"] = 2
    exp = tiny(data, model_axis=2, **choices)
    often = replace(exp.training, save_minutes=1e-9)  # by the clocks of both
    said = train_two(tmp_path / "two", replace(exp, training=often))
    assert "training pairs" in said[0] and not said[1].strip()
    asked = End(leave_at=3, signals=(signal.SIGTERM,))
    said = train_two(tmp_path / "parts", exp, 128 + signal.SIGTERM, asked)
    assert "after step" in said[0] and "first step" not in said[0]
    shutil.copytree(tmp_path / "parts", tmp_path / "other")
    train_two(tmp_path / "parts", exp)
    experiment.run(exp, tmp_path / "other", resume=True, console=quiet())
    experiment.run(tiny(data, **choices), tmp_path / "one", console=quiet())
    check_close(tmp_path, "one", "two")
    texts = [(tmp_path / name / "validations").iterdir() for name in ("one", "two")]
    one, two = ({path.name: path.read_text() for path in each} for each in texts)
    assert one == two and any(map(str.strip, one.values()))
    check_close(tmp_path, "one", "other")
    ours, theirs = (
        manifests.read(max((tmp_path / name / "checkpoints").iterdir(), key=step_of))
        for name in ("two", "parts")
    )
    assert (ours.step, ours.content) == (theirs.step, theirs.content)
    ours, theirs = (
        [line["train_loss"] for line in records(tmp_path / name, "steps.jsonl")]
        for name in ("two", "parts")
    )
    assert ours == theirs and len(ours) > 1


@pytest.mark.slow
def test_a_process_without_room_ends_both_at_once(tmp_path):
    """With a device each, as a GPU for each task; what was whole before stays.

    Both read the run that they start from.
    """
    data = toy_data(tmp_path / "text")
    write_untrained(tiny(data, LEAST), tmp_path / "before")
    exp = quick(tiny(data, LEAST, epochs=2, warm_start=tmp_path / "before"))
    before = time.monotonic()
    said = train_two(tmp_path / "run", exp, 2, End(full_at=2), devices=1)
    assert time.monotonic() - before < 300  # orbax by itself waits four times as long
    assert "No space left on device" in said[1] and "could not be written" in said[0]
    assert "arrays copied" in said[0]
    assert len(list((tmp_path / "run" / "checkpoints").iterdir())) == 1


@pytest.mark.slow
def test_processes_start_from_the_same_arrays(tmp_path):
    """Files may have other names on each machine, but the same content."""
    data = toy_data(tmp_path / "text")
    for name, draw in (("one", first_params), ("other", drawn)):
        write_untrained(tiny(data, LEAST), tmp_path / name, draw)
    one, other = (
        quick(tiny(data, LEAST, epochs=1, warm_start=tmp_path / name))
        for name in ("one", "other")
    )
    said = train_two(tmp_path / "run", one, 2, devices=1, other=other)
    assert "has other choices or other text than the first" in said[1]
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_processes_without_a_folder_that_all_see_train_nothing(tmp_path):
    """Checkpoints would have holes, and nobody would be told."""
    exp = quick(tiny(toy_data(tmp_path / "text"), LEAST, epochs=1))
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    said = train_two(run, exp, 2, devices=1, elsewhere=elsewhere)
    for path, each in zip((run, elsewhere), said):
        assert f"kvnmt: process 1 does not see '{path}' of the first process" in each
    assert list(run.iterdir()) == [] and not elsewhere.exists()


@pytest.mark.slow
def test_a_process_that_fails_alone_ends_both(tmp_path):
    """The others meet it on their devices, where it never comes."""
    exp = quick(tiny(toy_data(tmp_path / "text"), LEAST, epochs=2))
    before = time.monotonic()
    said = train_two(tmp_path / "run", exp, 2, End(fails=True), devices=1)
    assert time.monotonic() - before < 240  # JAX by itself waits for five minutes
    assert "kvnmt: the validation text is gone." in said[1]
    assert said[0].endswith("kvnmt: another process has failed; it says why.\n")


def other_rate(exp: Experiment, folder: Path) -> Experiment:
    return replace(exp, optimizer=replace(exp.optimizer, learning_rate=0.5))


def other_order(exp: Experiment, folder: Path) -> Experiment:
    """The same pairs, and so the same words, from last to first."""
    data = toy_data(folder)
    for path in (data.source, data.target):
        path.write_text("".join(reversed(path.read_text().splitlines(True))))
    return replace(exp, data=data)


@pytest.mark.slow
@pytest.mark.parametrize("change", [other_rate, other_order])
def test_processes_with_unlike_choices_train_nothing(tmp_path, change):
    exp = tiny(toy_data(tmp_path / "text"), shapes=1)
    other = change(exp, tmp_path / "other")
    said = train_two(tmp_path / "run", exp, 2, devices=1, other=other)
    assert "other choices or other text than the first" in said[1]
    assert "another process has failed" in said[0]
    assert not (tmp_path / "run").exists()


def test_choices_that_differ_are_told_in_every_process(monkeypatch):
    pretend_two(monkeypatch)
    assert in_both(lambda number: companions.check_alike("same")) == [[], []]
    first, second = in_both(lambda number: companions.check_alike(f"rate {number}"))
    assert str(*first) == companions.ANOTHER
    assert "this process has other choices or other text" in str(*second)


def test_a_small_text_is_batched_alike_on_any_number_of_devices():
    """Of those that divide eight: a run on them goes on as on one."""
    lengths = np.arange(140).reshape(70, 2) % 9 + 1
    config = TrainingConfig(batch_size=80)
    meshes: list[Any] = [SimpleNamespace(shape={"data": n}) for n in (1, 2, 4, 8)]
    plans = [plan_batches(config, lengths, mesh) for mesh in meshes]
    assert len({plan.digest() for plan in plans}) == 1
    assert plans[0].rows.tolist() == [72] * len(plans[0].shapes)


def step_of(checkpoint: Path) -> int:
    return int(checkpoint.name)
