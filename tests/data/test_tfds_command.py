# SPDX-License-Identifier: Apache-2.0
"""The command that prepares a TFDS dataset from text, and training from the dataset."""

import dataclasses
import gzip
import json
import shlex
from pathlib import Path

import numpy as np
import pytest

from kvnmt import cli
from kvnmt.cli import train
from kvnmt.data.config import DataConfig
from kvnmt.data.text import Parallel, collect
from kvnmt.data.tfds_source import Dataset
from kvnmt.runs.config import from_plain, to_plain
from tests.data.helpers import as_files, first_batches
from tests.helpers import toy_data


def command(data: DataConfig, folder: Path) -> list[str]:
    """Flags of a plain config, for the command that prepares a dataset."""
    sides = ("source", "target", "valid_source", "valid_target")
    named = [(f"--{side.replace('_', '-')}", getattr(data, side)) for side in sides]
    named += [("--name", "toy"), ("--folder", folder)]
    return ["prepare-tfds", *(str(word) for pair in named for word in pair)]


def test_a_prepared_dataset_is_trained_from_like_files(tmp_path, capsys, monkeypatch):
    """By the command that is printed."""
    plain = toy_data(tmp_path / "text", train=32, valid=4)
    folder = tmp_path / "my data"
    cli.main(command(plain, folder))
    out, err = capsys.readouterr()
    assert f"32 train, 4 validation pairs in {folder}/toy/1.0.0; train with:" in err
    program, *arguments = shlex.split(out)
    assert program == "kvnmt"
    trained = []
    monkeypatch.setattr(train.Train, "__call__", lambda self: trained.append(self))
    cli.main(arguments)
    assert trained[0].run == Path("runs/toy")
    data = trained[0].experiment.data
    data = dataclasses.replace(data, vocabulary="words", min_count=1)
    for ours, theirs in zip(first_batches(data), first_batches(plain), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    saved = json.dumps(to_plain(trained[0].experiment))
    assert from_plain(json.loads(saved)) == trained[0].experiment


def test_the_command_keeps_empty_lines_and_reads_gzip(tmp_path, capsys):
    text = Parallel(["a", "", "\x85b"], ["A", "B", "C"])
    valid = Parallel(["v"], ["V"])
    config = as_files(tmp_path / "text", text, valid, pack=gzip.compress)
    test = ["--test-source", str(config.source), "--test-target", str(config.target)]
    cli.main([*command(config, tmp_path / "d"), *test, "--languages", "de", "en"])
    out, err = capsys.readouterr()
    assert (
        out == f"kvnmt train runs/toy --data.tfds toy --data.tfds-folder {tmp_path}/d\n"
    )
    assert "3 train, 1 validation, 3 test pairs in" in err
    for split, expected in (("train", text), ("validation", valid), ("test", text)):
        blocks = Dataset("toy", split, tmp_path / "d").blocks()
        assert collect(blocks, "keep", "record") == expected


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--test-source", "x"], "--test-source and --test-target"),
        (["--source", "nowhere"], "no file 'nowhere'"),
        (["--name", "No"], "cannot name a dataset"),
    ],
)
def test_mistakes_of_the_command_are_one_sentence(tmp_path, capsys, arguments, part):
    plain = toy_data(tmp_path / "text", train=4, valid=2)
    with pytest.raises(SystemExit) as end:
        cli.main([*command(plain, tmp_path / "d"), *arguments])
    assert end.value.code == 2
    out, err = capsys.readouterr()
    assert out == "" and part in err and err.count("\n") == 1
    assert not (tmp_path / "d").exists()
