# SPDX-License-Identifier: Apache-2.0
"""What former code wrote is read: runs and configs."""

import dataclasses
import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from kvnmt.errors import UserError
from kvnmt.inference.program import SearchConfig
from kvnmt.inference.score import score_lines
from kvnmt.inference.translate import translate_lines
from kvnmt.model.assembly import build
from kvnmt.runs import train
from kvnmt.runs.config import Experiment, to_plain
from kvnmt.runs.directory import load_experiment, load_run
from kvnmt.runs.former import count_steps_of_remat, upgraded
from kvnmt.trees import by_name
from tests.helpers import quiet, records

ARCHIVE = Path(__file__).parents[1] / "fixtures" / "former-runs.tar.xz"
RUNS = (
    "kvmematt-r2-atteos",
    "coverage-fertility",
    "coverage-neural-10",
    "lm-self-attentive-residual",
)


@pytest.fixture(scope="module", name="archive")
def _archive(tmp_path_factory) -> Path:
    """The former folder; nobody writes in it."""
    folder = tmp_path_factory.mktemp("former")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture(name="former")
def _former(archive, tmp_path, monkeypatch) -> Path:
    """A copy of it, in which the paths of the configs hold."""
    folder = shutil.copytree(archive, tmp_path / "former")
    monkeypatch.chdir(folder)
    return folder


def expected(folder: Path, name: str) -> dict[str, Any]:
    plain = json.loads((folder / "expected.json").read_text())
    return {"source": plain["source"], "target": plain["target"], **plain[name]}


@pytest.mark.parametrize("name", RUNS)
def test_a_former_run_translates_and_scores_the_same(archive, name):
    run, lines = load_run(archive / name), expected(archive, name)
    pairs = score_lines(run, lines["source"], lines["target"])
    for pair, log_probs in zip(pairs, lines["token_log_probs"], strict=True):
        np.testing.assert_allclose(pair.token_log_probs, log_probs, atol=1e-5)
    if run.experiment.model.reads_source:
        found = translate_lines(run, lines["source"], SearchConfig(beam=3))
        assert found == lines["translations"]


def test_a_former_run_goes_on(former):
    """With its place, its optimiser and its mean; its corpus is prepared anew."""
    name = "kvmematt-r2-atteos"
    exp = load_experiment(former / name)
    more = dataclasses.replace(exp.training, epochs=9)
    exp = dataclasses.replace(exp, training=more)
    result = train.run(exp, former / name, resume=True, console=quiet())
    assert result.steps == 36
    before, after = records(former / name)
    assert (before["step"], after["step"]) == (32, 36)
    assert abs(after["train_loss"] - before["train_loss"]) < 0.3


def test_a_former_run_starts_another(former, monkeypatch):
    monkeypatch.setattr(train, "fit", lambda job, draw, **how: draw())
    name = "coverage-neural-10"
    exp, console = load_experiment(former / name), quiet()
    settings = dataclasses.replace(exp.training, epochs=1, warm_start=Path(name))
    exp = dataclasses.replace(exp, training=settings)
    train.run(exp, former / "new", console=console)
    assert f"arrays copied from '{name}', 0 fresh" in console.file.getvalue()


def systems(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "systems.json").read_text())


def test_every_former_system_has_the_same_parameters(archive, tmp_path):
    former = systems(archive)
    assert len(former) > 30
    for name, plain in former.items():
        (tmp_path / "config.json").write_text(json.dumps(plain["config"]))
        init = build(load_experiment(tmp_path).model, 10, 11).init
        leaves = by_name(jax.eval_shape(init, jax.random.key(0)))
        shapes = {name: list(leaf.shape) for name, leaf in leaves.items()}
        assert shapes == plain["parameters"], name


COVERAGE = {  # as former code wrote it
    "name": "coverage",
    "kind": "neural",
    "size": 10,
    "fertility": False,
    "max_fertility": 2.0,
    "subtractive": False,
    "gated": True,
    "reset": "after",
}


@pytest.mark.parametrize(
    ("changes", "attention"),
    [
        ({}, {"name": "neural_coverage", "cell": "gru", "size": 10}),
        (
            {"reset": "before"},
            {"name": "neural_coverage", "cell": "gru_before", "size": 10},
        ),
        ({"gated": False}, {"name": "neural_coverage", "cell": "tanh", "size": 10}),
        (
            {"kind": "linguistic"},
            {
                "name": "linguistic_coverage",
                "max_fertility": None,
                "subtractive": False,
            },
        ),
        (
            {"kind": "linguistic", "fertility": True, "subtractive": True},
            {"name": "linguistic_coverage", "max_fertility": 2.0, "subtractive": True},
        ),
    ],
)
def test_coverage_is_named_by_its_kind(changes, attention):
    plain = to_plain(Experiment())
    plain["model"]["attention"] = COVERAGE | changes
    plain["training"]["remat"] = "none"
    assert upgraded(plain)["model"]["attention"] == attention
    assert plain["model"]["attention"] == COVERAGE | changes


def test_an_attention_of_somebodys_own_may_be_called_coverage():
    plain = to_plain(Experiment())
    plain["model"]["attention"] = {"name": "coverage", "size": 3}
    assert upgraded(plain) == plain


@pytest.mark.parametrize(
    ("remat", "steps"), [("none", 0), ("step", 1), ("chunk:8", 8), (3, 3)]
)
def test_remat_is_a_number_of_steps(remat, steps):
    plain = {"training": {"remat": remat}}
    count_steps_of_remat(plain)
    assert plain == {"training": {"remat": steps}}


@pytest.mark.parametrize(
    ("changes", "goes"),
    [
        ({}, True),
        ({"tie": "output"}, False),
        ({"tie": "output", "scale_tied": False}, True),
        ({"tie": "all", "decoder": {"name": "transformer"}}, True),
        ({"tie": "all", "decoder": {"name": "transformer"}, "state": 9}, False),
    ],
)
def test_a_tied_layer_that_was_not_scaled_goes_on(tmp_path, changes, goes):
    plain = to_plain(Experiment())
    plain["model"] |= {"scale_tied": True, **changes}
    if goes:
        assert "scale_tied" not in upgraded(plain)["model"]
        return
    (tmp_path / "config.json").write_text(json.dumps(plain))
    with pytest.raises(UserError, match="is no config of this version: its tied out"):
        load_experiment(tmp_path)


def test_a_config_of_now_is_left_as_it_is():
    plain = to_plain(Experiment())
    assert upgraded(plain) == plain
