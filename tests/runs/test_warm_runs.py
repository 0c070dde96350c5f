# SPDX-License-Identifier: Apache-2.0
"""A run that starts from another: what is taken, told and refused."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

from kvnmt.data.vocabularies import digest
from kvnmt.decoder import conditional
from kvnmt.errors import UserError
from kvnmt.runs import train as experiment
from kvnmt.runs.directory import load_run
from kvnmt.target_context import state_only
from tests.data.helpers import words_of
from tests.helpers import quiet, tiny, toy_data, trained
from tests.runs.warm import named


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    return tmp_path_factory.getbasetemp()


def test_a_run_starts_from_the_best_parameters_of_another(tmp_path, base, monkeypatch):
    baseline = trained(base)
    old = load_run(baseline)
    started = {}

    def fit(job, draw, *, resume, begin):
        started["params"] = draw()

    monkeypatch.setattr(experiment, "fit", fit)
    exp = tiny(old.experiment.data, "kvmematt-r2-atteos", warm_start=baseline)
    experiment.run(exp, tmp_path / "run", console=quiet())
    found = named(started["params"])
    for path, leaf in named(old.params).items():
        np.testing.assert_array_equal(found[path], leaf)
        if "rounds/0" in path:
            again = found[path.replace("rounds/0", "rounds/1")]
            np.testing.assert_array_equal(again, leaf)


def never_fit(monkeypatch):
    """Ends a training before its first step."""
    monkeypatch.setattr(experiment, "fit", lambda job, draw, **how: draw())


def test_what_a_baseline_gives_two_rounds_is_told(tmp_path, base, monkeypatch):
    never_fit(monkeypatch)
    baseline = trained(base)
    data = load_run(baseline).experiment.data
    exp = tiny(data, "kvmematt-r2-atteos", warm_start=baseline)
    brief, verbose = quiet(), quiet()
    experiment.run(exp, tmp_path / "run", console=brief)
    experiment.run(exp, tmp_path / "other", console=verbose, verbose=True)
    sentence = re.compile(r"(\d+) arrays copied from '(.*)', (\d+) fresh\n")
    for console in (brief, verbose):
        copied, folder, fresh = sentence.search(console.file.getvalue()).groups()
        assert folder == str(baseline)
    lines = verbose.file.getvalue().splitlines()
    assert "  fresh  decoder/rounds/1/attention/write_address/W_query" in lines
    assert sum(line.startswith("  fresh  ") for line in lines) == int(fresh)
    assert sum(line.startswith("  copied  ") for line in lines) == int(copied)
    assert "W_query" not in brief.file.getvalue()


def test_what_has_no_place_in_the_new_model_is_told(tmp_path, base, monkeypatch):
    """Here the word before, which the new readout does not read."""
    never_fit(monkeypatch)
    exp = tiny(load_run(trained(base)).experiment.data, warm_start=trained(base))
    model = dataclasses.replace(exp.model, target_context=state_only.Options())
    exp, console = dataclasses.replace(exp, model=model), quiet()
    experiment.run(exp, tmp_path / "run", console=console, verbose=True)
    told = console.file.getvalue()
    assert "; 1 of its arrays have no place in this model\n" in told
    assert re.findall("  unused  (.*)\n", told) == ["readout/W/word"]


def test_another_vocabulary_is_refused_with_both_digests(tmp_path, base, monkeypatch):
    baseline = trained(base)
    data = toy_data(tmp_path / "text", vocabulary_size=8)
    exp = tiny(data, "kvmematt-r2-atteos", warm_start=baseline)
    with pytest.raises(UserError) as error:
        experiment.run(exp, tmp_path / "run", console=quiet())
    ours = words_of(data.source.read_text().split("\n"), size=8)
    theirs = load_run(baseline).vocabularies.source
    assert len(ours) != len(theirs)
    for part in ("source", *map(digest, (ours, theirs)), str(baseline)):
        assert part in str(error.value)
    assert not (tmp_path / "run").exists()
    never_fit(monkeypatch)
    assert f"with data.vocabularies '{baseline}'" in str(error.value)
    told = dataclasses.replace(data, vocabularies=baseline)  # as the sentence says
    exp = dataclasses.replace(exp, data=told)
    experiment.run(exp, tmp_path / "run", console=quiet())


def test_a_run_of_other_sizes_is_refused(tmp_path, base):
    baseline = trained(base)
    exp = tiny(load_run(baseline).experiment.data, warm_start=baseline)
    wide = dataclasses.replace(exp.model, embedding=9)
    with pytest.raises(UserError, match=r"embedding' has shape \(10, 8\).*\(10, 9\)"):
        experiment.run(
            dataclasses.replace(exp, model=wide), tmp_path / "run", console=quiet()
        )
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"layer_norm": True},
        {"cell": "gru_before"},
        {"merge": "stack"},
        {"readout": "maxout"},
        {"decoder": conditional.Options(reset="before")},
        {"decoder": conditional.Options(initial="last")},
        {"tie": "output"},
        {"tie": "all"},
    ],
    ids=str,
)
def test_arrays_are_not_taken_for_something_else(tmp_path, base, change):
    exp = tiny(load_run(trained(base)).experiment.data, warm_start=trained(base))
    other = dataclasses.replace(exp.model, **change)
    with pytest.raises(UserError, match=f"was trained with {[*change][0]}"):
        experiment.run(
            dataclasses.replace(exp, model=other), tmp_path / "run", console=quiet()
        )
    assert not (tmp_path / "run").exists()


def test_a_folder_that_is_no_run_is_refused(tmp_path, base):
    exp = tiny(load_run(trained(base)).experiment.data, warm_start=tmp_path / "no")
    with pytest.raises(UserError, match="no' is no run directory"):
        experiment.run(exp, tmp_path / "run", console=quiet())
    assert not (tmp_path / "run").exists()
