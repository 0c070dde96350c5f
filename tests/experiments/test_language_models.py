# SPDX-License-Identifier: Apache-2.0
"""The experiment on language models, with a training that takes no time."""

import math
from dataclasses import replace

import pytest

from experiments import language_models
from experiments.harness.results import read_result
from experiments.language_models import LanguageModels
from kvnmt.data.text import read_lines
from kvnmt.errors import UserError
from tests.experiments.fake import never, untrained


@pytest.fixture
def options(tmp_path) -> LanguageModels:
    text = tmp_path / "text"
    text.write_text("a b c . b c a .\nno stop here\n")
    return LanguageModels(
        train=text,
        valid=text,
        workdir=tmp_path / "runs",
        systems=("lm-4-gram",),
        epochs=1,
    )


def test_a_system_that_is_no_language_model_is_refused_before_any_work(options):
    with pytest.raises(UserError, match="lm-lstm"):
        language_models.main(replace(options, systems=("lm-lst",)))
    assert not options.workdir.exists()


def test_language_models_are_reported_and_not_trained_again(options, capsys):
    language_models.main(options, untrained)
    lines = ["a b c .", "b c a .", "no stop here"]
    assert read_lines(options.workdir / "train.txt") == lines
    result = read_result(options.workdir / "lm-4-gram-1")
    assert result is not None
    assert result["perplexity"] == math.exp(1.5)
    assert result["state"] == 484
    table = capsys.readouterr().out.splitlines()[-2:]
    assert table[1].split()[::3] == ["lm-4-gram", "4.5"]
    language_models.main(options, never)
    assert capsys.readouterr().out.splitlines()[-2:] == table
    language_models.main(replace(options, show=True), never)
    assert capsys.readouterr().out.splitlines()[-2:] == table
    language_models.main(replace(options, list=True), never)
    assert "done" in capsys.readouterr().out


def test_paragraphs_are_cut_into_sentences():
    lines = ["A b . C d .", "no stop", " . x", "e . f"]
    sentences = list(language_models.sentences(lines))
    assert sentences == ["A b .", "C d .", "no stop", "x", "e .", "f"]
