# SPDX-License-Identifier: Apache-2.0
"""The default recipe in other languages: its text, its tokenizers, its figures."""

import json
from dataclasses import replace

import pytest

from experiments import languages
from experiments.languages import RECIPE, TASKS, Languages
from experiments.parts.ingredients import WITHOUT
from kvnmt.errors import UserError
from tests.experiments.fake import never, untrained, write_captions


@pytest.fixture
def options(tmp_path) -> Languages:
    return Languages(
        data=tmp_path,
        workdir=tmp_path / "runs",
        pairs=("zh-en", "en-ja"),
        systems=("rnnsearch-star",),
    )


def test_a_row_is_the_recipe_with_a_tokenizer_of_its_language(options):
    looking = replace(options, list=True)  # reads no text
    for pair, task in TASKS.items():
        row = languages.configure(looking, pair, "self-attentive-residual", 2)
        made, (source, target) = row.experiment, pair.split("-")
        assert made.optimizer == RECIPE.optimizer and row.data == pair
        assert made.training.seed == 2 and made.training.bleu_tokenize == task.tokenize
        assert made.data.subwords == RECIPE.data.subwords
        assert made.data.source == options.data / task.folder / f"train.{source}"
        assert made.data.valid_target == options.data / task.folder / f"valid.{target}"
    with pytest.raises(UserError, match="no pair of languages 'en-zx'; did you mean"):
        languages.configure(options, "en-zx", "rnnsearch-star", 1)


def test_every_part_is_told_with_its_signature(options, monkeypatch, capsys):
    monkeypatch.setattr(languages, "RECIPE", WITHOUT["joint pieces"](RECIPE))
    names = {"de": ("zh", "en"), "en": ("en", "ja")}
    write_captions(options.data)
    for place, folder in enumerate(("3am-enzh", "tanaka-enja")):
        (options.data / folder).mkdir()
        for part, plain in (("train",) * 2, ("valid",) * 2, ("test", "test2016")):
            for side, ours in names.items():
                text = (options.data / f"{plain}.{side}").read_text()
                (options.data / folder / f"{part}.{ours[place]}").write_text(text)
    languages.main(options, train=untrained)
    table = capsys.readouterr().out
    runs = [options.workdir / f"{pair}-rnnsearch-star-1" for pair in options.pairs]
    results = [json.loads((run / "result.json").read_text()) for run in runs]
    assert [r["data"] for r in results] == ["zh-en", "en-ja"]
    assert "test_bleu" not in results[0] and "tok:13a" in results[0]["signature"]
    assert "test_bleu" in results[1] and "tok:none" in results[1]["signature"]
    assert "zh-en" in table and "en-ja" in table
    assert len((runs[1] / "test.ja").read_text().splitlines()) == 4
    languages.main(options, train=never)
    assert capsys.readouterr().out in table
