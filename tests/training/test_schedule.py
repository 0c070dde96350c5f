# SPDX-License-Identifier: Apache-2.0
"""When a training ends, how its rate falls, and what its settings never reach."""

import dataclasses
import io
from pathlib import Path

import jax
import numpy as np
import pytest
from rich.console import Console

from kvnmt.runs import train as experiment
from kvnmt.runs.config import Experiment
from kvnmt.runs.directory import load_run
from kvnmt.training import loop
from kvnmt.training.loop_state import LoopState
from kvnmt.training.optimizer import OptimizerConfig
from kvnmt.training.warnings import warnings
from tests.helpers import records, steps_kept, tiny
from tests.training.jobs import fit_with, idle, job_and_draw
from tests.training.runs import EPOCH, everything, run, standstill


def warnings_of(exp: Experiment, folder: Path) -> list[str]:
    """What is told before the first step."""
    job, _ = job_and_draw(exp, folder)
    return [*warnings(job, LoopState(job.shapes))]


def test_steps_that_epochs_end_before_are_told(tmp_path, data):
    exp = tiny(data, epochs=2, steps=2 * EPOCH + 1)
    out = io.StringIO()
    experiment.run(exp, tmp_path / "run", console=Console(file=out, width=200))
    told = f"--training.epochs 2 end it after {2 * EPOCH} steps, before"
    assert told in out.getvalue()
    for most in (None, 2 * EPOCH, 1):
        exp = tiny(data, epochs=2, steps=most)
        assert not warnings_of(exp, tmp_path / "run")


def test_a_validation_beyond_the_end_is_told(tmp_path, data):
    exp = tiny(data, epochs=2, validate_every=2 * EPOCH + 1)
    (told,) = warnings_of(exp, tmp_path / "run")
    assert f"beyond the end, step {2 * EPOCH}: only that is validated" in told
    exp = tiny(data, epochs=2, validate_every=2 * EPOCH)
    assert not warnings_of(exp, tmp_path / "run")


def test_a_mean_that_begins_as_nothing_learnt_is_told(tmp_path, data):
    (told,) = warnings_of(tiny(data, ema=0.9, ema_ramp=False), tmp_path / "run")
    assert "the running mean begins as arrays that have learnt nothing" in told
    warm = tiny(data, ema=0.9, ema_ramp=False, warm_start=tmp_path / "first")
    assert not warnings_of(warm, tmp_path / "run")


def test_a_least_number_of_epochs_beyond_the_end_is_told(tmp_path, data):
    (told,) = warnings_of(tiny(data, epochs=2, min_epochs=2), tmp_path / "run")
    assert "--training.min-epochs 2 ends no sooner than the training itself" in told
    few = tiny(data, epochs=9, min_epochs=2, steps=2 * EPOCH)
    assert len(warnings_of(few, tmp_path / "run")) == 1
    assert not warnings_of(tiny(data, epochs=3, min_epochs=2), tmp_path / "run")


def test_a_schedule_that_ends_before_training_is_told(tmp_path, data):
    exp = tiny(data, epochs=1)
    before = dataclasses.replace(exp.optimizer, schedule="cosine", schedule_steps=2)
    exp = dataclasses.replace(exp, optimizer=before)
    out = io.StringIO()
    console = Console(file=out, width=200)
    fit_with(exp, tmp_path / "run", step=idle, console=console)
    told = f"schedule cosine reaches 0 at step 2, and steps up to {EPOCH} learn nothing"
    assert told in out.getvalue()
    last = dataclasses.replace(before, schedule_steps=EPOCH)
    for one in (last, dataclasses.replace(last, schedule="constant")):
        exp = dataclasses.replace(exp, optimizer=one)
        assert not warnings_of(exp, tmp_path / "run")


def test_a_rate_that_falls_from_the_first_step_on_is_told(tmp_path, data):
    for warmup, count in ((0, 1), (1, 0)):
        choices = {"schedule": "inverse_sqrt", "warmup": warmup}
        optimizer = dataclasses.replace(tiny(data).optimizer, **choices)
        exp = dataclasses.replace(tiny(data), optimizer=optimizer)
        told = warnings_of(exp, tmp_path / "run")
        assert ["--optimizer.warmup 4000" in line for line in told] == [True] * count


def test_the_optimizer_counts_the_epochs_of_the_text(tmp_path, data, once):
    """In the first of them no rate falls."""
    exp = tiny(data, epochs=1)
    falls = dataclasses.replace(exp.optimizer, decay=1e-6, decay_after=1)
    run(dataclasses.replace(exp, optimizer=falls), tmp_path / "other")
    one, other = (load_run(folder).params for folder in (once, tmp_path / "other"))
    jax.tree.map(np.testing.assert_array_equal, one, other)
    longer = dataclasses.replace(tiny(data, epochs=2), optimizer=falls)
    run(longer, tmp_path / "longer")
    (end, _), (start, _) = (
        everything(folder, exp) for folder in (tmp_path / "longer", once)
    )
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5),
        end.params,
        start.params,
    )


def test_a_run_that_does_not_improve_stops(tmp_path, data):
    def go_on(patience: int, resume: bool = True, **least: int) -> loop.Result:
        exp = tiny(data, epochs=9, patience=patience, **least)
        choices = {"step": idle, "validate": standstill, "resume": resume}
        return fit_with(exp, tmp_path / "run", **choices)

    result = go_on(2, resume=False)
    assert result.stopped_early
    assert (result.best_step, result.steps) == (EPOCH, 3 * EPOCH)
    assert steps_kept(tmp_path / "run") == {EPOCH, 2 * EPOCH, 3 * EPOCH}
    again = go_on(2)
    assert again.stopped_early and again.steps == 3 * EPOCH
    assert go_on(3).steps == 4 * EPOCH
    assert go_on(3, min_epochs=4).steps == 4 * EPOCH
    assert go_on(3, min_epochs=6).steps == 6 * EPOCH


@pytest.mark.parametrize(
    ("given", "rate"),
    [({}, 0.003), ({"learning_rate": 0.01}, 0.01), ({"plateau": 1.0}, 0.03)],
    ids=str,
)
def test_a_rate_that_is_given_anew_has_not_fallen(tmp_path, data, given, rate):
    falling = OptimizerConfig(learning_rate=0.03, plateau=0.1, plateau_patience=1)
    exp = dataclasses.replace(tiny(data, epochs=2), optimizer=falling)
    fit_with(exp, tmp_path / "run", step=idle, validate=standstill)
    more = dataclasses.replace(
        tiny(data, epochs=3), optimizer=dataclasses.replace(falling, **given)
    )
    choices = {"step": idle, "validate": standstill, "resume": True}
    fit_with(more, tmp_path / "run", **choices)
    # The fall of the third validation comes before its record.
    last = records(tmp_path / "run")[-1]["learning_rate"]
    assert last == pytest.approx(rate)


def test_a_rate_falls_after_as_many_validations_as_may_be_no_better(tmp_path, data):
    falling = OptimizerConfig(learning_rate=0.03, plateau=0.1, plateau_patience=2)
    exp = dataclasses.replace(tiny(data, epochs=4), optimizer=falling)
    fit_with(exp, tmp_path / "run", step=idle, validate=standstill)
    rates = [record["learning_rate"] for record in records(tmp_path / "run")]
    assert rates == pytest.approx([0.03, 0.03, 0.03, 0.003])
