# SPDX-License-Identifier: Apache-2.0
"""The Multi30k experiment on a few sentences in its file layout."""

import dataclasses
import json

import pytest

from experiments import multi30k
from kvnmt.data import synthetic
from kvnmt.errors import UserError


def test_a_missing_corpus_is_one_sentence(tmp_path):
    with pytest.raises(UserError, match=r"valid\.de"):
        multi30k.main(multi30k.Multi30k(tmp_path / "none", tmp_path / "runs"))


@pytest.mark.slow
def test_runs_are_trained_reported_and_not_repeated(tmp_path, monkeypatch, capsys):
    corpus = synthetic.make_corpus(1, train=120, valid=20, test=20)
    splits = {"train": corpus.train, "valid": corpus.valid, "test2016": corpus.test}
    for split, pairs in splits.items():
        for language, side in (("de", "source"), ("en", "target")):
            lines = (" ".join(getattr(pair, side)) for pair in pairs)
            path = tmp_path / f"{split}.{language}"
            path.write_text("".join(f"{line}\n" for line in lines))
    options = multi30k.Multi30k(
        tmp_path,
        tmp_path / "runs",
        systems=("rnnsearch-star", "kvmematt-r1"),
        epochs=1,
        warm_epochs=1,
    )
    configure = multi30k.configure

    def small(*arguments):
        full = configure(*arguments)
        model = dataclasses.replace(full.model, embedding=8, encoder=8, state=8)
        return dataclasses.replace(full, model=model)

    monkeypatch.setattr(multi30k, "configure", small)
    multi30k.main(options)
    folders = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert folders == [
        "de-en-kvmematt-r1-scratch-1",
        "de-en-kvmematt-r1-warm-1",
        "de-en-rnnsearch-star-scratch-1",
        "de-en-rnnsearch-star-warm-1",
    ]
    result = json.loads((tmp_path / "runs" / folders[0] / "result.json").read_text())
    assert {"valid_bleu", "test2016_bleu", "parameters", "minutes"} <= set(result)
    capsys.readouterr()
    monkeypatch.setattr(multi30k, "_train", None)  # not called again
    multi30k.main(options)
    assert "kvmematt-r1" in capsys.readouterr().out
