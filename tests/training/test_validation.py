# SPDX-License-Identifier: Apache-2.0
"""Validation needs no more memory than training, and batches do not show in it."""

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from kvnmt import devices
from kvnmt.errors import UserError
from kvnmt.inference.config import SearchConfig, check_search
from kvnmt.inference.translate import translate
from kvnmt.metrics.bleu import corpus_chrf
from kvnmt.model import assembly
from kvnmt.systems.named import system
from kvnmt.training import device_memory, validation
from kvnmt.training.ahead import StepAhead
from kvnmt.training.config import TrainingConfig
from kvnmt.training.loop import fit
from kvnmt.training.records import score
from kvnmt.training.validation import make_eval_step, searching, validation_loss
from tests.helpers import SIZES, replaced, tiny, toy_data
from tests.training.jobs import compiling, job_of, with_lower

BIG = 2**16  # words of an output layer that is never run


def test_what_devices_share_is_put_together_by_one_program():
    """A validation gathers the arrays each time, and compiles nothing for it again."""
    mesh = devices.data_mesh(2)
    by_words = NamedSharding(mesh, PartitionSpec(None, "model"))
    array = np.arange(6.0).reshape(3, 2)
    for turn in range(2):
        with compiling() as names:
            whole = devices.gather(jax.device_put(array, by_words), mesh)
        assert whole.sharding.is_fully_replicated
        np.testing.assert_array_equal(whole, array)
        assert not (turn and names)


@pytest.mark.parametrize(("tokenize", "whole"), [("13a", True), ("none", False)])
def test_bleu_is_of_words_as_the_config_cuts_them(
    tmp_path, monkeypatch, tokenize, whole
):
    job, state = job_of(
        tiny(toy_data(tmp_path / "text"), bleu_tokenize=tokenize), tmp_path / "run"
    )
    corpora = job.corpora._replace(references=["a b c d e."])
    monkeypatch.setattr(validation, "_translations", lambda *_: ["a b c d e ."])
    measured = job.validate(state.served, corpora=corpora)
    assert (measured.figures["valid_bleu"] > 99) == whole


@pytest.mark.parametrize(
    ("choices", "rows"),
    [
        ({"batch_size": 32}, {32}),
        ({"batch_size": 32, "accumulate": 4}, {8}),
        ({"batch_tokens": 220}, {24}),
        ({"batch_tokens": 220, "accumulate": 2}, {8}),
    ],
    ids=str,
)
def test_batches_of_validation_are_no_larger_than_parts_of_training(
    tmp_path, choices, rows
):
    """Rows are a multiple of eight; the loss is that of all at once."""
    data = toy_data(tmp_path / "text", train=64, valid=70)
    job, state = job_of(tiny(data, **choices), tmp_path / "run")
    shapes = []

    def looking(params, source, target):
        shapes.append((len(source), source.shape[1], target.shape[1]))
        return job.eval_step(params, source, target)

    params, valid = state.served, job.corpora.valid
    loss = validation_loss(looking, params, job.valid_plan, valid, job.mesh)
    assert {shape[0] for shape in shapes} == rows
    assert len(shapes) >= 70 // max(rows)
    if tokens := choices.get("batch_tokens"):
        most = tokens // choices.get("accumulate", 1)
        assert max(n * max(S, T) for n, S, T in shapes) <= most
    whole, _ = job_of(tiny(data, batch_size=72), tmp_path / "run")
    at_once = validation_loss(
        whole.eval_step, params, whole.valid_plan, valid, job.mesh
    )
    np.testing.assert_allclose(loss, at_once, rtol=1e-6)


@pytest.mark.parametrize(
    ("choices", "rows", "tokens"),
    [
        ({}, 64, 4096),
        ({"batch_size": 512, "accumulate": 2}, 64, 4096),
        ({"batch_size": 32, "accumulate": 4}, 8, 4096),
        ({"batch_tokens": 220, "accumulate": 2}, 64, 110),
        ({"batch_tokens": 2**15}, 64, 4096),
        ({"batch_size": 120, "valid_beam": 4}, 30, 4096),
        ({"batch_size": 2, "valid_beam": 4}, 1, 4096),
        ({"batch_tokens": 220, "valid_beam": 2}, 64, 110),
    ],
    ids=str,
)
def test_so_are_those_of_its_search(choices, rows, tokens):
    search = searching(TrainingConfig(**choices))
    assert (search.batch_size, search.batch_tokens) == (rows, tokens)
    assert search.beam == choices.get("valid_beam", 1)


def test_each_device_searches_for_as_much_as_one():
    """But for no more than its part of a batch in training."""

    def size(local: int, processes: int, **choices: int) -> tuple[int, int]:
        search = searching(TrainingConfig(**choices), SearchConfig(), local, processes)
        return search.batch_size, search.batch_tokens

    assert size(8, 1, batch_size=1024) == (512, 8 * 4096)
    assert size(8, 2, batch_size=512, accumulate=2) == (128, 8 * 4096)
    assert size(8, 1, batch_tokens=2**15) == (512, 2**15)
    assert size(8, 2, batch_tokens=2**15) == (512, 2**14)
    most = size(200, 1, batch_tokens=2**24)
    check_search(SearchConfig(batch_size=most[0], batch_tokens=most[1]))


def test_what_translations_may_be_counts_in_validation():
    """How long they are, and what they hold; not how widely is searched."""
    wide = SearchConfig(beam=5, nbest=3, coverage=1.0, diversity=1.0)
    assert searching(TrainingConfig(), wide) == searching(TrainingConfig())
    drawn = SearchConfig(sample=True, top_k=3, top_p=0.5)
    assert searching(TrainingConfig(), drawn) == searching(TrainingConfig())
    free = {"length_ratio": 9.0, "min_length": 2, "unknown": False}
    assert searching(TrainingConfig(), replace(wide, **free)) == replace(
        searching(TrainingConfig()), **free
    )


def test_validation_translates_as_the_run_does(tmp_path):
    """Here nothing, since a word and EOS are too many."""
    exp = tiny(toy_data(tmp_path / "text"))
    figures = []
    for length in (None, 1):
        search = replace(exp.search, max_length=length)
        job, state = job_of(replace(exp, search=search), tmp_path / f"run-{length}")
        figures.append(job.validate(state.served).figures)
    assert figures[0]["valid_loss"] == figures[1]["valid_loss"]
    assert figures[0]["valid_bleu"] != figures[1]["valid_bleu"]


def test_validation_may_search_with_a_beam(tmp_path):
    """It then says what the run says with that beam."""
    exp = tiny(toy_data(tmp_path / "text"))
    said = []
    for beam in (1, 4):
        training = replace(exp.training, valid_beam=beam)
        job, state = job_of(replace(exp, training=training), tmp_path / f"run-{beam}")
        said.append(job.validate(state.served).translations)
        words, search = job.corpora.vocabularies, replace(exp.search, beam=beam)
        model = assembly.build(exp.model, len(words.source), len(words.target))
        source = [ids[:-1].tolist() for ids in job.corpora.valid.source]
        found = translate(model, state.served, source, search)
        assert said[-1] == [words.target.decode(one.ids) for one in found]
    assert said[0] != said[1]


def test_the_metric_is_among_the_figures(tmp_path):
    """And so is BLEU; the translations are those that both were measured on."""
    exp = replaced(tiny(toy_data(tmp_path / "text")), "training.metric", "chrf")
    job, state = job_of(exp, tmp_path / "run")
    figures, translations = job.validate(state.served)
    assert list(figures) == ["valid_loss", "valid_bleu", "valid_chrf"]
    assert (
        figures["valid_chrf"] == corpus_chrf(translations, job.corpora.references).score
    )
    assert [score(name, figures)[0] for name in ("bleu", "chrf", "loss")] == [
        figures["valid_bleu"],
        figures["valid_chrf"],
        -figures["valid_loss"],
    ]
    assert score("chrf", {"valid_loss": 2.0}) == (-2.0, "valid_loss")


def test_where_no_word_is_right_yet_the_lower_loss_is_better():
    losses, bleu = (9.0, 8.5, 8.0, 7.9), (0.0, 0.0, 0.0, 0.01)
    scores = [
        score("bleu", {"valid_loss": loss, "valid_bleu": found})[0]
        for loss, found in zip(losses, bleu)
    ]
    assert scores == sorted(set(scores))


def test_logits_of_validation_never_stand_whole():
    model = assembly.build(system("rnnsearch-star").model(SIZES), 10, BIG)
    params = jax.eval_shape(model.init, jax.random.key(0))
    words = jax.ShapeDtypeStruct((128, 64), np.int32)
    program = make_eval_step(model).lower(params, words, words).compile()
    needed = device_memory.program_bytes(program)
    assert needed is not None and needed < 128 * 64 * BIG * 4 * 0.75


def test_validation_that_does_not_fit_is_told_before_training(tmp_path, monkeypatch):
    """Its sentences may be longest; the optimiser's arrays stay on the device."""
    data = toy_data(tmp_path / "text")
    long = " ".join(["a"] * 3000)
    for path in (data.valid_source, data.valid_target):
        path.write_text(f"{long}\n")
    job, state = job_of(tiny(data), tmp_path / "run")
    with StepAhead(job.eval_step, state.served, job.mesh) as step:
        need = device_memory.check(step, job.valid_plan, None)
    assert need is not None
    moments = 2 * sum(leaf.nbytes for leaf in jax.tree.leaves(state.params))
    monkeypatch.setattr(device_memory, "available", lambda: need.bytes + moments)
    (tmp_path / "run").mkdir()
    told = "largest batch of validation: 8 pairs of 3001"  # as on eight devices

    def never(*inputs: Any) -> Any:
        raise AssertionError("a step was made")

    def draw() -> Any:
        return state.params

    with pytest.raises(UserError, match=told):
        fit(replace(job, train_step=with_lower(never, job.train_step)), draw)
