# SPDX-License-Identifier: Apache-2.0
"""What a training writes into its folder, when, and whose the folder is."""

import dataclasses
import time
from contextlib import contextmanager

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

from kvnmt import devices
from kvnmt.data.stream import WorkerDiedError, stream
from kvnmt.errors import UserError
from kvnmt.model.assembly import Params
from kvnmt.runs import train as experiment
from kvnmt.runs.directory import load_run
from kvnmt.training import leaving, loop, outputs, profile
from kvnmt.training.checkpoints import manifest as manifests
from kvnmt.training.checkpoints.folder import only_writer
from kvnmt.training.checkpoints.writer import Checkpoints
from kvnmt.training.leaving import Leaving
from kvnmt.training.loop_state import LoopState
from kvnmt.training.signals import Signals
from tests.helpers import full, quiet, records, steps_kept, timeless, tiny, trained
from tests.training.jobs import fit_with, idle
from tests.training.runs import EPOCH, everything, run, standstill


def test_two_trainings_do_not_share_a_folder(one, data):
    with only_writer(one, print):
        before = load_run(one).experiment
        with pytest.raises(UserError, match="another training writes to"):
            run(tiny(data, epochs=2), one, resume=True)
        assert load_run(one).experiment == before
    assert run(tiny(data, epochs=2), one, resume=True).steps == 2 * EPOCH


def test_a_run_without_a_whole_checkpoint_does_not_start_anew(one, data):
    (one / "checkpoints" / "4" / "params" / "_METADATA").unlink()
    for _ in range(2):  # the first sets it aside
        with pytest.raises(UserError, match="no checkpoint left that is whole"):
            run(tiny(data, epochs=2), one, resume=True)


def test_a_start_that_was_killed_early_leaves_no_run(tmp_path, data):
    (tmp_path / "run" / "vocabulary").mkdir(parents=True)
    (tmp_path / "run" / "vocabulary" / "source.words").write_text("ha")
    (tmp_path / "run" / "lock").touch()
    assert run(tiny(data, epochs=1), tmp_path / "run").steps == EPOCH


def test_a_folder_that_was_taken_meanwhile_is_left_alone(tmp_path, data):
    """Another process has made a run there while the text was prepared."""

    def make_another_run(text: str) -> int:
        if "training pairs" in text and not (tmp_path / "run").exists():
            run(tiny(data, epochs=1), tmp_path / "run")
        return len(text)

    console = quiet()
    console.file.write = make_another_run
    with pytest.raises(UserError, match="exists already"):
        experiment.run(tiny(data, epochs=2), tmp_path / "run", console=console)
    assert load_run(tmp_path / "run").experiment.training.epochs == 1


def test_it_saves_by_the_clock(tmp_path, data, whole):
    """After each step that was read, with no minutes to wait; nothing else changes."""
    exp = tiny(data, epochs=3)
    often = dataclasses.replace(
        exp, training=dataclasses.replace(exp.training, save_minutes=1e-9, keep_last=9)
    )
    run(often, tmp_path / "often")
    assert len(steps_kept(tmp_path / "often")) > 4
    assert 2 <= len(steps_kept(whole)) <= 3  # the last two, and the best
    ours, theirs = (
        everything(folder, exp)[0] for folder in (tmp_path / "often", whole)
    )
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)


def test_it_is_time_to_save_so_many_seconds_after_the_last_save(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(leaving.time, "monotonic", lambda: clock[0])
    signals, mesh = Signals(print), devices.data_mesh()  # which nobody opens
    late, never = Leaving(signals, mesh, 120.0), Leaving(signals, mesh)
    for seconds, due in ((119, False), (120, True), (239, False), (240, True)):
        clock[0] = float(seconds)
        assert late.agree() == late.save_due == due
        assert not (late.decided or never.agree())
        if due:
            late.saved()
            assert not late.save_due


def test_minutes_are_minutes(tmp_path, data, monkeypatch):
    every = []

    def look(signals: Signals, mesh: Mesh, seconds: float) -> Leaving:
        every.append(seconds)
        return Leaving(signals, mesh, seconds)

    monkeypatch.setattr(outputs, "Leaving", look)
    exp = tiny(data, epochs=1, save_minutes=2.5)
    fit_with(exp, tmp_path / "run", step=idle, validate=standstill)
    assert every == [150.0]


def test_what_was_made_is_saved_where_a_worker_dies(tmp_path, data, monkeypatch):
    exp = tiny(data, epochs=1, log_every=1)

    @contextmanager
    def dying(*how):
        with stream(*how) as batches:

            def some():
                yield next(batches)
                yield next(batches)
                raise WorkerDiedError("a process died.")

            yield some()

    with monkeypatch.context() as patched, pytest.raises(WorkerDiedError):
        patched.setattr(loop, "stream", dying)
        run(exp, tmp_path / "run")
    assert steps_kept(tmp_path / "run") == {2}
    assert len(records(tmp_path / "run", "steps.jsonl")) == 2
    run(exp, tmp_path / "run", resume=True)
    run(exp, tmp_path / "whole")
    lines = (records(tmp_path / name, "steps.jsonl") for name in ("run", "whole"))
    ours, theirs = ([*map(timeless, each)] for each in lines)
    assert ours == theirs


def test_steps_are_traced_where_it_is_asked_for(tmp_path, data, monkeypatch):
    """Once the first of a start are made; what is learnt is the same."""
    monkeypatch.setattr(profile, "SKIPPED", 2)
    told = []
    monkeypatch.setattr(jax.profiler, "start_trace", told.append)
    monkeypatch.setattr(jax.profiler, "stop_trace", lambda: told.append("end"))
    folder = tmp_path / "run"
    run(tiny(data, epochs=1, profile=1), folder)
    assert told == [folder / "profile", "end"]
    said = list[str]()
    traced = profile.Profile(folder, 2, said.append)
    for _ in range(6):
        traced.sent(())
    traced.close()
    assert said == [f"a trace of 2 steps is in '{folder}'"]
    few = profile.Profile(folder, 2, said.append)
    few.sent(())
    few.close()
    assert "no step was traced: this start made 1" in said[-1]

    with monkeypatch.context() as patch:
        patch.setattr(jax.profiler, "stop_trace", full)
        lost = profile.Profile(folder, 2, said.append)
        for _ in range(6):
            lost.sent(())
    assert "no trace can be made" in said[-1] and "No space left" in said[-1]
    told.clear()
    run(tiny(data, epochs=2, profile=9), folder, resume=True)
    assert told == [folder / "profile", "end"]  # at the end, though fewer were made
    told.clear()
    run(tiny(data, epochs=2), tmp_path / "other")
    assert not told
    ours, theirs = (everything(f, tiny(data))[0] for f in (folder, tmp_path / "other"))
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)


def test_records_say_where_and_what(base):
    found = records(trained(base))
    assert [record["step"] for record in found] == [40, 80]
    assert [record["epoch"] for record in found] == [10, 20]
    names = {"train_loss", "valid_loss", "valid_bleu", "tokens_per_second"}
    assert all(names <= record.keys() for record in found)
    assert found[-1]["tokens_per_second"] > 0
    assert 0 < found[-1]["waiting"] < 1  # its batches are made here, in no time


def test_the_best_and_the_last_checkpoint_are_kept(tmp_path, data):
    """What was best can be read back."""
    folder, scores, states = tmp_path / "run", [1, 3, 2, 0], []

    def validate(params: Params) -> dict[str, float]:
        states.append(jax.device_get(params))
        return {"valid_loss": 1.0, "valid_bleu": scores[len(states) - 1]}

    exp = tiny(data, epochs=len(scores), patience=9, keep_last=1)
    result = fit_with(exp, folder, validate=validate)
    assert result.best_step == 2 * EPOCH
    assert steps_kept(folder) == {2 * EPOCH, 4 * EPOCH}
    params = jax.device_get(load_run(folder).params)
    jax.tree.map(np.testing.assert_array_equal, params, states[1])


def test_what_is_kept_for_good_is_saved_first(tmp_path, data):
    """Though no validation falls on a multiple; and without a number none is best."""
    lost = {"valid_loss": float("inf"), "valid_bleu": float("nan")}
    exp = tiny(data, epochs=2, keep_every=3, metric="loss", patience=9)
    fit_with(exp, tmp_path / "run", validate=lambda params: lost)
    assert steps_kept(tmp_path / "run") == {3, 6, 2 * EPOCH}
    with Checkpoints(tmp_path / "run" / "checkpoints", read_only=True) as checkpoints:
        assert checkpoints.find("best").step == 2 * EPOCH


def test_the_last_validation_takes_time_too(tmp_path, data, monkeypatch):
    count, elapsed, before = LoopState.count_time, [], []

    def watched(state: LoopState) -> None:
        count(state)
        elapsed.append(state.progress.elapsed)

    def validate(params: Params) -> dict[str, float]:
        before.append(elapsed[-1])
        time.sleep(0.1)
        return {"valid_loss": 1.0, "valid_bleu": 1.0}

    monkeypatch.setattr(LoopState, "count_time", watched)
    result = fit_with(tiny(data, epochs=1), tmp_path / "run", validate=validate)
    assert 60 * result.minutes >= before[-1] + 0.1
    manifest = manifests.read(tmp_path / "run" / "checkpoints" / str(EPOCH))
    assert manifest.progress["elapsed"] == pytest.approx(60 * result.minutes)


@pytest.mark.parametrize("metric", ["bleu", "loss"])
def test_the_metric_chooses_the_best(tmp_path, data, metric):
    figures = iter([(2.0, 10.0), (1.0, 5.0)])

    def validate(params: Params) -> dict[str, float]:
        loss, bleu = next(figures)
        return {"valid_loss": loss, "valid_bleu": bleu}

    exp = tiny(data, epochs=2, metric=metric)
    result = fit_with(exp, tmp_path / "run", validate=validate)
    assert result.best_step == (EPOCH if metric == "bleu" else 2 * EPOCH)
