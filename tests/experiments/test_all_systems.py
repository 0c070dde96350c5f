# SPDX-License-Identifier: Apache-2.0
"""The experiments over the catalogue, on very little text."""

import dataclasses
import json

import pytest

from experiments import all_systems as catalogue
from experiments import language_models
from kvnmt.data import synthetic
from kvnmt.errors import UserError
from kvnmt.model_config import ModelConfig
from kvnmt.systems.named import SYSTEMS

TINY = ModelConfig(embedding=6, encoder=12, state=12, merge="sum")


def test_every_system_has_its_experiment():
    translators = set(catalogue.TRANSLATORS)
    assert translators | set(language_models.WIDTHS) == set(SYSTEMS)
    assert not translators & set(language_models.WIDTHS)
    for name in catalogue.TRANSLATORS:
        made = catalogue.configure(catalogue.Catalogue(), name, "synthetic")
        assert made.model == SYSTEMS[name].model(catalogue.SIZES["synthetic"])


def test_an_unknown_system_is_told_before_any_work(tmp_path):
    options = catalogue.Catalogue(folder=tmp_path / "runs", systems=("memdex",))
    with pytest.raises(UserError, match="memdec"):
        catalogue.main(options)
    assert not (tmp_path / "runs").exists()
    text = tmp_path / "text"
    text.write_text("a b .\n")
    with pytest.raises(UserError, match="lm-lstm"):
        language_models.main(
            language_models.LanguageModels(text, text, tmp_path / "lm", ("lm-lst",))
        )
    assert not (tmp_path / "lm").exists()


@pytest.mark.slow
def test_the_catalogue_is_trained_and_not_again(tmp_path, monkeypatch, capsys):
    pairs = synthetic.make_corpus(1, train=100, valid=20, test=20)
    for split, some in (
        ("train", pairs.train),
        ("valid", pairs.valid),
        ("test2016", pairs.test),
    ):
        for language, side in (("de", "source"), ("en", "target")):
            lines = (" ".join(getattr(pair, side)) + "\n" for pair in some)
            (tmp_path / f"{split}.{language}").write_text("".join(lines))
    monkeypatch.setattr(catalogue, "SIZES", {"synthetic": TINY, "multi30k": TINY})
    options = catalogue.Catalogue(
        data=tmp_path,
        folder=tmp_path / "runs",
        systems=("rnnencdec", "rnnsearch-star"),
        epochs=1,
        pairs=100,
        multi30k_epochs=1,
    )
    catalogue.main(options)
    said = capsys.readouterr().out
    results = {
        folder.parent.name: json.loads(folder.read_text())
        for folder in (tmp_path / "runs").glob("*/result.json")
    }
    assert set(results) == {
        f"{corpus}-{name}-1"
        for corpus in ("synthetic", "multi30k")
        for name in options.systems
    }
    assert "aer" in results["synthetic-rnnsearch-star-1"]
    assert "aer" not in results["synthetic-rnnencdec-1"]  # it has no alignment
    speeds = json.loads((tmp_path / "runs" / "speed.json").read_text())
    assert speeds["rnnsearch-star"] == 1 and speeds["rnnencdec"] > 0
    monkeypatch.setattr(catalogue, "_train", None)  # not called again
    catalogue.main(dataclasses.replace(options, speed=False))
    again = capsys.readouterr().out
    assert "rnnencdec" in said and again.splitlines()[-1] == said.splitlines()[-1]


@pytest.mark.slow
def test_language_models_are_trained_and_not_again(tmp_path, monkeypatch, capsys):
    text = tmp_path / "text"
    text.write_text("a b c . b c a .\nno stop here\n" * 30)
    options = language_models.LanguageModels(
        text, text, tmp_path / "runs", ("lm-lstm", "lm-4-gram"), epochs=1
    )
    monkeypatch.setattr(
        language_models, "WIDTHS", {name: 8 for name in options.systems}
    )
    language_models.main(options)
    result = json.loads((tmp_path / "runs" / "lm-lstm-1" / "result.json").read_text())
    assert 1 < result["perplexity"] < 20
    metrics = (tmp_path / "runs" / "lm-lstm-1" / "metrics.jsonl").read_text()
    assert "valid_bleu" not in metrics
    monkeypatch.setattr(language_models, "_train", None)  # not called again
    language_models.main(options)
    assert "lm-4-gram" in capsys.readouterr().out


def test_paragraphs_are_cut_into_sentences():
    lines = ["A b . C d .", "no stop", " . x", "e . f"]
    assert list(language_models.sentences(lines)) == [
        *("A b .", "C d .", "no stop", "x", "e .", "f"),
    ]
