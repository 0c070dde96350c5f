# SPDX-License-Identifier: Apache-2.0
"""RNNsearch* under another program's recipe."""

import json
import sys
from dataclasses import replace

import pytest

from experiments import even_match
from experiments.even_match import EvenMatch
from experiments.harness.settings import config_digest
from experiments.parts import captions
from kvnmt.benchmark.peers import joeynmt
from kvnmt.benchmark.processes import Installed
from kvnmt.errors import UserError
from tests.experiments.fake import never, untrained, write_captions


def test_the_row_is_trained_under_that_recipe(tmp_path, capsys):
    write_captions(tmp_path)
    seen = []

    def train(experiment, folder, **rest):
        seen.append(experiment)
        return untrained(experiment, folder, **rest)

    options = EvenMatch(data=tmp_path, workdir=tmp_path / "runs")
    even_match.main(options, train=train)
    experiment, *others = seen
    model, rates = experiment.model, experiment.model.dropout
    assert (model.merge, model.initializer) == ("concat", "glorot")
    assert (rates.embedding, rates.annotations, rates.output) == (0.2, 0.0, 0.5)
    assert experiment.objective.label_smoothing == 0
    assert (experiment.training.batch_size, experiment.training.epochs) == (80, 12)
    assert (experiment.optimizer.learning_rate, experiment.optimizer.decay) == (
        0.001,
        0.85,
    )
    assert experiment.data.max_length == 60
    assert len({config_digest(each) for each in seen}) == len(even_match.OURS) == 4
    assert [each.training.batch_size for each in others] == [40, 80, 80]
    assert [each.objective.label_smoothing for each in others] == [0, 0.1, 0]
    assert [each.model.dropout.annotations for each in others] == [0, 0, 0.2]
    for words in (
        ["--training.batch-size", "64"],
        ["--objective.label-smoothing", "0"],
    ):
        with pytest.raises(UserError, match="is what the row '.*' is named for"):
            even_match.main(replace(options, config=tuple(words)), train=never)
    result = json.loads((tmp_path / "runs/de-en-joeynmt-1/result.json").read_text())
    assert result["recipe"] == even_match.RECIPE
    assert f"{result['test2016_bleu']:.2f}" in capsys.readouterr().out


# Trains nothing, and translates into the source in capitals.
STAND_IN = """
import json, pathlib, sys, yaml

def main():
    task, path, *_ = sys.argv[1:]
    config = yaml.safe_load(pathlib.Path(path).read_text())
    folder = pathlib.Path(config["model_dir"])
    if task == "train":
        assert pathlib.Path(config["data"]["train"] + ".en").read_text()
        folder.mkdir()
        (folder / "config.yaml").write_text(json.dumps(config))
        print("Total params: 123")
    else:
        assert config["testing"]["beam_size"] == 10
        for line in sys.stdin:
            print(line.upper(), end="")

if __name__ == "__main__":
    main()
"""


def test_joeynmt_is_trained_under_either_recipe(tmp_path, monkeypatch):
    """Also with the names that the text has in the repository of Multi30k."""
    write_captions(tmp_path)
    for split, theirs in captions.UPSTREAM.items():
        for language in ("de", "en"):
            path = tmp_path / f"{split}.{language}"
            path.rename(tmp_path / f"{theirs}.lc.norm.tok.{language}")
    package = tmp_path / "packages" / "joeynmt"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("__version__ = '2.3.0'")
    (package / "__main__.py").write_text(STAND_IN)
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\nPYTHONPATH={package.parent} exec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    monkeypatch.setattr(even_match, "OURS", {})
    options = EvenMatch(data=tmp_path, workdir=tmp_path / "runs", peer_python=python)
    even_match.main(options, train=untrained)
    runs = tmp_path / "runs"
    for name, pairs, smoothing in (("its", 80, 0), ("ours", 40, 0.1)):
        folder = runs / f"de-en-joeynmt-itself-{name}-1"
        result = json.loads((folder / "result.json").read_text())
        assert (result["system"], result["parameters"]) == ("JoeyNMT", 123)
        assert result["test2016_bleu"] >= 0
        chosen = json.loads((folder / "model.yaml").read_text())["training"]
        assert (chosen["batch_size"], chosen["label_smoothing"]) == (pairs, smoothing)
        assert (chosen["decrease_factor"], chosen["epochs"]) == (0.85, 12)
        lines = (folder / "test2016.en").read_text()
        source = tmp_path / "test_2016_flickr.lc.norm.tok.de"
        assert lines == source.read_text().upper()


def test_joeynmts_rows_are_of_the_text_that_it_learns(tmp_path):
    write_captions(tmp_path)
    options = EvenMatch(data=tmp_path, workdir=tmp_path / "runs", list=True)
    peer = Installed(joeynmt.PROGRAM, tmp_path / "none")
    row = even_match.peer_row(options, peer, even_match.RECIPE, 1, {})
    before = row.text
    assert before
    for split in ("train", "valid", "test2016"):
        path = tmp_path / f"{split}.de"
        text = path.read_text()
        path.write_text(f"{text}more\n")
        assert row.text != before
        path.write_text(text)
    assert row.text == before


def test_without_joeynmt_its_rows_are_refused(tmp_path):
    write_captions(tmp_path)
    options = EvenMatch(
        data=tmp_path, workdir=tmp_path / "runs", peer_python=tmp_path / "none"
    )
    with pytest.raises(UserError, match="cannot be run.*install JoeyNMT"):
        even_match.main(options, train=untrained)
    assert not (tmp_path / "runs").exists()
