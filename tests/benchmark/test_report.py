# SPDX-License-Identifier: Apache-2.0
"""The benchmark counts what it says it counts."""

import contextlib
import dataclasses
import io
import json
import math

import jax
import numpy as np
import pytest

from kvnmt import cli
from kvnmt.attention import kv_memory
from kvnmt.benchmark import decoding, report
from kvnmt.benchmark.config import BenchmarkConfig, check_used
from kvnmt.benchmark.training import random_batch
from kvnmt.data.vocabulary import EOS, PAD
from kvnmt.errors import UserError
from kvnmt.layers import Blocks
from kvnmt.model import assembly
from kvnmt.model.config import ModelConfig
from kvnmt.systems.named import system

TINY = BenchmarkConfig(
    systems=("rnnsearch-star", "kvmematt-r1"),
    model=ModelConfig(embedding=4, encoder=3, state=5),
    batch_size=8,
    source_length=4,
    target_length=3,
    vocabulary=11,
    repeats=3,
    split=False,
    decode=True,
    beams=(2,),
    batches=(1, 4),
)
FLAGS = (
    "--systems rnnsearch-star kvmematt-r1 --model.embedding 4 --model.encoder 3 "
    "--model.state 5 --batch-size 8 --source-length 4 --target-length 3 "
    "--vocabulary 11 --repeats 3 --no-split --decode --beams 2 --batches 1 4 --json"
)


@pytest.fixture(scope="module", name="measured")
def _measured() -> dict:
    """One small run of the command."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        cli.main(["benchmark", *FLAGS.split()])
    return json.loads(out.getvalue())


def test_figures_of_training_agree(measured):
    rows, batch = measured["training"], random_batch(TINY)
    assert [row["system"] for row in rows] == list(TINY.systems)
    for row in rows:
        model = assembly.build(system(row["system"]).model(TINY.model), 11, 11)
        shapes = jax.eval_shape(model.init, jax.random.key(0))
        assert row["parameters"] == assembly.count_parameters(shapes)
        seconds = row["step_seconds"]["median"]
        assert row["compile_seconds"] > 0 and seconds > 0
        for side, ids in batch._asdict().items():
            speed = row[f"{side}_tokens_per_second"]["median"]
            assert math.isclose(speed * seconds, np.sum(ids != PAD))
        share = row["flops"] / seconds / measured["peak"]
        assert math.isclose(row["share"], share)
        if row["memory_bytes"] is not None:  # parameters and Adam's moments at least
            assert row["memory_bytes"] > 3 * 4 * row["parameters"]
    assert rows[0]["relative"] == {"low": 1.0, "median": 1.0, "high": 1.0}
    assert rows[1]["flops"] > rows[0]["flops"]


def test_figures_of_decoding_agree(measured):
    rows = measured["decoding"]
    cases = [(row["system"], row["beam"], row["batch"]) for row in rows]
    assert cases == [(name, 2, batch) for name in TINY.systems for batch in (1, 4)]
    for row in rows:
        config = dataclasses.replace(TINY, batch_size=row["batch"])
        words = np.sum(random_batch(config).source > EOS)  # as many as were read
        seconds = row["batch_seconds"]["median"]
        sentences, written = row["sentences_per_second"], row["words_per_second"]
        assert math.isclose(sentences["median"] * seconds, row["batch"])
        assert math.isclose(written["median"] * seconds, words)


def test_candidates_are_what_is_translated_with(monkeypatch):
    """Of the fast search the same is timed as of the exact one."""
    chosen = []
    monkeypatch.setattr(
        decoding, "translate", lambda *_, shortlist: chosen.append(shortlist) or []
    )
    exact = dataclasses.replace(TINY, systems=("rnnsearch-star",))
    decoding.decoders(dataclasses.replace(exact, candidates=6))
    decoding.decoders(exact)
    assert len(chosen) == 4 and chosen[2:] == [None, None]
    for each in chosen[:2]:
        assert each.candidates(np.array([[5]])).words.tolist() == list(range(6))


def test_a_report_is_read_again(measured, tmp_path):
    path = tmp_path / "old.json"
    path.write_text(json.dumps(measured))
    assert report.read(path) == measured
    (row, *_), config = measured["training"], measured["config"]
    none, zero = ({"low": n, "median": n, "high": n} for n in (None, 0))
    damaged = [
        measured | {"training": [row | {"target_tokens_per_second": none}]},
        measured | {"training": [row | {"target_tokens_per_second": zero}]},
        measured | {"yardstick_seconds": zero},
        measured | {"devices": 0, "device": "cpu"},
        measured | {"config": config | {"repeats": "10"}},
        measured | {"training": [{}]},
        measured | {"devices": None, "device": "gpu"},
        *(measured | {"yardstick_size": size} for size in (1024.5, "256", 10**9)),
    ]
    for text in ("", "[]", "{}", "[" * 100_000, *map(json.dumps, damaged)):
        path.write_text(text)
        with pytest.raises(UserError, match="holds no measurement"):
            report.read(path)
    with pytest.raises(UserError, match="cannot be read"):
        report.read(tmp_path / "none.json")


@pytest.mark.parametrize(
    "changes",
    [
        {"systems": ()},
        {"systems": ("rnnsearch-stra",)},
        {"batch_size": 10},
        {"repeats": 0},
        {"model": ModelConfig(encoder=0)},
        {"model": ModelConfig(layers=2)},  # which is each system's own
        {"model": ModelConfig(attention=kv_memory.Options())},
        {"beams": ()},
        {"batches": (1, 0)},
        {"train": False, "decode": False},
        {"candidates": 4, "decode": False},
        {"candidates": 12},
        {"frozen": ("encodr",)},
        {"decode": True, "beams": tuple(range(1, 18))},  # each would compile anew
    ],
)
def test_what_cannot_be_measured_is_told(changes):
    with pytest.raises(UserError):
        report.measure(dataclasses.replace(TINY, **changes))


def test_what_one_system_uses_is_not_for_nothing():
    """Nor are two options of which each is used by another."""
    blocks = ModelConfig(blocks=Blocks(heads=2))
    both = ("rnnsearch-star", "transformer")
    check_used(BenchmarkConfig(systems=both, remat=8, model=blocks))
    for systems, said in (
        (both[:1], "model.blocks does nothing while model.cell is gru"),
        (both[1:], "remat is of decoders that go from word to word"),
    ):
        with pytest.raises(UserError, match=said):
            check_used(BenchmarkConfig(systems=systems, remat=8, model=blocks))
    adds = ModelConfig(residual=True)
    with pytest.raises(UserError, match="model.residual does nothing"):
        check_used(BenchmarkConfig(systems=both[:1], model=adds))
    normalised = ModelConfig(layer_norm=True)
    check_used(BenchmarkConfig(systems=both, model=normalised))
    with pytest.raises(UserError, match="layer_norm is of GRUs and LSTMs"):
        check_used(BenchmarkConfig(systems=both[1:], model=normalised))
