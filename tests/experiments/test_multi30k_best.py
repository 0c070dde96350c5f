# SPDX-License-Identifier: Apache-2.0
"""The recipe on Multi30k: its ingredients, its composed systems, its figures."""

import json
from dataclasses import replace

import pytest

from experiments import multi30k_best
from experiments.multi30k_best import COMPOSED, RECIPE, WITHOUT, Multi30kBest
from experiments.settings import config_digest
from experiments.significance import counts_in
from kvnmt.attention import kv_memory
from kvnmt.errors import UserError
from kvnmt.target_context import self_attentive
from tests.experiments.fake import never, untrained, write_captions


@pytest.fixture
def options(tmp_path) -> Multi30kBest:
    return Multi30kBest(
        data=tmp_path,
        workdir=tmp_path / "runs",
        source="de",
        target="en",
        systems=("rnnsearch-star",),
    )


def test_every_ingredient_is_left_out_by_itself(options):
    rows = [
        multi30k_best.configure(options, "rnnsearch-star", without, 1, {})
        for without in ("", *WITHOUT)
    ]
    assert len({config_digest(row.experiment) for row in rows}) == len(rows)
    assert len({row.folder for row in rows}) == len(rows)
    for row in rows:
        assert row.experiment.data.source == options.data / "train.de"
        assert row.experiment.training.epochs == RECIPE.training.epochs


def test_a_composed_system_has_mechanisms_of_both(options):
    for name in COMPOSED:
        model = multi30k_best.configure(options, name, "", 1, {}).experiment.model
        assert isinstance(model.attention, kv_memory.Options)
        assert isinstance(model.target_context, self_attentive.Options)
    with pytest.raises(UserError, match="no system 'rnnsearch-sta'; did you mean"):
        multi30k_best.configure(options, "rnnsearch-sta", "", 1, {})


def test_a_row_tells_what_its_score_is_made_of(options, monkeypatch, capsys):
    monkeypatch.setattr(multi30k_best, "RECIPE", WITHOUT["joint pieces"](RECIPE))
    write_captions(options.data)
    multi30k_best.main(options, train=untrained)
    table = capsys.readouterr().out
    folder = options.workdir / "de-en-rnnsearch-star-1"
    result = json.loads((folder / "result.json").read_text())
    assert 0 <= result["test2016_bleu"] <= 100 and result["without"] == ""
    assert len(result["precisions"].split("/")) == 4
    assert len((folder / "test2016.en").read_text().splitlines()) == 4
    assert (
        counts_in(result["test2016_counts"])[:, -1].sum() == result["reference_length"]
    )
    assert result["precisions"] in table
    multi30k_best.main(options, train=never)
    assert capsys.readouterr().out in table


def test_rows_translate_together(options, monkeypatch, capsys):
    monkeypatch.setattr(multi30k_best, "RECIPE", WITHOUT["joint pieces"](RECIPE))
    write_captions(options.data)
    both = replace(options, seeds=(1, 2), ensemble=True)
    multi30k_best.main(both, train=untrained)
    assert "ensemble: rnnsearch-star, seeds 1-2" in capsys.readouterr().out
    folders = [
        options.workdir / f"de-en-{name}"
        for name in ("rnnsearch-star-1", "ensemble-rnnsearch-star-1-2")
    ]
    one, two = (json.loads((f / "result.json").read_text()) for f in folders)
    assert two["parameters"] == 2 * one["parameters"] and two["without"] == ""
    # Its members are the same, so that their mean is what each of them says.
    lines = [(folder / "test2016.en").read_text() for folder in folders]
    assert lines[0] == lines[1] and two["test2016_bleu"] == one["test2016_bleu"]
    multi30k_best.main(both, train=never)


@pytest.mark.parametrize(
    ("changes", "part"),
    [({}, "two members"), ({"ablate": True}, "leave --ablate out")],
)
def test_what_makes_no_ensemble_is_told(options, changes, part):
    with pytest.raises(UserError, match=part):
        multi30k_best.main(replace(options, ensemble=True, show=True, **changes), never)


def test_no_system_to_leave_ingredients_out_of_is_one_sentence(options):
    options = replace(options, systems=(), ablate=True, list=True)
    with pytest.raises(UserError, match="there is no row to make"):
        multi30k_best.main(options, train=never)
