# SPDX-License-Identifier: Apache-2.0
"""The Multi30k experiment on a few sentences in its file layout."""

import json

import pytest

from experiments import multi30k
from experiments.multi30k import Multi30k
from experiments.significance import counts_in
from kvnmt.errors import UserError
from kvnmt.metrics.bleu import Settings, corpus_bleu, sentence_statistics
from tests.experiments.fake import never, untrained, write_captions

PLAIN = Settings("none")


@pytest.mark.parametrize("missing", ["train.de", "valid.en", "test2016.de"])
def test_a_missing_text_is_one_sentence_before_any_work(tmp_path, missing):
    write_captions(tmp_path)
    (tmp_path / missing).unlink()
    options = Multi30k(data=tmp_path, workdir=tmp_path / "runs")
    with pytest.raises(UserError, match=missing.replace(".", r"\.")):
        multi30k.main(options)
    assert not (tmp_path / "runs").exists()


def test_warm_rows_start_from_the_baseline_at_half_the_rate(tmp_path):
    options = Multi30k(
        data=tmp_path, workdir=tmp_path / "runs", source="en", target="fr"
    )
    scratch, warm = (
        multi30k.configure(options, "kvmematt-r2", start, 3, {})
        for start in ("scratch", "warm")
    )
    assert scratch.folder == tmp_path / "runs" / "en-fr-kvmematt-r2-scratch-3"
    assert warm.folder == tmp_path / "runs" / "en-fr-kvmematt-r2-warm-3"
    assert scratch.data == warm.data == "en-fr"
    assert scratch.experiment.training.warm_start is None
    base = tmp_path / "runs" / "en-fr-rnnsearch-star-scratch-3"
    assert warm.experiment.training.warm_start == base
    assert scratch.experiment.training.epochs == options.epochs
    assert warm.experiment.training.epochs == options.warm_epochs
    rates = [row.experiment.optimizer.learning_rate for row in (scratch, warm)]
    assert rates == [1e-3, 5e-4]
    assert scratch.experiment.data.source == tmp_path / "train.en"
    assert scratch.experiment.objective.label_smoothing == 0.1


def test_runs_are_trained_reported_and_not_repeated(tmp_path, capsys):
    write_captions(tmp_path)
    options = Multi30k(
        data=tmp_path, workdir=tmp_path / "runs", systems=("rnnsearch-star",)
    )
    multi30k.main(options, train=untrained)
    table = capsys.readouterr().out.splitlines()[-4:]
    rows = [line.split() for line in table[:3]]
    assert [row[:2] for row in rows[1:]] == [
        ["rnnsearch-star", "scratch"],
        ["rnnsearch-star", "warm"],
    ]
    for start, row in zip(("scratch", "warm"), rows[1:]):
        folder = tmp_path / "runs" / f"de-en-rnnsearch-star-{start}-1"
        result = json.loads((folder / "result.json").read_text())
        assert 0 <= result["valid_bleu"] <= 100
        lines = (folder / "test2016.en").read_text().splitlines()
        text = (tmp_path / "test2016.en").read_text().splitlines()
        bleu = corpus_bleu(lines, text, tokenize="none").score
        assert result["test2016_bleu"] == bleu
        counts = counts_in(result["test2016_counts"])
        assert counts.tolist() == sentence_statistics(lines, text, PLAIN).tolist()
        assert row[2:] == [
            f"{result['parameters']:,}",
            f"{result['valid_bleu']:.2f}",
            f"{bleu:.2f}",
            *(f"{result[key]:.2%}" for key in ("unread", "overread")),
            *(f"{result[f'repeated_{n}']:+.2%}" for n in (1, 2)),
            *("1,000", "0.5", "3", "2", "1"),
        ]
    multi30k.main(options, train=never)
    assert capsys.readouterr().out.splitlines()[-4:] == table
