# SPDX-License-Identifier: Apache-2.0
"""The text of the papers: what flags name, what is made up, several test texts."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments import bahdanau, meng, wang
from experiments.bahdanau import Bahdanau
from experiments.meng import Meng
from experiments.parts import made_up, papers
from experiments.parts.paper_texts import MadeUp
from experiments.wang import Wang
from kvnmt.data import synthetic
from kvnmt.errors import UserError
from kvnmt.metrics.bleu import Score
from tests.experiments.fake import never, paper_flags, untrained


@pytest.fixture
def text(tmp_path) -> dict[str, Any]:
    """Flags for the text of Multi30k's test."""
    return paper_flags(tmp_path)


@pytest.mark.parametrize(
    "changes, sentence",
    [
        ({}, "--source, --target, --valid-source, --valid-target not named"),
        ({"source": "a", "setting": "small"}, "^--target"),
        ({"test_target": ("a",), "setting": "small"}, "^--source"),
        ({"systems": ("memdek",), "setting": "small"}, "memdec"),
    ],
)
def test_what_is_missing_is_told_before_any_work(tmp_path, changes, sentence):
    options = replace(Wang(workdir=tmp_path / "runs"), **changes)
    with pytest.raises(UserError, match=sentence):
        wang.main(options, never)
    assert not (tmp_path / "runs").exists()


def test_of_several_test_texts_bleu_is_the_mean(text, tmp_path, monkeypatch, capsys):
    """Each has a column, and is part of what a result is compared with."""
    for side in ("source", "target"):
        (path,) = text[f"test_{side}"]
        other = path.with_stem("MT03")
        other.write_text("".join(reversed(path.read_text().splitlines(True))))
        text[f"test_{side}"] = path, other
    scores = iter((20.0, 30.0))
    monkeypatch.setattr(
        papers, "corpus_bleu", lambda *args, **more: Score(next(scores), "")
    )
    options = Meng(
        **text, setting="small", systems=("rnnsearch-star",), workdir=tmp_path / "runs"
    )
    paper = replace(meng.PAPER, variants=meng.PAPER.variants[:1])
    (result,) = papers.make_paper(options, paper, untrained)
    figures = [result[name] for name in ("bleu_test2016", "bleu_mt03", "bleu")]
    assert figures == [20.0, 30.0, 25.0]
    folder = tmp_path / "runs" / "small-rnnsearch-star-scratch-1"
    first, second = (
        (folder / f"{name}.translations.txt").read_text().splitlines()
        for name in ("test2016", "mt03")
    )
    assert first == second[::-1] and len({*first}) > 1
    heading, line = capsys.readouterr().out.splitlines()[-2:]
    assert heading.index("BLEU test2016") < heading.index("BLEU mt03")
    assert "20.00" in line and "30.00" in line and "25.00" in line
    text["test_source"][1].write_text("another\n" * 4)
    with pytest.raises(UserError, match="measured on other text"):
        papers.make_paper(options, paper, never)


@pytest.mark.parametrize(
    "source, target, sentence",
    [
        (("a.de", "b.de"), ("a.en",), "name as many files in both"),
        (("a.de", "x/A.fr"), ("a.en", "b.en"), "two texts named 'a'"),
    ],
)
def test_test_texts_that_do_not_go_together_are_refused(
    text, tmp_path, source, target, sentence
):
    text["test_source"], text["test_target"] = (
        tuple(map(Path, paths)) for paths in (source, target)
    )
    for looks in (False, True):
        options = Wang(**text, workdir=tmp_path / "runs", show=looks)
        with pytest.raises(UserError, match=sentence):
            wang.main(options, never)


def test_made_up_sentences_stand_in_rows_with_their_links():
    pairs = synthetic.make_corpus(1, train=20, valid=1, test=1).train
    lines = made_up.in_rows(pairs, 4)
    assert 5 <= len(lines) < 20
    for side in ("source", "target"):
        words = [word for pair in pairs for word in getattr(pair, side)]
        assert [word for line in lines for word in getattr(line, side)] == words

    def linked(some):
        return [
            (pair.source[i], pair.target[j])
            for pair in some
            for i, j in sorted(pair.links)
        ]

    assert sorted(linked(lines)) == sorted(linked(pairs))


def test_the_small_setting_makes_up_its_text(tmp_path, capsys):
    paper = replace(
        bahdanau.PAPER,
        made_up=MadeUp(in_a_row=4, test=4),
        variants=bahdanau.PAPER.variants[:1],
    )
    options = Bahdanau(setting="small", pairs=20, workdir=tmp_path)
    (result,) = papers.make_paper(options, paper, untrained)
    assert result["data"] == "made-up"
    assert {"bleu", "dropped", "repeated", "by_length"} <= set(result)
    lines = (tmp_path / "corpus" / "train.src").read_text().splitlines()
    assert len(lines) < 20
    assert "made-up" in capsys.readouterr().out
    for look in ({"list": True}, {"show": True}):
        papers.make_paper(replace(options, **look), paper, never)
        assert "done" in capsys.readouterr().out or "show" in look
        with pytest.raises(UserError, match="runs on other text"):
            papers.make_paper(replace(options, pairs=40, **look), paper, never)
