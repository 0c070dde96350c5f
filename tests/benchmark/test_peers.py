# SPDX-License-Identifier: Apache-2.0
"""Every program is asked for the same, and its log is read as it is printed."""

import dataclasses
import io
import json
import sys
from pathlib import Path

import pytest

from kvnmt.benchmark.peers import PEERS, joeynmt, opennmt, ours, translating
from kvnmt.benchmark.peers.base import Search, Task
from kvnmt.errors import UserError
from tests.benchmark.tasks import small_task
from tests.helpers import toy_lines

JOEY = """
joeynmt.training - Epoch   1, Step:      363, Batch Loss: 190.1, Batch Acc: 0.3, \
Tokens per Sec:     2730, Lr: 0.001000
joeynmt.prediction - Generation took 12.5000[sec].
joeynmt.training - Epoch   1, total training loss: 9.71, num. of seqs: 29000, \
num. of tokens: 406536, 150.0000[sec]
joeynmt.training - Epoch   2, total training loss: 5.60, num. of seqs: 29000, \
num. of tokens: 406536, 140.0000[sec]
"""
OPENNMT = """
[2026-01-01 10:00:00,000 INFO] Step 100/  363; acc: 21.1; ppl: 300.9; xent: 5.7; \
lr: 0.00100; sents:    8000; bsz: 1100/1120/80; 5000/6000 tok/s;     20 sec;
[2026-01-01 10:00:10,000 INFO] Step 200/  363; acc: 21.1; ppl: 300.9; xent: 5.7; \
lr: 0.00100; sents:    8000; bsz: 1100/1120/80; 8000/9000 tok/s;     30 sec;
"""
TRANSLATED = """
[2026-01-01 10:00:00,000 INFO] PRED SCORE: -0.5, PRED PPL: 1.7 NB SENTENCES: 1000
Total translation time (s): 76.5
Average translation time (ms): 76.5
Tokens per second: 150.1
"""


@pytest.fixture(name="task")
def _task(tmp_path) -> Task:
    for part, count in (("train", 40), ("valid", 8), ("test", 6)):
        lines = toy_lines(len(part), count)
        for ending, side in (("de", lines), ("en", map(str.upper, lines))):
            text = "".join(f"{line}\n" for line in side)
            (tmp_path / f"{part}.{ending}").write_text(text)
    return small_task(tmp_path)


def test_joeynmt_is_asked_for_the_sizes(task, tmp_path):
    folder = tmp_path / "model"
    ((*_, path, skip),) = joeynmt.PROGRAM.train(task, folder)
    config = json.loads(Path(path).read_text())
    assert skip == "--skip-test" and config["model_dir"] == str(folder)
    encoder, decoder = config["model"]["encoder"], config["model"]["decoder"]
    assert encoder["embeddings"]["embedding_dim"] == 5
    assert (encoder["hidden_size"], decoder["hidden_size"]) == (6, 7)
    assert encoder["bidirectional"] and decoder["hidden_dropout"] == 0.3
    assert config["training"]["validation_freq"] == 3  # of 40 pairs, 16 at a time
    assert config["training"]["batch_size"] == 16 and config["training"]["epochs"] == 2
    assert config["data"]["src"]["lang"] == "de"
    *_, testing = joeynmt.PROGRAM.translate(folder, Search(10, 1, 60))
    assert json.loads(testing)["beam_size"] == 10


def test_opennmt_is_asked_for_the_sizes(task, tmp_path):
    folder = tmp_path / "model"
    words, training = opennmt.PROGRAM.train(task, folder)
    config = json.loads(Path(training[-1]).read_text())
    assert "build_vocab" in words[1] and words[3] == training[-1]
    assert config["word_vec_size"] == 5
    assert config["enc_hid_size"] == config["dec_hid_size"] == 12
    assert config["batch_size"] == 16 and config["train_steps"] == 6
    folder.mkdir()
    with pytest.raises(UserError, match="holds no model of OpenNMT-py"):
        opennmt.PROGRAM.translate(folder, Search(10, 1, 60))
    for step in (3, 12, 6):
        (folder / f"model_step_{step}.pt").touch()
    arguments = opennmt.PROGRAM.translate(folder, Search(10, 1, 60))
    assert str(folder / "model_step_12.pt") in arguments
    assert arguments[arguments.index("-beam_size") + 1] == "10"


def test_opennmt_has_one_rate_and_a_wide_decoder(task):
    """What it would train otherwise than it is asked to is told before."""
    alike = dataclasses.replace(task, state=12, embedding_dropout=0.3)
    opennmt.PROGRAM.check(alike)
    opennmt.PROGRAM.check(dataclasses.replace(alike, embedding_dropout=0.0))
    with pytest.raises(UserError, match="--model.encoder 3, or --model.state 12"):
        opennmt.PROGRAM.check(dataclasses.replace(alike, state=6))
    with pytest.raises(UserError, match="one rate; give --model.dropout.embedding 0.3"):
        opennmt.PROGRAM.check(dataclasses.replace(alike, embedding_dropout=0.1))


def test_ours_does_what_others_do(task, tmp_path):
    """On a CPU, and to the end."""
    (flags,) = ours.PROGRAM.train(dataclasses.replace(task, epochs=20), tmp_path)
    assert flags[flags.index("--training.patience") + 1] == "20"
    assert ours.PROGRAM.environment == {"JAX_PLATFORMS": "cpu"}


def test_logs():
    assert joeynmt.PROGRAM.speed(JOEY) == 2 * 406536 / 290
    assert joeynmt.PROGRAM.seconds(JOEY) == 12.5
    assert opennmt.PROGRAM.speed(OPENNMT) == 6000  # the others validate, too
    assert opennmt.PROGRAM.seconds(TRANSLATED) == 76.5
    for program in (*PEERS.values(), ours.PROGRAM):
        for read in (program.speed, program.seconds):
            with pytest.raises(UserError, match="does not tell its speed"):
                read("Killed")


def test_ours_trains_and_translates(task, tmp_path, kvnmt, monkeypatch, capfdbinary):
    """By its own commands, in this process."""
    folder = tmp_path / "model"
    task = dataclasses.replace(task, epochs=1)
    ((_, code, *words),) = ours.PROGRAM.train(task, folder)
    assert "kvnmt.cli" in code
    assert words[-2:] == ["--program-cache", "none"]  # what a first start takes
    said = kvnmt(*words[:-2], "--training.shapes", 1)
    assert said.status == 0 and ours.PROGRAM.speed(said.err) > 0
    lines = (tmp_path / "test.de").read_text()
    for batch in (1, 4):
        arguments = ours.PROGRAM.translate(folder, Search(1, batch, 9))
        assert arguments[:2] == ("-m", translating.__name__)
        monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
        translating.main(*arguments[2:])
        out, err = (text.decode() for text in capfdbinary.readouterr())
        assert out.count("\n") == lines.count("\n")
        assert ours.PROGRAM.seconds(err) > 0
