# SPDX-License-Identifier: Apache-2.0
"""The Multi30k experiment on a few sentences in its file layout."""

import json

import pytest
from rich.console import Console

from experiments import multi30k
from experiments.harness.significance import counts_in
from experiments.multi30k import Multi30k
from experiments.parts.aligned_rows import Aligned, aligned_row, joined
from kvnmt.data import synthetic
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
    lines = capsys.readouterr().out.splitlines()
    assert "Multi30k de-en, beam 10, at most" in " ".join(" ".join(lines).split())
    table = lines[-4:]
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


def test_alignment_error_is_measured_once_a_row_is_trained(tmp_path, capsys):
    """Links that are target-source, as the folder says, are turned."""
    write_captions(tmp_path)
    pairs = synthetic.make_corpus(1, train=40, valid=4, test=4).valid
    for name, turned in (("some-deen", False), ("some-ende", True)):
        folder = tmp_path / name
        folder.mkdir()
        for side in ("de", "en"):
            text = (tmp_path / f"valid.{side}").read_text().splitlines()
            lines = (line.replace(" ", " new ", 1) + "\n" for line in text)
            (folder / f"dev.{side}").write_text("".join(lines))
        links = [sorted((i + (i > 0), j + (j > 0)) for i, j in p.links) for p in pairs]
        lines = [
            " ".join(f"{j}-{i}" if turned else f"{i}-{j}" for i, j in line)
            for line in links
        ]
        if not turned:
            folder.joinpath("dev.align").write_text("")
            options = Multi30k(data=tmp_path, workdir=tmp_path / "w", aligned=folder)
            with pytest.raises(UserError, match="dev.align"):
                multi30k.main(options, train=never)
        folder.joinpath("dev.align").write_text("".join(f"{x}\n" for x in lines))
    found = []
    for name in ("some-deen", "some-ende"):
        options = Multi30k(data=tmp_path, workdir=tmp_path / "w")
        row = multi30k.configure(options, "kvmematt-r1", "scratch", 1, {})
        if not found:
            row.folder.parent.mkdir()
            untrained(row.experiment, row.folder, resume=False, console=Console())
        read = aligned_row(row, Aligned(tmp_path / name, "de", "en"))
        assert read.needs == (row.folder,)
        found.append(read.work())
    assert found[0] == found[1]
    assert (found[0]["start"], found[0]["seed"]) == ("scratch", 1)
    assert 0 < found[0]["aer"] <= 1 and 0 < found[0]["unknown"] < 0.5
    with pytest.raises(UserError, match="ends neither with deen nor with ende"):
        Aligned(tmp_path / "mine", "de", "en").read()
    named = {"system": "kvmematt-r1", "start": "scratch", "data": "de-en"}
    rows = [named | {"seed": seed, "bleu": 20.0} for seed in (2, 1)]
    lines = joined([*rows, named | found[0]])
    assert [line.get("aer") for line in lines] == [None, found[0]["aer"]]
    assert [line["bleu"] for line in lines] == [20.0, 20.0]
