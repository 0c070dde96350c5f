# SPDX-License-Identifier: Apache-2.0
"""Runs that go on: after a kill, after an end, and not with another text."""

import dataclasses
import os
import shutil
import signal
import time
from typing import Any

import jax
import numpy as np
import pytest

from kvnmt.data import shapes
from kvnmt.data.plan import Plan
from kvnmt.errors import StoppedError, UserError
from kvnmt.model.assembly import Params
from kvnmt.runs import train as experiment
from kvnmt.runs.directory import load_run
from kvnmt.training import loop
from kvnmt.training.checkpoints import manifest as manifests
from kvnmt.training.optimizer import OptimizerConfig
from tests.helpers import quiet, records, steps_kept, timeless, tiny, toy_data, trained
from tests.training.jobs import Killed, fit_with, job_and_draw, killed_after, watching
from tests.training.runs import EPOCH, check_same_run, run, standstill


def test_a_killed_run_goes_on_as_if_it_never_stopped(tmp_path, data, monkeypatch):
    """With dropout, from the middle of the second epoch, which has more shapes."""
    exp = tiny(data, epochs=3, validate_every=3, shapes=2)
    monkeypatch.setattr(shapes, "COMPILE_COST", 1 << 16)
    after, last = job_and_draw(exp, tmp_path / "whole")[0].plan.first_epochs
    monkeypatch.setattr(shapes, "COMPILE_COST", 1 + (1 << 16) // after)
    plan = job_and_draw(exp, tmp_path / "whole")[0].plan
    assert last == 0 and plan.first_epochs.tolist() == [1, 0]
    run(exp, tmp_path / "whole")
    with pytest.raises(Killed):
        fit_with(exp, tmp_path / "killed", step=killed_after(8))
    assert max(steps_kept(tmp_path / "killed")) == 6
    assert run(exp, tmp_path / "killed", resume=True).steps == 3 * EPOCH
    check_same_run(exp, tmp_path / "whole", tmp_path / "killed")


def test_a_run_goes_on_from_before_checkpoints_that_were_moved_away(
    tmp_path, data, whole
):
    exp = tiny(data, epochs=3)
    shutil.copytree(whole, tmp_path / "back")
    for step in steps_kept(tmp_path / "back") - {2 * EPOCH}:
        kept = tmp_path / "back" / "checkpoints" / str(step)
        kept.rename(tmp_path / str(step))
    assert run(exp, tmp_path / "back", resume=True).steps == 3 * EPOCH
    check_same_run(exp, whole, tmp_path / "back")


def test_a_run_that_goes_on_draws_nothing_that_is_not_used(one, data):
    """Parameters and moments would be held twice, unseen by the memory check."""
    job, draw = job_and_draw(tiny(data, epochs=2), one)
    job = dataclasses.replace(job, train_step=killed_after(0)(job.train_step))
    draws = []

    def drawn() -> Any:
        draws.append(draw())
        return draws[-1]

    with pytest.raises(Killed):
        loop.fit(job, drawn, resume=True)
    assert not draws
    shutil.rmtree(one / "checkpoints")
    with pytest.raises(Killed):
        loop.fit(job, drawn, resume=True)
    assert len(draws) == 1


def test_batches_of_tokens_from_a_cache_go_on_too(tmp_path, data):
    """Ids of the cache, batches by another process; then all of it in memory."""
    cached = dataclasses.replace(data, cache=tmp_path / "cache")
    one = tiny(cached, epochs=1, batch_tokens=64, workers=1)
    two = tiny(cached, epochs=2, batch_tokens=64)
    memory = tiny(data, epochs=2, batch_tokens=64)
    whole = run(memory, tmp_path / "whole")
    assert 2 < whole.steps / 2 < 15
    run(one, tmp_path / "parts")
    run(two, tmp_path / "parts", resume=True)
    check_same_run(memory, tmp_path / "whole", tmp_path / "parts")
    assert len([path for path in cached.cache.iterdir() if path.is_dir()]) == 1


def test_a_run_ends_after_so_many_steps_and_goes_on(tmp_path, data, whole):
    """In the midst of an epoch, where it is validated; and no further than epochs."""
    some = tiny(data, epochs=3, steps=EPOCH + 2)
    assert run(some, tmp_path / "parts").steps == EPOCH + 2
    validated = [record["step"] for record in records(tmp_path / "parts")]
    assert validated == [EPOCH, EPOCH + 2]
    more = tiny(data, epochs=3, steps=99)
    assert run(more, tmp_path / "parts", resume=True).steps == 3 * EPOCH
    ours, theirs = (load_run(tmp_path / "parts").params, load_run(whole).params)
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)


def test_a_run_that_has_nothing_left_to_do_says_why(tmp_path, data):
    run(tiny(data, epochs=1, steps=2), tmp_path / "run")
    console, again = quiet(), quiet()
    some, all_of_it = tiny(data, epochs=9, steps=2), tiny(data, epochs=1)
    experiment.run(some, tmp_path / "run", resume=True, console=console)
    run(all_of_it, tmp_path / "run", resume=True)
    experiment.run(all_of_it, tmp_path / "run", resume=True, console=again)
    for bound, told in (("steps 2", console), ("epochs 1", again)):
        said = f"--training.{bound} is reached; give a greater one to go on\n"
        assert said in told.file.getvalue()


def test_a_config_is_that_of_what_was_trained(one, data):
    """Though other choices are given where nothing is left to do."""
    before = (one / "config.json").read_text()
    for choices in ({"frozen": ("encoder",)}, {"steps": 2}):
        run(tiny(data, epochs=1, **choices), one, resume=True)
        assert (one / "config.json").read_text() == before


def test_a_finished_run_may_have_another_search_and_nothing_else(one, data):
    exp, console = tiny(data, epochs=1), quiet()
    other = dataclasses.replace(exp, search=dataclasses.replace(exp.search, beam=3))
    changed = dataclasses.replace(
        other,
        optimizer=dataclasses.replace(exp.optimizer, learning_rate=0.5),
        objective=dataclasses.replace(exp.objective, label_smoothing=0.2),
    )
    experiment.run(changed, one, resume=True, console=console)
    assert load_run(one).experiment == other
    said = "nothing is left to train, so that another objective.label_smoothing and "
    assert f"{said}optimizer.learning_rate is not kept\n" in console.file.getvalue()


def test_a_validation_that_is_left_is_no_end(tmp_path, data):
    exp = tiny(data, epochs=1)

    def stopped(params: Params) -> dict[str, float]:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
        pytest.fail("validation went on")

    with pytest.raises(StoppedError, match="by SIGTERM after step .*, which is saved"):
        fit_with(exp, tmp_path / "run", validate=stopped)
    console = quiet()
    experiment.run(exp, tmp_path / "run", resume=True, console=console)
    assert "is reached" not in console.file.getvalue()
    assert len(records(tmp_path / "run")) == 1


def test_a_run_killed_before_its_first_checkpoint_starts_again(tmp_path, data, whole):
    exp = tiny(data, epochs=3)
    with pytest.raises(Killed):
        fit_with(exp, tmp_path / "killed", step=killed_after(2))
    # The record of a validation whose checkpoint was never finished.
    (tmp_path / "killed" / "metrics.jsonl").write_text('{"step": 4, "epoch": 1.0}\n')
    run(exp, tmp_path / "killed", resume=True)
    check_same_run(exp, whole, tmp_path / "killed")


def test_a_warm_started_run_killed_early_starts_warm_again(tmp_path, base):
    baseline = trained(base)
    exp = tiny(load_run(baseline).experiment.data, warm_start=baseline)
    run(exp, tmp_path / "whole")
    with pytest.raises(Killed):
        fit_with(exp, tmp_path / "killed", step=killed_after(2))
    run(exp, tmp_path / "killed", resume=True)
    check_same_run(exp, tmp_path / "whole", tmp_path / "killed")


def test_records_behind_the_checkpoint_are_dropped(one, data, whole):
    exp = tiny(data, epochs=3)
    with (one / "metrics.jsonl").open("a") as file:
        file.write('{"step": 8, "valid_loss": 1.5}\n{"step": 12, "val')
    run(exp, one, resume=True)
    check_same_run(exp, whole, one)
    assert load_run(one).experiment == load_run(whole).experiment


def test_a_kill_between_record_and_rating_records_once(tmp_path, data, whole):
    """What is validated is said between the two."""
    exp, left = tiny(data, epochs=3), iter(range(1))

    def kill() -> None:
        if next(left, None) is None:
            raise Killed

    with pytest.raises(Killed):
        experiment.run(exp, tmp_path / "killed", console=watching(kill))
    assert len(records(tmp_path / "killed")) == 2
    run(exp, tmp_path / "killed", resume=True)
    check_same_run(exp, whole, tmp_path / "killed")


def one_more(text: str) -> str:
    """A pair more."""
    return "a b\n" + text


def other_word(text: str) -> str:
    """The same lengths."""
    return ("B" if text[0] == "A" else "A") + text[1:]


def other_letter(text: str) -> str:
    """The same of sources, which are small letters."""
    return ("b" if text[0] == "a" else "a") + text[1:]


def test_other_pairs_are_not_gone_on_with(tmp_path, data, monkeypatch):
    """Nor beside another validation text; and the run stays as it is."""
    own = toy_data(tmp_path / "text")
    assert own.valid_target
    reference = own.valid_target.read_text()
    own.valid_target.write_text(f"Q{reference[1:]}")  # unknown
    run(tiny(own, epochs=1), tmp_path / "run")
    config = (tmp_path / "run" / "config.json").read_bytes()
    sides = own.source, own.target
    cases = [(sides, one_more, "trained on other pairs")]
    cases += [(sides[1:], other_word, "trained on other pairs")]
    sides = own.valid_source, own.valid_target
    cases += [(sides, one_more, "validated on other text")]
    cases += [(sides[:1], other_letter, "validated on other text")]
    # The same ids, but other words to compare with.
    cases += [(sides[1:], lambda text: f"Z{text[1:]}", "validated on other text")]
    for paths, change, reason in cases:
        texts = {path: path.read_text() for path in paths}
        for path, text in texts.items():
            path.write_text(change(text))
        with pytest.raises(UserError, match=f"was {reason}"):
            run(tiny(own, epochs=2), tmp_path / "run", resume=True)
        assert (tmp_path / "run" / "config.json").read_bytes() == config
        for path, text in texts.items():
            path.write_text(text)
    with monkeypatch.context() as patch, pytest.raises(UserError, match="shuffled"):
        patch.setattr(Plan, "order", lambda plan: "another version's")
        run(tiny(own, epochs=2), tmp_path / "run", resume=True)
    run(tiny(own, epochs=2), tmp_path / "run", resume=True)


def test_every_way_of_computing_goes_on(tmp_path, data):
    """Killed behind a save in the middle of an epoch; the rate falls on a plateau."""
    choices = {"accumulate": 2, "dtype": "bfloat16", "ema": 0.8, "remat": 3}
    choices["log_every"] = 3
    exp = dataclasses.replace(
        tiny(data, epochs=2, validate_every=3, save_every=2, shapes=1, **choices),
        optimizer=OptimizerConfig(learning_rate=0.5, plateau=0.5, plateau_patience=1),
    )
    run(exp, tmp_path / "whole")
    with pytest.raises(Killed):
        fit_with(exp, tmp_path / "parts", step=killed_after(5))
    assert max(steps_kept(tmp_path / "parts")) == 4
    run(exp, tmp_path / "parts", resume=True)
    ours, theirs = (
        manifests.read(tmp_path / name / "checkpoints" / "8").content
        for name in ("whole", "parts")
    )
    assert ours == theirs
    for file, places in (("metrics.jsonl", [3, 6, 8]), ("steps.jsonl", [3, 6])):
        ours, theirs = (
            [*map(timeless, records(tmp_path / name, file))]
            for name in ("whole", "parts")
        )
        assert ours == theirs
        assert [record["step"] for record in ours] == places
    validations = records(tmp_path / "whole")
    assert any(record["learning_rate"] < 0.5 for record in validations)


def test_a_batch_may_go_on_in_other_parts(tmp_path, data):
    run(tiny(data, epochs=1, shapes=1), tmp_path / "run")
    run(tiny(data, epochs=2, shapes=1, accumulate=2), tmp_path / "run", resume=True)
    assert [record["step"] for record in records(tmp_path / "run")] == [4, 8]


def test_a_loss_is_of_the_steps_that_had_it(tmp_path, data):
    """What was summed before another objective is dropped."""
    exp = tiny(data, epochs=2, validate_every=8, save_every=3)
    with pytest.raises(Killed):
        fit_with(exp, tmp_path / "run", step=killed_after(4))
    objective = dataclasses.replace(exp.objective, atteos=1.0)
    run(dataclasses.replace(exp, objective=objective), tmp_path / "run", resume=True)
    (record,) = records(tmp_path / "run")
    whole = tiny(data, epochs=2, validate_every=8)
    run(dataclasses.replace(whole, objective=objective), tmp_path / "whole")
    (other,) = records(tmp_path / "whole")
    ratio = record["train_atteos"] / other["train_atteos"]
    assert ratio == pytest.approx(1, abs=0.15)  # 5 of 8 steps would be 0.6


def test_lost_records_do_not_stop_a_run(one, data):
    (one / "metrics.jsonl").unlink()
    run(tiny(data), one, resume=True)
    assert [record["step"] for record in records(one)] == [8]


def test_progress_is_that_of_its_checkpoint(tmp_path, data):
    folder = tmp_path / "run"
    fit_with(tiny(data, epochs=4, keep_last=2), folder, validate=standstill)
    for step in (EPOCH, 3 * EPOCH, 4 * EPOCH):
        manifest = manifests.read(folder / "checkpoints" / str(step))
        assert manifest.progress["since_best"] == step // EPOCH - 1
        assert manifest.progress["validated"] == manifest.step == step
