# SPDX-License-Identifier: Apache-2.0
"""Batches whose loss is no number, and what is written down of steps."""

import dataclasses
import itertools
import json
import resource
import types
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from kvnmt.data.stream import BatchAt
from kvnmt.data.vocabulary import EOS
from kvnmt.errors import UserError
from kvnmt.runs import train as experiment
from kvnmt.training import bad_numbers
from kvnmt.training import records as log_records
from kvnmt.training import step as steps
from kvnmt.training.losses import Loss
from kvnmt.training.optimizer import OptimizerConfig
from tests.helpers import full, quiet, records, replaced, steps_kept, tiny
from tests.training.jobs import fit_with, job_of, with_lower
from tests.training.runs import everything


def test_steps_between_validations_are_written_down(tmp_path, data):
    """Three together are what one alone says of each, and skipped ones none of them."""
    for every in (1, 3, 0):
        exp = tiny(data, epochs=2, log_every=every)
        fit_with(exp, tmp_path / str(every), step=bad_at(5))
    one, three = (records(tmp_path / name, "steps.jsonl") for name in "13")
    assert [record["step"] for record in one] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [record["step"] for record in three] == [3, 6]
    assert [record["skipped"] for record in one] == [0, 0, 0, 0, 0, 1, 1, 1]
    assert one[5]["train_loss"] is None
    losses = [record["train_loss"] for record in one if record["train_loss"]]
    for record, within in zip(three, (losses[:3], losses[3:5])):
        assert min(within) < record["train_loss"] < max(within)
    assert not (tmp_path / "0" / "steps.jsonl").exists()
    (events,) = (tmp_path / "1" / "events").iterdir()
    assert b"steps/train_loss" in events.read_bytes()


def test_a_line_on_steps_that_cannot_be_written_ends_nothing(
    tmp_path, data, monkeypatch
):
    """Of one that a full disk cuts nothing stays."""
    path = tmp_path / "steps.jsonl"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    log_records._append(path, {"step": 1})
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 3, before[1]))
        with pytest.raises(OSError, match="No space"):
            log_records._append(path, {"step": 2})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert path.read_text() == '{"step": 1}\n'

    monkeypatch.setattr(log_records.Log, "add_steps", full)
    console = quiet()
    exp = tiny(data, epochs=1, log_every=2)
    experiment.run(exp, tmp_path / "run", console=console)
    said = console.file.getvalue()
    assert said.count("No space left on device; training goes on") == 2
    assert len(records(tmp_path / "run")) == 1


def bad_at(*positions: int):
    """Makes a step whose numbers are not finite at these places."""

    @jax.jit
    def skip(state, source, target):
        zero = Loss(*(jax.numpy.zeros(()) for _ in dataclasses.fields(Loss)))
        bad = steps.Metrics(zero, jax.numpy.float32(np.nan), jax.numpy.bool_(True))
        return state.replace(step=state.step + 1), bad

    def make(step):
        numbers = itertools.count()

        def maybe(*inputs):
            return (skip if next(numbers) in positions else step)(*inputs)

        return with_lower(maybe, step)

    return make


def test_the_learning_rate_is_the_one_that_was_used(tmp_path, data):
    """The optimiser counts the updates that it made; a skipped step makes none."""
    rises = OptimizerConfig(learning_rate=0.1, warmup=10)
    exp = dataclasses.replace(tiny(data, epochs=2), optimizer=rises)
    fit_with(exp, tmp_path / "run", step=bad_at(1, 2, 5))
    found = [record["learning_rate"] for record in records(tmp_path / "run")]
    np.testing.assert_allclose(found, [0.1 * 2 / 10, 0.1 * 5 / 10], rtol=1e-6)
    state, _ = everything(tmp_path / "run", exp)
    counts = [
        leaf for leaf in jax.tree.leaves(state.optimizer) if leaf.dtype.kind == "i"
    ]
    assert {int(count) for count in counts} == {5}


def test_a_bad_batch_is_skipped_and_counted(tmp_path, data):
    fit_with(tiny(data, epochs=2), tmp_path / "run", step=bad_at(2))
    assert [record["skipped"] for record in records(tmp_path / "run")] == [1, 1]
    assert all(np.isfinite(r["train_loss"]) for r in records(tmp_path / "run"))


def test_a_validation_waits_for_a_sound_step(tmp_path, data):
    """And so does the save before it."""
    fit_with(tiny(data, epochs=3), tmp_path / "run", step=bad_at(3, 4, 11))
    assert [record["step"] for record in records(tmp_path / "run")] == [6, 8, 12]
    exp = tiny(data, epochs=2, save_every=3)
    fit_with(exp, tmp_path / "saves", step=bad_at(2, 5))
    assert steps_kept(tmp_path / "saves") == {4, 7, 8}
    assert [record["step"] for record in records(tmp_path / "saves")] == [4, 8]


def test_a_bad_batch_is_written_in_any_locale(tmp_path, monkeypatch):
    write = Path.write_text

    def write_text(path: Path, text: str, encoding: str = "ascii") -> int:
        return write(path, text, encoding)

    monkeypatch.setattr(Path, "write_text", write_text)
    words = types.SimpleNamespace(decode=lambda ids: "é")
    side = {3: np.array([2])}
    corpora: Any = types.SimpleNamespace(
        vocabularies=(words, words),
        train=types.SimpleNamespace(source=side, target=side),
    )
    bad_numbers.report(tmp_path, corpora, [3], step=1, seed=1)
    report = json.loads((tmp_path / bad_numbers.NAME).read_text(encoding="utf-8"))
    assert report["pairs"] == [{"source": "é", "target": "é"}]


def test_many_bad_batches_in_a_row_stop_the_run(tmp_path, data):
    exp = tiny(data, epochs=20, skip_at_most=4)
    with pytest.raises(UserError, match="4 steps in a row, the last of them step 9, "):
        fit_with(exp, tmp_path / "run", step=bad_at(*range(5, 99)))
    report = json.loads((tmp_path / "run" / "bad-batch.json").read_text())
    assert (report["step"], report["seed"]) == (9, 1)
    job, _ = job_of(exp, tmp_path / "run")
    batch = BatchAt(job.corpora.train, job.plan, 1)(8)
    sides = zip(job.corpora.vocabularies, (batch.source, batch.target))
    texts = (
        [words.decode(row[row > EOS].tolist()) for row in rows] for words, rows in sides
    )
    pairs = [{"source": source, "target": target} for source, target in zip(*texts)]
    assert report["pairs"] == pairs
    # None of the steps that changed nothing: no step from there may be sound any more.
    assert steps_kept(tmp_path / "run") == {4}
    fewer = replaced(exp, "training.epochs", 3)
    fit_with(fewer, tmp_path / "run", resume=True)
    assert [record["skipped"] for record in records(tmp_path / "run")] == [0, 0, 0]
