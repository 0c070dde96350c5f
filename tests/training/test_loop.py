# SPDX-License-Identifier: Apache-2.0
"""The loop of training: what is learnt, its figures, and that it compiles nothing."""

import dataclasses
import io
import re
import shutil
from typing import Any

import jax
import numpy as np
import pytest
from rich.console import Console

from kvnmt import console
from kvnmt.data.batches import pad, with_end
from kvnmt.data.corpus import load_corpora
from kvnmt.data.stream import BatchAt
from kvnmt.errors import UserError
from kvnmt.inference.program import SearchConfig
from kvnmt.inference.translate import translate_lines
from kvnmt.metrics.bleu import corpus_bleu
from kvnmt.model import assembly
from kvnmt.runs import train as experiment
from kvnmt.runs.config import Experiment
from kvnmt.runs.directory import load_run
from kvnmt.training import device_memory, loop
from kvnmt.training import step as steps
from kvnmt.training.checkpoints import manifest as manifests
from kvnmt.training.progress import FETCH, together
from kvnmt.training.validation import make_eval_step
from tests.helpers import records, replaced, tiny, toy_data, trained
from tests.training.jobs import compiling, fit_with, job_and_draw, job_of, watching
from tests.training.runs import EPOCH, check_same_run, everything, run


def test_copying_is_learnt(base):
    history = records(trained(base))
    for name in ("train_loss", "valid_loss"):
        losses = [record[name] for record in history]
        assert losses == sorted(losses, reverse=True)
        assert losses[-1] < 1.6  # 2.1 is what the frequencies of the words give


def test_a_warm_epoch_compiles_nothing(tmp_path, data):
    """All of it: steps, validation, translation, checkpoint; nor does another seed."""
    counts: list[int] = []
    exp = tiny(data, epochs=3, shapes=2)
    exp = replaced(exp, "model.dropout.output", 0.11)  # of no other test
    with compiling() as names:
        after_validations = watching(lambda: counts.append(len(names)))
        experiment.run(exp, tmp_path / "run", console=after_validations)
    assert len(counts) == 3
    assert names[counts[0] :] == []
    # One program for each of the two shapes, one for validation.
    assert len([name for name in names if "step" in name]) == 3
    with compiling() as names:
        run(replaced(exp, "training.seed", 2), tmp_path / "other")
    assert names == []
    ours, theirs = (records(tmp_path / name)[0] for name in ("run", "other"))
    assert ours["train_loss"] != theirs["train_loss"]


def test_memory_that_runs_out_while_a_step_runs_is_told(tmp_path, data, monkeypatch):
    """An accelerator finds out after the step was sent off, where it is read."""
    exp = tiny(data, epochs=1)
    job, _ = job_of(exp, tmp_path / "run")
    fetch = jax.device_get

    def short(tree: Any) -> Any:
        if isinstance(tree, list) and isinstance(tree[0], steps.Metrics):
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory")
        return fetch(tree)

    monkeypatch.setattr(loop.jax, "device_get", short)
    rows, S, T = device_memory.largest_batches(job.plan)[0]
    told = f"a batch of {rows} pairs of {S} and {T} tokens does not fit"
    with pytest.raises(UserError, match=told):
        run(exp, tmp_path / "run")
    assert told in (tmp_path / "run" / "train.log").read_text().splitlines()[-1]


def test_figures_that_are_read_later_are_not_lost(tmp_path, data, whole, monkeypatch):
    monkeypatch.setattr("kvnmt.training.steps.together", lambda seconds: 3)
    exp = tiny(data, epochs=3)
    run(exp, tmp_path / "run")
    check_same_run(exp, tmp_path / "run", whole)


def test_a_signal_waits_for_about_a_second_of_steps():
    assert together(0.0) == 0 and together(0.002) == FETCH
    assert (together(0.1), together(0.2), together(12.2)) == (10, 5, 2)


def test_figures_are_of_real_tokens(tmp_path, data):
    """And the time of before counts."""
    exp = tiny(data, epochs=2)
    run(exp, tmp_path / "run")
    job, _ = job_and_draw(exp, tmp_path / "run")
    batches = BatchAt(job.corpora.train, job.plan, exp.training.seed)
    of_epoch = [batches(step).target for step in range(EPOCH)]
    real = sum(int((target >= 0).sum()) for target in of_epoch)
    padding = 1 - real / sum(target.size for target in of_epoch)
    first, last = records(tmp_path / "run")
    np.testing.assert_allclose(first["padding"], padding, rtol=1e-6)
    progress = manifests.read(tmp_path / "run/checkpoints" / str(2 * EPOCH)).progress
    # Steps whose program is compiled are not timed.
    shapes = {target.shape for target in of_epoch}
    assert len(shapes) == 1
    timed = 2 * real - int((of_epoch[0] >= 0).sum())
    assert progress["tokens"] == timed
    more = run(tiny(data, epochs=3), tmp_path / "run", resume=True)
    assert more.minutes * 60 >= progress["elapsed"] > 0


def test_losses_are_nats_per_real_token(tmp_path):
    """An epoch that only looks sees what validation sees, and so does a slow sum."""
    data = toy_data(tmp_path / "text", train=21)
    data = dataclasses.replace(data, valid_source=data.source, valid_target=data.target)
    exp = tiny(data, epochs=1)

    def look(_):
        words = load_corpora(data).vocabularies
        model = assembly.build(exp.model, len(words.source), len(words.target))
        evaluate = make_eval_step(model)

        def step(state, source, target):
            sums = evaluate(state.params, source, target)
            made = steps.Metrics(sums, sums.nats, False)
            return state.replace(step=state.step + 1), made

        return jax.jit(step)

    fit_with(exp, tmp_path / "run", step=look)
    (record,) = records(tmp_path / "run")
    np.testing.assert_allclose(record["train_loss"], record["valid_loss"], rtol=1e-5)
    found = load_run(tmp_path / "run")
    lines = data.source.read_text().split("\n")[:-1]
    source = [with_end(found.vocabularies.source.encode(line)) for line in lines]
    target = [with_end(found.vocabularies.target.encode(x.upper())) for x in lines]
    forward = jax.jit(found.model.forward)
    logits = forward(found.params, pad(source, 21, 8), pad(target, 21, 8)).logits
    gains = jax.device_get(jax.nn.log_softmax(logits))
    words = ((i, t, w) for i, ids in enumerate(target) for t, w in enumerate(ids))
    nats = -sum(gains[place] for place in words)
    expected = nats / sum(map(len, target))
    np.testing.assert_allclose(record["valid_loss"], expected, rtol=1e-5)


def test_validation_bleu_is_that_of_greedy_translations(base):
    found = load_run(trained(base))
    data = found.experiment.data
    lines, references = (
        path.read_text().split("\n")[:-1]
        for path in (data.valid_source, data.valid_target)
    )
    ours = translate_lines(found, lines, SearchConfig(beam=1))
    score = corpus_bleu(ours, references, tokenize="none").score
    best = max(records(trained(base)), key=lambda record: record["valid_bleu"])
    np.testing.assert_allclose(score, best["valid_bleu"], rtol=1e-6)
    kept = trained(base) / "validations" / f"{best['step']}.txt"
    assert kept.read_text().split("\n") == [*ours, ""]


def test_a_file_is_told_how_far_a_training_is(tmp_path, data, monkeypatch):
    """And nothing of it before minutes are over."""

    def lines(name: str) -> list[str]:
        said = io.StringIO()
        exp = tiny(data, epochs=2)
        experiment.run(exp, tmp_path / name, console=Console(file=said))
        return [line for line in said.getvalue().splitlines() if line[:5] == "step "]

    assert not lines("quick")
    monkeypatch.setattr(console, "EVERY", 0)
    first, second, *_, last = lines("slow")
    assert re.fullmatch(r"step 1 of 8  loss \d.*% padding  compiling", first)
    assert re.fullmatch(r"step \d of 8  loss \d.*% padding  .* 0:0\d:\d\d left", second)
    assert last.startswith("step 8 of 8  loss ") and last.endswith("  0:00:00 left")


def test_what_is_frozen_is_what_the_rest_learns_beside(tmp_path):
    """The running mean of it, which translates; and a stop changes nothing of that.

    Nor of an array without entries, which a tied model has: it is in no checkpoint.
    """
    data = toy_data(tmp_path / "text", vocabulary="bpe", subwords=20, joint=True)

    def tied(**training: Any) -> Experiment:
        return replaced(tiny(data, ema=0.9, **training), "model.tie", "all")

    exp = tied(epochs=3, frozen=("encoder",))
    run(tied(epochs=1), tmp_path / "whole")
    assert not load_run(tmp_path / "whole").params.source_embedding.size
    before = load_run(tmp_path / "whole").params.encoder
    shutil.copytree(tmp_path / "whole", tmp_path / "parts")
    run(exp, tmp_path / "whole", resume=True)
    for epochs in (2, 3):
        run(replaced(exp, "training.epochs", epochs), tmp_path / "parts", resume=True)
    state, _ = everything(tmp_path / "whole", exp)
    other, _ = everything(tmp_path / "parts", exp)
    jax.tree.map(np.testing.assert_array_equal, state, other)
    for params in (state.params, state.mean):
        jax.tree.map(np.testing.assert_array_equal, params.encoder, before)
