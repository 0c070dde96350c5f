# SPDX-License-Identifier: Apache-2.0
"""Run directories are whole, movable, and never clobbered."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from kvnmt.data.config import DataConfig
from kvnmt.data.vocabularies import digest, load_vocabularies
from kvnmt.errors import UserError
from kvnmt.inference.program import SearchConfig
from kvnmt.inference.translate import translate_lines
from kvnmt.runs import train as experiment
from kvnmt.runs.directory import load_experiment, load_run
from kvnmt.training.checkpoints.folder import UNFINISHED
from kvnmt.training.checkpoints.orbax_arrays import ArrayFiles
from kvnmt.training.checkpoints.writer import Checkpoints
from tests.helpers import (
    DEVICES,
    contents,
    quiet,
    records,
    replaced,
    steps_kept,
    tiny,
    toy_data,
)


def test_a_folder_without_config_is_told(tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UserError, match=f"'{folder}' is no run directory"):
            load_run(folder)


@pytest.mark.parametrize("tie", ["none", "all"])
def test_a_table_of_both_sides_has_the_pieces_of_both(tmp_path, monkeypatch, tie):
    choices = {"vocabulary": "bpe", "joint": True, "subwords": 40, "trimmed": True}
    exp = tiny(replace(toy_data(tmp_path / "text"), **choices))
    exp = replaced(exp, "model.tie", tie)
    jobs = []

    def fit(job, draw, *, resume, begin):
        jobs.append(job)
        begin(True)

    monkeypatch.setattr(experiment, "fit", fit)
    experiment.run(exp, tmp_path / "run", console=quiet())
    words = jobs[0].corpora.vocabularies
    assert (digest(words.source) == digest(words.target)) == (tie == "all")
    assert load_experiment(tmp_path / "run").data.trimmed == (tie != "all")


def test_a_run_that_has_learnt_nothing_takes_other_pieces(tmp_path, monkeypatch):
    """It was ended before its first checkpoint, and goes on with other choices."""
    exp = tiny(toy_data(tmp_path / "text"))
    monkeypatch.setattr(
        experiment, "fit", lambda job, draw, *, resume, begin: begin(True)
    )
    experiment.run(exp, tmp_path / "run", console=quiet())
    fewer = replaced(exp, "data.vocabulary_size", 5)
    experiment.run(fewer, tmp_path / "run", resume=True, console=quiet())
    assert load_experiment(tmp_path / "run").data.vocabulary_size == 5
    words = load_vocabularies(tmp_path / "run")
    assert [len(side) for side in words] == [5, 5]


@pytest.mark.parametrize(
    ("inside", "said"),
    [("notes.txt", "and is no run; choose"), ("config.json", ".* pass resume")],
)
def test_a_folder_with_something_in_it_is_left_alone(tmp_path, inside, said):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / inside).write_text("{}")
    (folder / "train.log").touch()
    before = contents(tmp_path)
    exp = tiny(DataConfig(source=Path("never read")))
    with pytest.raises(UserError, match=f"'{folder}' exists already {said}"):
        experiment.run(exp, folder, console=quiet())
    assert contents(tmp_path) == before


def test_a_file_in_the_place_of_the_folder_is_left_alone(tmp_path):
    exp = tiny(toy_data(tmp_path / "text"))
    before = contents(tmp_path)
    source = exp.data.source
    for folder in (source, source / "below"):
        with pytest.raises(UserError, match=str(source)):
            experiment.run(exp, folder, console=quiet())
    assert contents(tmp_path) == before


def test_a_run_is_read_while_its_training_removes_checkpoints(
    tmp_path, shared, monkeypatch
):
    """The best is gone when its arrays are to be read: the next is taken."""
    shutil.copytree(shared, tmp_path / "run")
    kept = tmp_path / "run" / "checkpoints"
    with Checkpoints(kept, read_only=True) as checkpoints:
        best = checkpoints.find("best").step
    shutil.copytree(tmp_path / "run", tmp_path / "other")
    shutil.rmtree(tmp_path / "other" / "checkpoints" / str(best))
    other = load_run(tmp_path / "other")
    read = ArrayFiles.read

    def removed_before(files, folder, like):
        shutil.rmtree(kept / str(best), ignore_errors=True)
        return read(files, folder, like)

    monkeypatch.setattr(ArrayFiles, "read", removed_before)
    found = load_run(tmp_path / "run")
    jax.tree.map(np.testing.assert_array_equal, found.params, other.params)


def test_a_folder_that_holds_a_log_may_be_used(tmp_path, shared):
    """And what is in a run directory is all there."""
    names = {path.name for path in shared.iterdir()}
    assert names == {
        *("config.json", "versions.json", "metrics.jsonl", "starts.jsonl"),
        *("vocabulary", "checkpoints", "events", "learning-curve.png", "lock"),
        *("validations", "train.log"),
    }
    log = (shared / "train.log").read_text().splitlines()
    assert all(re.match(r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d  \S", line) for line in log)
    for line, part in zip(log, (" training pairs", "trains on ", "compiling ")):
        assert part in line
    assert sum("valid loss" in line for line in log) == len(records(shared))
    steps = {str(record["step"]) for record in records(shared)}
    assert {path.stem for path in (shared / "validations").iterdir()} == steps
    versions = json.loads((shared / "versions.json").read_text())
    assert versions["jax"] == jax.__version__
    assert versions["device"].startswith(f"{DEVICES} x ")
    folder = tmp_path / "run"
    folder.mkdir()
    logs = {"slurm-7.out", "7.err"}
    for log in logs:
        (folder / log).touch()
    exp = load_experiment(shared)
    experiment.run(replaced(exp, "training.epochs", 1), folder, console=quiet())
    assert names | logs == {path.name for path in folder.iterdir()}


def test_what_is_told_before_there_is_a_folder_is_logged(tmp_path, monkeypatch):
    data = toy_data(tmp_path / "text")
    cut = data.valid_source.read_text().replace(" ", "@@ ")
    data.valid_source.write_text(cut)
    vectors = tmp_path / "vectors"
    exp = tiny(data, target_vectors=vectors)
    vectors.write_text(f"A{' 1' * exp.model.embedding}\n")

    def fit(job, draw, *, resume, begin):
        draw()
        begin(True)

    monkeypatch.setattr(experiment, "fit", fit)
    console = quiet()
    experiment.run(exp, tmp_path / "run", console=console)
    said = console.file.getvalue().splitlines()
    log = (tmp_path / "run" / "train.log").read_text().splitlines()
    assert [line.split("  ", 1)[1] for line in log] == said
    parts = "training pairs", "are pieces of words", "unknown; --data.vocabulary bpe"
    parts += "trains on", "start as vectors"
    assert all(part in line for part, line in zip(parts, said, strict=True))


def test_a_run_directory_needs_nothing_else(tmp_path):
    """Its text is deleted, it is moved, and it still translates the same."""
    data = toy_data(tmp_path / "text")
    experiment.run(tiny(data), tmp_path / "run", console=quiet())
    same = load_run(tmp_path / "run")
    shutil.rmtree(tmp_path / "text")
    (tmp_path / "else where").mkdir()
    moved = (tmp_path / "run").rename(tmp_path / "else where" / "moved")
    found = load_run(moved)
    jax.tree.map(np.testing.assert_array_equal, found.params, same.params)
    assert found.vocabularies == same.vocabularies
    lines = ["a b c", "h", "", "zebra a"]
    search = SearchConfig(beam=3)
    ours, theirs = (translate_lines(one, lines, search) for one in (found, same))
    assert ours == theirs
    assert len(ours) == 4 and ours[2] == ""


def test_a_run_without_a_finished_checkpoint_is_told(tmp_path, shared):
    folder = shutil.copytree(shared, tmp_path / "run")
    shutil.rmtree(folder / "checkpoints")
    with pytest.raises(UserError, match="no finished checkpoint"):
        load_run(folder)
    (folder / "checkpoints").mkdir()
    with pytest.raises(UserError, match="no finished checkpoint"):
        load_run(folder)


def test_an_unfinished_checkpoint_is_not_seen(tmp_path, shared):
    """However much of it was written before a kill."""
    folder = shutil.copytree(shared, tmp_path / "run")
    for step in steps_kept(folder):
        path = folder / "checkpoints" / str(step)
        path.rename(path.with_name(f"{step}{UNFINISHED}"))
    with pytest.raises(UserError, match="no finished checkpoint"):
        load_run(folder)


def test_given_links_guide_the_attention(tmp_path):
    """Links that turn the order around are followed; a run goes on without them."""
    data = toy_data(tmp_path / "text", train=120)
    lines = data.source.read_text().splitlines()
    turned = [
        " ".join(f"{i}-{size - 1 - i}" for i in range(size))
        for size in (len(line.split()) for line in lines)
    ]
    (tmp_path / "links").write_text("".join(f"{line}\n" for line in turned))
    exp = tiny(replace(data, links=tmp_path / "links"), epochs=8)
    exp = replaced(exp, "objective.guided", 3.0)
    experiment.run(exp, tmp_path / "run", console=quiet())
    told = records(tmp_path / "run")
    assert told[-1]["train_guided"] < 0.7 * told[0]["train_guided"]
    ((alignment, *_),) = load_run(tmp_path / "run").align(["a b c d"], ["A B C D"])
    assert alignment[:4, :4].argmax(axis=1).tolist() == [3, 2, 1, 0]
    on = replaced(replaced(exp, "objective.guided", 0.0), "training.epochs", 9)
    (tmp_path / "links").unlink()
    console = quiet()
    experiment.run(on, tmp_path / "run", resume=True, console=console)
    assert "train_guided" not in records(tmp_path / "run")[-1]
    said = "given anew: --objective.guided 3.0 -> 0.0, --training.epochs 8 -> 9\n"
    assert said in console.file.getvalue()
    first, second = records(tmp_path / "run", "starts.jsonl")
    assert (first["step"], first["changes"]) == (0, {})
    assert second["step"] == told[-1]["step"]
    changes = {"objective.guided": [3.0, 0.0], "training.epochs": [8, 9]}
    assert second["changes"] == changes
    assert first["versions"]["jax"] == jax.__version__


def test_a_run_whose_checkpoints_are_gone_does_not_begin_anew(tmp_path, shared):
    """Its records would be emptied; one that ended before its first has none."""
    folder = shutil.copytree(shared, tmp_path / "run")
    (folder / "checkpoints").rename(tmp_path / "away")
    before, exp = contents(folder), load_experiment(folder)
    with pytest.raises(UserError, match="was trained for [0-9]+ steps.*has no checkp"):
        experiment.run(exp, folder, resume=True, console=quiet())
    assert contents(folder) == before


def test_going_on_without_the_text_harms_nothing(tmp_path, shared):
    folder = shutil.copytree(shared, tmp_path / "run")
    before = contents(folder)
    exp = replaced(load_experiment(folder), "data.source", tmp_path / "nowhere")
    with pytest.raises(UserError, match="no file .*nowhere"):
        experiment.run(exp, folder, resume=True, console=quiet())
    assert contents(folder) == before


def test_another_start_of_a_run_that_goes_on_is_told(tmp_path, capsys):
    exp = tiny(toy_data(tmp_path / "text"), epochs=1)
    base, run = tmp_path / "base", tmp_path / "run"
    experiment.run(exp, base, console=quiet())
    began = replaced(exp, "training.warm_start", base)
    experiment.run(began, run, console=quiet())
    moved = Path(shutil.copytree(base, tmp_path / "moved"))
    other = replaced(began, "training.warm_start", moved)
    other = replaced(other, "training.epochs", 2)
    experiment.run(other, run, console=quiet(), resume=True)
    told = f"--training.warm-start {moved}: the run has begun already, from {base}."
    assert told in capsys.readouterr().err.replace("\n", " ")
    assert load_experiment(run).training.warm_start == base
