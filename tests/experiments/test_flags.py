# SPDX-License-Identifier: Apache-2.0
"""What every table takes from the command line, tried on one with two rows."""

import json
import sys

import pytest

from experiments import multi30k
from experiments.multi30k import Multi30k
from experiments.results import write_result
from experiments.table import launch, with_flags
from tests.experiments.fake import write_captions

SMALL = """--model.embedding 4 --model.encoder 6 --model.state 6 --training.shapes 1
    --model.initializer wide --training.batch-size 8""".split()


@pytest.fixture
def call(tmp_path, monkeypatch, capsys):
    """Starts the experiment as a program; gives what it prints."""
    write_captions(tmp_path)
    monkeypatch.setattr("experiments.table.keep_programs", lambda: None)

    def run(*words: str) -> tuple[str, str]:
        start = ["multi30k", "--data", str(tmp_path), "--workdir", str(tmp_path / "w")]
        monkeypatch.setattr(sys, "argv", [*start, "--systems", "rnnencdec", *words])
        launch(Multi30k, multi30k.main, "About.")
        return capsys.readouterr()

    return run


def test_rows_are_listed_with_their_state(call, tmp_path):
    out, _ = call("--list", "--seeds", "1", "2", "--starts", "scratch")
    names = [f"de-en-rnnencdec-scratch-{seed}" for seed in (1, 2)]
    lines = [line.split(maxsplit=1) for line in out.splitlines() if "de-en" in line]
    assert [(name, state.strip()) for name, state in lines] == [
        (name, "not started") for name in names
    ]
    assert not (tmp_path / "w").exists()


def test_the_commit_is_that_of_the_launch(call, monkeypatch):
    asked = []
    monkeypatch.setattr("experiments.table.commit", lambda: asked.append("commit"))
    monkeypatch.setattr(multi30k, "make_table", lambda *args: asked.append("table"))
    call()
    assert asked == ["commit", "table"]


def test_a_dry_run_tells_what_would_be_trained(call, tmp_path):
    done = {"system": "rnnencdec", "steps": 12, "minutes": 6.0}
    write_result(tmp_path / "w" / "another", done)
    out, _ = call("--dry-run", "--starts", "warm", *SMALL)
    (plan,) = json.loads(out)
    assert plan["row"] == "de-en-rnnencdec-warm-1"
    assert plan["config"]["model"]["state"] == 6
    assert plan["config"]["training"]["warm_start"].endswith("star-scratch-1")
    sizes = [len(shape) for shape in plan["arrays"].values()]
    assert sizes and plan["parameters"] > 100
    assert (plan["steps_per_epoch"], plan["steps"]) == (5, 10)
    assert plan["memory"]["rows"] == 8 and plan["memory"]["bytes"] > 0
    assert plan["sharding"]["devices"]["model"] == 1
    assert plan["time"]["minutes"] == 5.0
    assert not (tmp_path / "w" / "de-en-rnnencdec-warm-1").exists()


def test_a_flag_of_the_configuration_changes_every_row(tmp_path):
    options = Multi30k(data=tmp_path, workdir=tmp_path)
    rows = [
        multi30k.configure(options, name, "scratch", 1, {})
        for name in ("rnnsearch-star", "memdec")
    ]
    changed = with_flags(rows, ["--training.batch-size", "20"])
    assert [row.experiment.training.batch_size for row in changed] == [20, 20]
    for before, after in zip(rows, changed):
        assert after.experiment.model == before.experiment.model


@pytest.mark.parametrize(
    "words, sentence",
    [
        (["--training.seed", "2"], "use --seeds"),
        (["--training.warm-start", "x"], "leave it out"),
        (["--training.batch-size", "0"], "must be at least 1"),
        (["--sytems", "rnnsearch-star"], "sytems"),
    ],
)
def test_a_wrong_flag_is_told_before_any_work(call, tmp_path, capsys, words, sentence):
    with pytest.raises(SystemExit) as end:
        call(*words)
    assert end.value.code == 2
    assert sentence in "".join(capsys.readouterr())
    assert not (tmp_path / "w").exists()
