# SPDX-License-Identifier: Apache-2.0
"""Runs: learning, figures, checkpoints, early stop, and going on after a kill."""

import dataclasses
import io
import itertools
import json
import re
import resource
import shutil
import time
import types
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from rich.console import Console

from kvnmt import console
from kvnmt.data import shapes
from kvnmt.data.batches import pad, with_end
from kvnmt.data.config import DataConfig
from kvnmt.data.corpus import load_corpora
from kvnmt.data.plan import Plan
from kvnmt.data.stream import BatchAt, WorkerDiedError, stream
from kvnmt.data.vocabulary import EOS
from kvnmt.errors import StoppedError, UserError
from kvnmt.inference.program import SearchConfig
from kvnmt.inference.translate import translate_lines
from kvnmt.metrics.bleu import corpus_bleu
from kvnmt.model import assembly
from kvnmt.model.assembly import Params
from kvnmt.runs import train as experiment
from kvnmt.runs.config import Experiment
from kvnmt.runs.directory import load_run
from kvnmt.training import bad_numbers, device_memory, loop, profile
from kvnmt.training import records as log_records
from kvnmt.training import step as steps
from kvnmt.training.checkpoints import manifest as manifests
from kvnmt.training.checkpoints.folder import only_writer
from kvnmt.training.checkpoints.writer import Checkpoints
from kvnmt.training.loop_state import LoopState
from kvnmt.training.losses import Loss
from kvnmt.training.optimizer import OptimizerConfig, build
from kvnmt.training.progress import FETCH, together
from kvnmt.training.validation import make_eval_step
from kvnmt.training.warnings import warnings
from tests.helpers import (
    full,
    quiet,
    records,
    replaced,
    steps_kept,
    timeless,
    tiny,
    toy_data,
    trained,
)
from tests.training.jobs import (
    Killed,
    compiling,
    fit_with,
    idle,
    job_and_draw,
    job_of,
    killed_after,
    watching,
    with_lower,
)

EPOCH = 4  # batches


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    return tmp_path_factory.getbasetemp()


@pytest.fixture(scope="module")
def data(base) -> DataConfig:
    """Four batches an epoch, the last of which is not full."""
    return toy_data(base / "loop-text")


def run(exp: Experiment, folder: Path, **choices: Any) -> loop.Result:
    return experiment.run(exp, folder, console=quiet(), **choices)


def everything(folder: Path, exp: Experiment) -> tuple[steps.TrainState, dict]:
    """The whole of the last checkpoint."""
    words = load_run(folder).vocabularies
    model = assembly.build(exp.model, len(words.source), len(words.target))
    update = build(exp.optimizer, EPOCH)
    like = steps.init_state(model.init(jax.random.key(0)), update, exp.training)
    with Checkpoints(folder / "checkpoints", read_only=True) as checkpoints:
        found = checkpoints.find("last")
        state = checkpoints.restore(like, found.step)
    return jax.device_get(state), found.progress


def check_same_run(exp: Experiment, some: Path, other: Path) -> None:
    """Bit for bit: parameters, optimiser, progress, figures."""
    (state, progress), (state2, progress2) = (
        everything(folder, exp) for folder in (some, other)
    )
    jax.tree.map(np.testing.assert_array_equal, state, state2)
    assert timeless(progress) == timeless(progress2)
    assert steps_kept(some) == steps_kept(other)
    assert [*map(timeless, records(some))] == [*map(timeless, records(other))]
    best = (load_run(folder).params for folder in (some, other))
    jax.tree.map(np.testing.assert_array_equal, *map(jax.device_get, best))


def test_copying_is_learnt(base):
    history = records(trained(base))
    for name in ("train_loss", "valid_loss"):
        losses = [record[name] for record in history]
        assert losses == sorted(losses, reverse=True)
        assert losses[-1] < 1.6  # 2.1 is what the frequencies of the words give


def test_a_warm_epoch_compiles_nothing(tmp_path, data):
    """All of it: steps, validation, translation, checkpoint; nor does another seed."""
    counts: list[int] = []
    exp = tiny(data, epochs=3, shapes=2)
    exp = replaced(exp, "model.dropout.output", 0.11)  # of no other test
    with compiling() as names:
        after_validations = watching(lambda: counts.append(len(names)))
        experiment.run(exp, tmp_path / "run", console=after_validations)
    assert len(counts) == 3
    assert names[counts[0] :] == []
    # One program for each of the two shapes, one for validation.
    assert len([name for name in names if "step" in name]) == 3
    with compiling() as names:
        run(replaced(exp, "training.seed", 2), tmp_path / "other")
    assert names == []
    ours, theirs = (records(tmp_path / name)[0] for name in ("run", "other"))
    assert ours["train_loss"] != theirs["train_loss"]


@pytest.fixture(scope="module")
def whole(base, data) -> Path:
    """A run of three epochs that never stopped."""
    run(tiny(data, epochs=3), base / "whole")
    return base / "whole"


@pytest.fixture(scope="module", name="once")
def _once(base, data) -> Path:
    """A run of one epoch; nobody writes in it."""
    run(tiny(data, epochs=1), base / "once")
    return base / "once"


@pytest.fixture(name="one")
def _one(once, tmp_path) -> Path:
    """A copy of it."""
    return shutil.copytree(once, tmp_path / "run")


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


def test_memory_that_runs_out_while_a_step_runs_is_told(tmp_path, data, monkeypatch):
    """An accelerator finds out after the step was sent off, where it is read."""
    exp = tiny(data, epochs=1)
    job, _ = job_of(exp, tmp_path / "run")
    fetch = jax.device_get

    def short(tree: Any) -> Any:
        if isinstance(tree, list) and isinstance(tree[0], steps.Metrics):
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory")
        return fetch(tree)

    monkeypatch.setattr(loop.jax, "device_get", short)
    rows, S, T = device_memory.largest_batches(job.plan)[0]
    told = f"a batch of {rows} pairs of {S} and {T} tokens does not fit"
    with pytest.raises(UserError, match=told):
        run(exp, tmp_path / "run")
    assert told in (tmp_path / "run" / "train.log").read_text().splitlines()[-1]


def test_figures_that_are_read_later_are_not_lost(tmp_path, data, whole, monkeypatch):
    monkeypatch.setattr("kvnmt.training.steps.together", lambda seconds: 3)
    exp = tiny(data, epochs=3)
    run(exp, tmp_path / "run")
    check_same_run(exp, tmp_path / "run", whole)


def test_a_signal_waits_for_about_a_second_of_steps():
    assert together(0.0) == 0 and together(0.002) == FETCH
    assert (together(0.1), together(0.2), together(12.2)) == (10, 5, 2)


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


def test_figures_are_of_real_tokens(tmp_path, data):
    """And the time of before counts."""
    exp = tiny(data, epochs=2)
    run(exp, tmp_path / "run")
    job, _ = job_and_draw(exp, tmp_path / "run")
    batches = BatchAt(job.corpora.train, job.plan, exp.training.seed)
    of_epoch = [batches(step).target for step in range(EPOCH)]
    real = sum(int((target >= 0).sum()) for target in of_epoch)
    padding = 1 - real / sum(target.size for target in of_epoch)
    first, last = records(tmp_path / "run")
    np.testing.assert_allclose(first["padding"], padding, rtol=1e-6)
    progress = manifests.read(tmp_path / "run/checkpoints" / str(2 * EPOCH)).progress
    # Steps whose program is compiled are not timed.
    shapes = {target.shape for target in of_epoch}
    assert len(shapes) == 1
    timed = 2 * real - int((of_epoch[0] >= 0).sum())
    assert progress["tokens"] == timed
    more = run(tiny(data, epochs=3), tmp_path / "run", resume=True)
    assert more.minutes * 60 >= progress["elapsed"] > 0


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
        raise KeyboardInterrupt

    with pytest.raises(StoppedError):
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


def test_steps_between_validations_are_written_down(tmp_path, data):
    """Three together are what one alone says of each, and skipped ones none of them."""
    for every in (1, 3, 0):
        exp = tiny(data, epochs=2, log_every=every)
        fit_with(exp, tmp_path / str(every), step=bad_at(5))
    one, three = (records(tmp_path / name, "steps.jsonl") for name in "13")
    assert [record["step"] for record in one] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [record["step"] for record in three] == [3, 6]
    assert [record["skipped"] for record in one] == [0, 0, 0, 0, 0, 1, 1, 1]
    assert one[5]["train_loss"] is None
    losses = [record["train_loss"] for record in one if record["train_loss"]]
    for record, within in zip(three, (losses[:3], losses[3:5])):
        assert min(within) < record["train_loss"] < max(within)
    assert not (tmp_path / "0" / "steps.jsonl").exists()
    (events,) = (tmp_path / "1" / "events").iterdir()
    assert b"steps/train_loss" in events.read_bytes()


def test_a_line_on_steps_that_cannot_be_written_ends_nothing(
    tmp_path, data, monkeypatch
):
    """Of one that a full disk cuts nothing stays."""
    path = tmp_path / "steps.jsonl"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    log_records._append(path, {"step": 1})
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 3, before[1]))
        with pytest.raises(OSError, match="No space"):
            log_records._append(path, {"step": 2})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert path.read_text() == '{"step": 1}\n'

    monkeypatch.setattr(log_records.Log, "add_steps", full)
    console = quiet()
    exp = tiny(data, epochs=1, log_every=2)
    experiment.run(exp, tmp_path / "run", console=console)
    said = console.file.getvalue()
    assert said.count("No space left on device; training goes on") == 2
    assert len(records(tmp_path / "run")) == 1


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


def test_lost_records_do_not_stop_a_run(one, data):
    (one / "metrics.jsonl").unlink()
    run(tiny(data), one, resume=True)
    assert [record["step"] for record in records(one)] == [8]


def test_losses_are_nats_per_real_token(tmp_path):
    """An epoch that only looks sees what validation sees, and so does a slow sum."""
    data = toy_data(tmp_path / "text", train=21)
    data = dataclasses.replace(data, valid_source=data.source, valid_target=data.target)
    exp = tiny(data, epochs=1)

    def look(_):
        words = load_corpora(data).vocabularies
        model = assembly.build(exp.model, len(words.source), len(words.target))
        evaluate = make_eval_step(model)

        def step(state, source, target):
            sums = evaluate(state.params, source, target)
            made = steps.Metrics(sums, sums.nats, False)
            return state.replace(step=state.step + 1), made

        return jax.jit(step)

    fit_with(exp, tmp_path / "run", step=look)
    (record,) = records(tmp_path / "run")
    np.testing.assert_allclose(record["train_loss"], record["valid_loss"], rtol=1e-5)
    found = load_run(tmp_path / "run")
    lines = data.source.read_text().split("\n")[:-1]
    source = [with_end(found.vocabularies.source.encode(line)) for line in lines]
    target = [with_end(found.vocabularies.target.encode(x.upper())) for x in lines]
    forward = jax.jit(found.model.forward)
    logits = forward(found.params, pad(source, 21, 8), pad(target, 21, 8)).logits
    gains = jax.device_get(jax.nn.log_softmax(logits))
    words = ((i, t, w) for i, ids in enumerate(target) for t, w in enumerate(ids))
    nats = -sum(gains[place] for place in words)
    expected = nats / sum(map(len, target))
    np.testing.assert_allclose(record["valid_loss"], expected, rtol=1e-5)


def test_validation_bleu_is_that_of_greedy_translations(base):
    found = load_run(trained(base))
    data = found.experiment.data
    lines, references = (
        path.read_text().split("\n")[:-1]
        for path in (data.valid_source, data.valid_target)
    )
    ours = translate_lines(found, lines, SearchConfig(beam=1))
    score = corpus_bleu(ours, references, tokenize="none").score
    best = max(records(trained(base)), key=lambda record: record["valid_bleu"])
    np.testing.assert_allclose(score, best["valid_bleu"], rtol=1e-6)
    kept = trained(base) / "validations" / f"{best['step']}.txt"
    assert kept.read_text().split("\n") == [*ours, ""]


def test_records_say_where_and_what(base):
    found = records(trained(base))
    assert [record["step"] for record in found] == [40, 80]
    assert [record["epoch"] for record in found] == [10, 20]
    names = {"train_loss", "valid_loss", "valid_bleu", "tokens_per_second"}
    assert all(names <= record.keys() for record in found)
    assert found[-1]["tokens_per_second"] > 0
    assert 0 < found[-1]["waiting"] < 1  # its batches are made here, in no time


def test_a_file_is_told_how_far_a_training_is(tmp_path, data, monkeypatch):
    """And nothing of it before minutes are over."""

    def lines(name: str) -> list[str]:
        said = io.StringIO()
        exp = tiny(data, epochs=2)
        experiment.run(exp, tmp_path / name, console=Console(file=said))
        return [line for line in said.getvalue().splitlines() if line[:5] == "step "]

    assert not lines("quick")
    monkeypatch.setattr(console, "EVERY", 0)
    first, second, *_, last = lines("slow")
    assert re.fullmatch(r"step 1 of 8  loss \d.*% padding  compiling", first)
    assert re.fullmatch(r"step \d of 8  loss \d.*% padding  .* 0:0\d:\d\d left", second)
    assert last.startswith("step 8 of 8  loss ") and last.endswith("  0:00:00 left")


def standstill(params: Params) -> dict[str, float]:
    """Every validation finds the same."""
    return {"valid_loss": 2.0, "valid_bleu": 1.0}


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


def test_progress_is_that_of_its_checkpoint(tmp_path, data):
    folder = tmp_path / "run"
    fit_with(tiny(data, epochs=4, keep_last=2), folder, validate=standstill)
    for step in (EPOCH, 3 * EPOCH, 4 * EPOCH):
        manifest = manifests.read(folder / "checkpoints" / str(step))
        assert manifest.progress["since_best"] == step // EPOCH - 1
        assert manifest.progress["validated"] == manifest.step == step


def bad_at(*positions: int):
    """Makes a step whose numbers are not finite at these places."""

    @jax.jit
    def skip(state, source, target):
        zero = Loss(*(jax.numpy.zeros(()) for _ in dataclasses.fields(Loss)))
        bad = steps.Metrics(zero, jax.numpy.float32(np.nan), jax.numpy.bool_(True))
        return state.replace(step=state.step + 1), bad

    def make(step):
        numbers = itertools.count()

        def maybe(*inputs):
            return (skip if next(numbers) in positions else step)(*inputs)

        return with_lower(maybe, step)

    return make


def test_the_learning_rate_is_the_one_that_was_used(tmp_path, data):
    """The optimiser counts the updates that it made; a skipped step makes none."""
    rises = OptimizerConfig(learning_rate=0.1, warmup=10)
    exp = dataclasses.replace(tiny(data, epochs=2), optimizer=rises)
    fit_with(exp, tmp_path / "run", step=bad_at(1, 2, 5))
    found = [record["learning_rate"] for record in records(tmp_path / "run")]
    np.testing.assert_allclose(found, [0.1 * 2 / 10, 0.1 * 5 / 10], rtol=1e-6)
    state, _ = everything(tmp_path / "run", exp)
    counts = [
        leaf for leaf in jax.tree.leaves(state.optimizer) if leaf.dtype.kind == "i"
    ]
    assert {int(count) for count in counts} == {5}


def test_a_bad_batch_is_skipped_and_counted(tmp_path, data):
    fit_with(tiny(data, epochs=2), tmp_path / "run", step=bad_at(2))
    assert [record["skipped"] for record in records(tmp_path / "run")] == [1, 1]
    assert all(np.isfinite(r["train_loss"]) for r in records(tmp_path / "run"))


def test_a_validation_waits_for_a_sound_step(tmp_path, data):
    """And so does the save before it."""
    fit_with(tiny(data, epochs=3), tmp_path / "run", step=bad_at(3, 4, 11))
    assert [record["step"] for record in records(tmp_path / "run")] == [6, 8, 12]
    exp = tiny(data, epochs=2, save_every=3)
    fit_with(exp, tmp_path / "saves", step=bad_at(2, 5))
    assert steps_kept(tmp_path / "saves") == {4, 7, 8}
    assert [record["step"] for record in records(tmp_path / "saves")] == [4, 8]


def test_a_bad_batch_is_written_in_any_locale(tmp_path, monkeypatch):
    write = Path.write_text

    def write_text(path: Path, text: str, encoding: str = "ascii") -> int:
        return write(path, text, encoding)

    monkeypatch.setattr(Path, "write_text", write_text)
    words = types.SimpleNamespace(decode=lambda ids: "é")
    side = {3: np.array([2])}
    corpora: Any = types.SimpleNamespace(
        vocabularies=(words, words),
        train=types.SimpleNamespace(source=side, target=side),
    )
    bad_numbers.report(tmp_path, corpora, [3], step=1, seed=1)
    report = json.loads((tmp_path / bad_numbers.NAME).read_text(encoding="utf-8"))
    assert report["pairs"] == [{"source": "é", "target": "é"}]


def test_many_bad_batches_in_a_row_stop_the_run(tmp_path, data):
    exp = tiny(data, epochs=20, skip_at_most=4)
    with pytest.raises(UserError, match="4 steps in a row, the last of them step 9, "):
        fit_with(exp, tmp_path / "run", step=bad_at(*range(5, 99)))
    report = json.loads((tmp_path / "run" / "bad-batch.json").read_text())
    assert (report["step"], report["seed"]) == (9, 1)
    job, _ = job_of(exp, tmp_path / "run")
    batch = BatchAt(job.corpora.train, job.plan, 1)(8)
    sides = zip(job.corpora.vocabularies, (batch.source, batch.target))
    texts = (
        [words.decode(row[row > EOS].tolist()) for row in rows] for words, rows in sides
    )
    pairs = [{"source": source, "target": target} for source, target in zip(*texts)]
    assert report["pairs"] == pairs
    # None of the steps that changed nothing: no step from there may be sound any more.
    assert steps_kept(tmp_path / "run") == {4}
    fewer = replaced(exp, "training.epochs", 3)
    fit_with(fewer, tmp_path / "run", resume=True)
    assert [record["skipped"] for record in records(tmp_path / "run")] == [0, 0, 0]


def test_what_is_frozen_is_what_the_rest_learns_beside(tmp_path):
    """The running mean of it, which translates; and a stop changes nothing of that.

    Nor of an array without entries, which a tied model has: it is in no checkpoint.
    """
    data = toy_data(tmp_path / "text", vocabulary="bpe", subwords=20, joint=True)

    def tied(**training: Any) -> Experiment:
        return replaced(tiny(data, ema=0.9, **training), "model.tie", "all")

    exp = tied(epochs=3, frozen=("encoder",))
    run(tied(epochs=1), tmp_path / "whole")
    assert not load_run(tmp_path / "whole").params.source_embedding.size
    before = load_run(tmp_path / "whole").params.encoder
    shutil.copytree(tmp_path / "whole", tmp_path / "parts")
    run(exp, tmp_path / "whole", resume=True)
    for epochs in (2, 3):
        run(replaced(exp, "training.epochs", epochs), tmp_path / "parts", resume=True)
    state, _ = everything(tmp_path / "whole", exp)
    other, _ = everything(tmp_path / "parts", exp)
    jax.tree.map(np.testing.assert_array_equal, state, other)
    for params in (state.params, state.mean):
        jax.tree.map(np.testing.assert_array_equal, params.encoder, before)
