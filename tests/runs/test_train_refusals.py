# SPDX-License-Identifier: Apache-2.0
"""What cannot be trained, or gone on with, is refused before any text is read."""

import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kvnmt import attention
from kvnmt.data.config import DataConfig
from kvnmt.data.vocabularies import digest, load_vocabularies
from kvnmt.decoder import past_future
from kvnmt.errors import OptionError, UserError
from kvnmt.runs import train as experiment
from kvnmt.runs.checks import check_step
from kvnmt.runs.config import Experiment
from kvnmt.runs.directory import load_experiment, load_run
from tests.helpers import DEVICES, contents, quiet, replaced, tiny, toy_data


@pytest.mark.parametrize(("name", "nearest"), [("runs/new", "."), ("empty", "empty")])
def test_a_place_that_may_not_be_written_to_is_told_before_text_is_read(
    tmp_path, monkeypatch, name, nearest
):
    place = tmp_path / nearest
    place.mkdir(exist_ok=True)
    exp = tiny(DataConfig(source=Path("never read")))
    monkeypatch.setattr(os, "access", lambda path, mode: path != place)
    with pytest.raises(UserError, match=f"'{place}' may not be written to; name"):
        experiment.run(exp, tmp_path / name, console=quiet())


TIED_ALONE = replace(tiny(DataConfig(), "lm-lstm").model, tie="all")
RATE = "optimizer.learning_rate"
BAD = [
    ("data.source", Path("nowhere"), "nowhere"),
    ("data.valid_target", Path("nowhere"), "nowhere"),
    ("data.min_count", 1000, "no word is kept"),
    ("training.epochs", 0, "training.epochs is"),
    ("training.bleu_tokenize", "13b", "13a"),
    ("model.embedding", 0, "model.embedding is"),
    ("search.nbest", 11, "nbest is 11 but a beam of 10"),
]


@pytest.mark.parametrize(
    ("path", "value", "part"),
    [
        ("model.average_auxiliary", True, "auxiliary predictors"),
        ("model.decoder", past_future.Options(), "objective.subtractive is 0: they"),
        (
            "model",
            TIED_ALONE,
            "tie all .* a language model reads none; give tie output",
        ),
        ("training.warm_start", Path("nowhere"), "'nowhere' is no run directory"),
        ("training.bleu_tokenize", "ja-mecab", "'ja-mecab' cannot be used here"),
        ("training.frozen", ("encodr",), "did you mean 'encoder'"),
        ("training.batch_size", 10, f"{DEVICES} devices"),
        ("training.model_axis", 3, "3"),
        ("optimizer.momentum", 0.9, "optimizer.momentum goes with sgd"),
    ],
)
def test_choices_are_checked_before_text_is_read(
    tmp_path, path, value, part, monkeypatch
):
    monkeypatch.setitem(sys.modules, "MeCab", None)  # as where it is not installed
    exp = replaced(tiny(DataConfig(source=Path("no.text"))), path, value)
    with pytest.raises(UserError, match=part):
        experiment.run(exp, tmp_path / "run", console=quiet())
    assert not (tmp_path / "run").exists()


def test_a_run_goes_on_with_what_nobody_begins_with():
    exp = replaced(tiny(DataConfig()), "model.decoder", past_future.Options())
    check_step(exp, begins=False)
    with pytest.raises(
        UserError, match="they would learn nothing.* choose one without"
    ):
        check_step(exp, begins=True)


def test_a_language_model_that_looks_is_told_that_there_is_no_source():
    """Whatever its attention makes of one."""
    exp = tiny(DataConfig(), "lm-lstm")
    exp = replaced(exp, "model.attention", attention.multi_head.Options())
    with pytest.raises(UserError, match="^attention is of a source"):
        check_step(exp, begins=True)


def test_a_number_of_numpy_is_kept_as_what_it_is():
    kept = experiment.as_kept(replaced(Experiment(), RATE, np.float64(1e-3)))
    assert type(kept.optimizer.learning_rate) is float


@pytest.mark.parametrize(("path", "value", "part"), BAD)
def test_what_cannot_be_trained_leaves_no_folder(tmp_path, path, value, part):
    exp = replaced(tiny(toy_data(tmp_path / "text")), path, value)
    with pytest.raises(UserError) as error:
        experiment.run(exp, tmp_path / "deep" / "run", console=quiet())
    assert part in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "deep").exists()


KEPT = [
    ("model.attention", attention.CATALOGUE["kv_memory"].Options(), "--attention", ""),
    ("data.max_ratio", 3, "--data.max-ratio None", "--data.max-ratio 3"),
    ("training.seed", 2, "--training.seed 1", "--training.seed 2"),
]


@pytest.mark.parametrize(("path", "value", "before", "now"), KEPT)
def test_a_run_cannot_go_on_as_another(tmp_path, shared, path, value, before, now):
    """And is unharmed by the attempt."""
    folder = shutil.copytree(shared, tmp_path / "run")
    files = contents(folder)
    exp = replaced(load_experiment(folder), "training.epochs", 9)
    with pytest.raises(OptionError) as error:
        experiment.run(replaced(exp, path, value), folder, resume=True, console=quiet())
    was, cannot = error.value.by_flag.split(" and cannot go on with ")
    assert str(folder) in was and before in was and now in cannot
    assert contents(folder) == files


def test_another_limit_may_leave_out_no_other_pair(tmp_path, shared):
    """The number itself may change: a former version took it of another kind."""
    folder = shutil.copytree(shared, tmp_path / "run")
    files = contents(folder)
    exp = replaced(load_experiment(folder), "data.max_length", 3)
    with pytest.raises(UserError, match="other pairs"):
        experiment.run(exp, folder, resume=True, console=quiet())
    assert contents(folder) == files
    exp = replaced(load_experiment(folder), "data.max_length", 100)
    exp = replaced(exp, "training.epochs", exp.training.epochs + 1)
    experiment.run(exp, folder, resume=True, console=quiet())
    assert load_experiment(folder).data.max_length == 100


def test_risk_is_refused_where_references_are_cut_by_chance(tmp_path):
    cut = {"vocabulary": "bpe", "subwords": 40, "subword_dropout": 0.1}
    exp = tiny(replace(toy_data(tmp_path / "text"), **cut))
    with pytest.raises(UserError, match="give data.subword_dropout 0 and data.segm"):
        experiment.run(replaced(exp, "objective.risk", 1.0), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("side", ["source", "target"])
def test_another_vocabulary_is_refused_by_its_digest(tmp_path, side):
    data = toy_data(tmp_path / "text")
    exp = tiny(data, epochs=1)
    experiment.run(exp, tmp_path / "run", console=quiet())
    words = load_run(tmp_path / "run").vocabularies._asdict()[side]
    path = tmp_path / "run" / "vocabulary" / f"{side}.words"
    path.write_text("".join(f"{word}\n" for word in words.words[::-1]))
    other = digest(load_vocabularies(tmp_path / "run")._asdict()[side])
    for use in (
        lambda: load_run(tmp_path / "run"),
        lambda: experiment.run(exp, tmp_path / "run", resume=True, console=quiet()),
    ):
        with pytest.raises(UserError, match=f"{other}.*{digest(words)}.*put that back"):
            use()
