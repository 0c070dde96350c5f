# SPDX-License-Identifier: Apache-2.0
"""An average is the mean of its checkpoints, and a run directory like any other."""

import dataclasses
import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

from kvnmt.errors import UserError
from kvnmt.files import locked
from kvnmt.runs import directory
from kvnmt.runs import train as experiment
from kvnmt.runs.average import average
from kvnmt.runs.directory import load_experiment, load_run
from kvnmt.training.checkpoints import manifest as manifests
from kvnmt.training.checkpoints.writer import Checkpoints
from tests.helpers import full, quiet, steps_kept, tiny, toy_data, untrained


@pytest.fixture(scope="module", name="several")
def _several(tmp_path_factory):
    """A run that keeps its last three checkpoints."""
    base = tmp_path_factory.mktemp("several")
    config = tiny(toy_data(base / "text"), validate_every=2, keep_last=3)
    experiment.run(config, base / "run", console=quiet())
    return base / "run"


def leaves(params) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(params)]


def test_the_last_checkpoints_are_averaged(several, tmp_path):
    steps = sorted(steps_kept(several))[-3:]
    names = average([several], tmp_path / "mean", last=3)
    assert (
        names == [f"{several}/checkpoints/{step}" for step in steps] and len(steps) == 3
    )
    run = load_run(several)
    with Checkpoints(several / "checkpoints", read_only=True) as checkpoints:
        kept = [leaves(checkpoints.restore_params(run.params, n)) for n in steps]
    found = leaves(load_run(tmp_path / "mean").params)
    for mean, *each in zip(found, *kept):
        np.testing.assert_allclose(mean, np.mean(each, axis=0), rtol=1e-6, atol=1e-7)
    assert any(np.any(a != b) for a, b in zip(found, kept[0]))


def test_the_last_are_those_that_were_validated(several, tmp_path):
    """As long as there are any; a save between validations is none of them."""
    run = Path(shutil.copytree(several, tmp_path / "run"))
    steps = sorted(steps_kept(run))
    for left in (steps[:-1], steps[:-2], []):
        for step in {*steps} - {*left}:
            folder = run / "checkpoints" / str(step)
            unrated = dataclasses.replace(manifests.read(folder), score=None)
            manifests.write(folder, unrated)
        names = average([run], tmp_path / f"mean-{len(left)}", last=1)
        assert names == [f"{run}/checkpoints/{(left or steps)[-1]}"]


def test_the_best_checkpoints_are_averaged(kvnmt, several, tmp_path):
    with Checkpoints(several / "checkpoints", read_only=True) as checkpoints:
        scores = {n: checkpoints.manifest(n).score or 0 for n in steps_kept(several)}
    best = sorted(scores, key=lambda n: (-scores[n], n))[:2]
    names = average([several], tmp_path / "mean", best=2)
    assert names == [f"{several}/checkpoints/{step}" for step in best]
    said = kvnmt("average", several, "--best", 2, "--output", tmp_path / "again")
    assert said.status == 0 and "the mean of 2 checkpoints" in said.err
    with pytest.raises(UserError, match="for their scores, not 9; train with tra"):
        average([several], tmp_path / "new", best=9)
    said = kvnmt(
        "average", several, "--best", 2, "--last", 2, "--output", tmp_path / "n"
    )
    assert "--last and --best are two choices" in said.err


def test_the_command_takes_the_last(kvnmt, several, tmp_path):
    said = kvnmt("average", several, "--last", 3, "--output", tmp_path / "mean")
    assert said.status == 0 and "the mean of 3 checkpoints" in said.err


def test_a_checkpoint_is_a_run_by_itself(kvnmt, several, tmp_path):
    """To read, to translate with, and to average; the run's best one is another."""
    first, *_, last = (
        several / f"checkpoints/{n}" for n in sorted(steps_kept(several))
    )
    run = load_run(several)
    with Checkpoints(several / "checkpoints", read_only=True) as checkpoints:
        kept = checkpoints.restore_params(run.params, int(first.name))
    for ours, theirs in zip(leaves(load_run(first).params), leaves(kept), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    said = kvnmt("translate", first, given=b"a b c\n")
    assert said.status == 0 and said.out
    average([first, last], tmp_path / "mean")
    both = [leaves(load_run(path).params) for path in (first, last)]
    for mean, *each in zip(leaves(load_run(tmp_path / "mean").params), *both):
        np.testing.assert_allclose(mean, np.mean(each, axis=0), rtol=1e-6, atol=1e-7)
    with pytest.raises(UserError, match="last is of whole runs"):
        average([first], tmp_path / "new", last=1)
    with pytest.raises(UserError, match="there is no checkpoint '.*/checkpoints/99'"):
        load_run(several / "checkpoints/99")
    before = {path.name for path in first.iterdir()}
    said = kvnmt("train", first, "--resume")  # which would write into what is sealed
    assert said.status == 2 and "is a checkpoint" in said.err
    assert {path.name for path in first.iterdir()} == before
    moved = Path(shutil.copytree(several, tmp_path / "checkpoints" / "7"))
    assert load_run(moved).experiment == run.experiment  # a run that is called so


def test_one_alone_is_itself(kvnmt, several, tmp_path):
    said = kvnmt("average", several, "--output", tmp_path / "mean")
    assert said.status == 0 and "mean of 1 checkpoint is" in said.err
    found = kvnmt("translate", tmp_path / "mean", given=b"a b c\n")
    assert found.out == kvnmt("translate", several, given=b"a b c\n").out


def test_runs_are_averaged(several, tmp_path, capsys):
    """Of other seeds, which is told of."""
    config = directory.load_experiment(several)
    other = dataclasses.replace(config.training, seed=2)
    config = dataclasses.replace(config, training=other)
    experiment.run(config, tmp_path / "other", console=quiet())
    shutil.copytree(several, tmp_path / "copy")
    average([several, tmp_path / "copy"], tmp_path / "alike")
    assert not capsys.readouterr().err
    average([several, tmp_path / "other"], tmp_path / "mean")
    assert "do not seem to be trained from one start" in capsys.readouterr().err
    both = [leaves(load_run(path).params) for path in (several, tmp_path / "other")]
    for mean, *each in zip(leaves(load_run(tmp_path / "mean").params), *both):
        np.testing.assert_allclose(mean, np.mean(each, axis=0), rtol=1e-6, atol=1e-7)


def test_mistakes_are_told(kvnmt, several, tmp_path, tmp_path_factory):
    with pytest.raises(UserError, match="keeps [34] checkpoints to average, not 9"):
        average([several], tmp_path / "mean", last=9)
    other = untrained(tmp_path_factory.getbasetemp(), "rnnencdec")
    with pytest.raises(UserError, match="differ in .*; only"):
        average([several, other], tmp_path / "mean")
    assert not (tmp_path / "mean").exists()
    with pytest.raises(UserError, match="exists already"):
        average([several], several)
    with Checkpoints(several / "checkpoints", read_only=True) as checkpoints:
        best = several / "checkpoints" / str(checkpoints.folder.best_steps(1)[0])
    with pytest.raises(UserError, match=f"'{best}' is named twice"):
        average([several, best], tmp_path / "mean")
    assert not (tmp_path / "mean").exists()
    average([several], tmp_path / "mean")
    said = kvnmt("train", tmp_path / "mean", "--resume")
    assert said.status == 2 and "--training.warm-start" in said.err


def test_a_mean_without_room_leaves_nothing(several, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copy", full)
        with pytest.raises(UserError, match="mean' cannot be written: No space left"):
            average([several], tmp_path / "mean")
        assert not (tmp_path / "mean").exists()
        patch.undo()
        patch.setattr("kvnmt.training.checkpoints.manifest.write", full)
        with pytest.raises(UserError, match="mean' cannot be written: No space left"):
            average([several], tmp_path / "mean")
    assert not (tmp_path / "mean").exists()
    average([several], tmp_path / "mean")


def test_words_that_a_model_was_not_trained_with_are_refused(several, tmp_path):
    spoilt = Path(shutil.copytree(several, tmp_path / "spoilt"))
    path = spoilt / "vocabulary" / "target.words"
    first, second, *rest = path.read_text().splitlines()
    path.write_text("".join(f"{word}\n" for word in (second, first, *rest)))
    with pytest.raises(UserError, match="is not the one that its checkpoint"):
        average([spoilt], tmp_path / "mean")
    assert not (tmp_path / "mean").exists()


def test_how_a_model_began_and_its_dropout_make_no_difference(several, tmp_path):
    other = Path(shutil.copytree(several, tmp_path / "other"))
    config = json.loads((other / "config.json").read_text())
    config["model"]["dropout"]["output"] = 0.7
    config["model"]["initializer"] = "glorot"
    config["model"]["blocks"]["dropout"] = 0.2
    (other / "config.json").write_text(json.dumps(config))
    assert len(average([several, other], tmp_path / "mean")) == 2
    plain = untrained(tmp_path, "transformer-kvmematt-r1")
    same = Path(shutil.copytree(plain, tmp_path / "same"))
    config = json.loads((same / "config.json").read_text())
    config["model"]["decoder"]["dropout"] = 0.3
    config["model"]["attention"]["write_bias"] = -1.0
    (same / "config.json").write_text(json.dumps(config))
    assert len(average([plain, same], tmp_path / "mean of Transformers")) == 2


def test_an_average_that_is_interrupted_leaves_nothing(several, tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "save_params", interrupted)
        with pytest.raises(KeyboardInterrupt):
            average([several], tmp_path / "mean")
        assert not list(tmp_path.iterdir())


def test_an_average_that_was_killed_is_made_again(several, tmp_path, monkeypatch):
    """But nothing else that has the name of its half is removed."""
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)  # a kill clears nothing
        patch.setattr(shutil, "copy", full)
        with pytest.raises(UserError):
            average([several], tmp_path / "mean")
    assert [path.name for path in tmp_path.iterdir()] == ["mean.part"]
    (tmp_path / "mean.part" / "notes").touch()
    with pytest.raises(UserError, match="mean.part' is in the way; move it"):
        average([several], tmp_path / "mean")
    (tmp_path / "mean.part" / "notes").unlink()
    with locked(tmp_path / "mean.part" / "lock"):
        with pytest.raises(UserError, match="another process fills .*mean.part'"):
            average([several], tmp_path / "mean")
    average([several], tmp_path / "mean")
    assert [path.name for path in tmp_path.iterdir()] == ["mean"]
    assert not (tmp_path / "mean" / "lock").exists()
    assert load_run(tmp_path / "mean")


def test_an_average_is_refused_before_text_is_read(several, tmp_path):
    average([several], tmp_path / "mean")
    exp = load_experiment(tmp_path / "mean")
    gone = dataclasses.replace(exp.data, source=tmp_path / "gone")
    exp = dataclasses.replace(exp, data=gone)
    with pytest.raises(UserError, match="holds parameters alone"):
        experiment.run(exp, tmp_path / "mean", resume=True, console=quiet())


def test_a_checkpoint_that_lost_what_a_training_needs_is_damaged(several, tmp_path):
    spoilt = Path(shutil.copytree(several, tmp_path / "spoilt"))
    last = max(steps_kept(spoilt))
    shutil.rmtree(spoilt / "checkpoints" / str(last) / "rest")
    exp, console = load_experiment(spoilt), quiet()
    experiment.run(exp, spoilt, resume=True, console=console)
    assert f"damaged/{last}" in console.file.getvalue()
