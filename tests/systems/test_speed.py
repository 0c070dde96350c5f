# SPDX-License-Identifier: Apache-2.0
"""The benchmark counts what it says it counts."""

import dataclasses
import json
import math

import jax
import numpy as np
import pytest

from kvnmt import cli, models
from kvnmt.data.vocabulary import EOS, PAD
from kvnmt.errors import UserError
from kvnmt.model_config import ModelConfig
from kvnmt.systems import speed as benchmark
from kvnmt.systems.named import system
from kvnmt.systems.speed import (
    BenchmarkConfig,
    CompiledStep,
    Row,
    random_batch,
    rows_of,
    time_steps,
)

TINY = BenchmarkConfig(
    systems=("rnnsearch-star", "kvmematt-r1"),
    model=ModelConfig(embedding=4, encoder=3, state=5),
    batch_size=8,
    source_length=4,
    target_length=3,
    vocabulary=11,
    repeats=3,
)
FLAGS = (
    "--systems rnnsearch-star kvmematt-r1 --model.embedding 4 --model.encoder 3 "
    "--model.state 5 --batch-size 8 --source-length 4 --target-length 3 "
    "--vocabulary 11 --repeats 3 --json"
)


def test_batches_are_filled_as_asked():
    config = BenchmarkConfig(batch_size=400, source_length=40, target_length=20)
    for fill in (0.6, 0.85, 1.0):
        batch = random_batch(dataclasses.replace(config, fill=fill))
        for side, length in zip(batch, (40, 20)):
            assert side.shape == (400, length)
            assert abs(np.mean(side != PAD) - fill) < 0.02
            sizes = np.sum(side != PAD, axis=1)
            assert sizes.min() >= round((2 * fill - 1) * length)
            assert np.all(side[np.arange(400), sizes - 1] == EOS)
            assert np.sum(side == EOS) == 400
            assert side.max() < config.vocabulary


def test_batches_are_the_same_for_the_same_seed():
    some, same, other = (
        random_batch(dataclasses.replace(TINY, seed=seed)) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(some.source, same.source)
    assert np.any(some.target != other.target) or np.any(some.source != other.source)


def check_rows(rows: list[Row]) -> None:
    assert [row.system for row in rows] == list(TINY.systems)
    assert rows[0].relative == 1.0
    tokens = np.sum(random_batch(TINY).target != PAD)
    for row in rows:
        model = models.build(system(row.system).model(TINY.model), 11, 11)
        shapes = jax.eval_shape(model.init, jax.random.key(0))
        assert row.parameters == models.count_parameters(shapes)
        assert row.compile_seconds > row.step_seconds > 0
        assert math.isclose(row.tokens_per_second * row.step_seconds, tokens)
        speed = row.tokens_per_second / rows[0].tokens_per_second
        assert math.isclose(row.relative, speed)
        if row.memory_bytes is not None:  # parameters and Adam's moments at least
            assert row.memory_bytes > 3 * 4 * row.parameters


def test_the_command_prints_a_json_line_per_system(capsys):
    cli.main(["benchmark", *FLAGS.split()])
    lines = capsys.readouterr().out.splitlines()
    plain = [json.loads(line) for line in lines]
    assert all(tuple(row) == Row._fields for row in plain)
    check_rows([Row(**row) for row in plain])


@pytest.mark.parametrize("memory", [3 * 2**20, None])
def test_people_get_a_table(capsys, monkeypatch, memory):
    rows = [
        Row("rnnsearch-star", 1234567, 12.34, 0.0567, 8910.0, 1.0, memory),
        Row("kvmematt-r1", 7654321, 1.0, 0.1, 4000.0, 0.45, memory),
    ]
    monkeypatch.setattr(benchmark, "measure", lambda config, advance: rows)
    cli.main(["benchmark", "--batch-size", "16"])
    out = capsys.readouterr().out
    parts = "1,234,567 12.3 56.7 8,910 1.00 7,654,321 0.45 batch 16".split()
    for part in (*parts, "x rnnsearch-star", "target tokens/s", "8 x "):
        assert part in out
    last = out.rstrip().split("\n")[-1].split()[-1]
    assert last == ("-" if memory is None else "3")


def test_speed_is_the_median_of_alternating_steps():
    """By a clock that jumps; the first two rounds of each do not count."""
    durations = {"a": [90, 90, 5, 1, 3], "b": [90, 90, 2, 8, 4]}
    order: list[str] = []
    now = 0.0

    def step_of(name: str) -> CompiledStep:
        def run(state, *arrays):
            nonlocal now
            assert arrays == ("source", "target")
            order.append(name)
            now += durations[name][state]
            return state + 1, None

        return CompiledStep(name, 7, 1.5, None, run, state=0)

    steps, messages = [step_of("a"), step_of("b")], []
    times = time_steps(
        steps, ("source", "target"), 3, advance=messages.append, clock=lambda: now
    )
    assert times == [[5, 1, 3], [2, 8, 4]]
    assert order == ["a", "b"] * 5
    assert messages[0] == "round 0 of 3" and messages[-1] == "round 3 of 3"
    rows = rows_of(steps, times, tokens=12)
    assert [row.step_seconds for row in rows] == [3, 4]
    assert [row.relative for row in rows] == [1.0, 0.75]
    assert [row.tokens_per_second for row in rows] == [4, 3]


@pytest.mark.parametrize(
    "changes",
    [
        {"systems": ()},
        {"systems": ("rnnsearch-stra",)},
        {"batch_size": 12},
        {"repeats": 0},
        {"target_length": 0},
        {"vocabulary": 2},
        {"fill": 0.0},
        {"model": ModelConfig(encoder=0)},
    ],
)
def test_what_cannot_be_measured_is_told(changes):
    with pytest.raises(UserError):
        benchmark.measure(dataclasses.replace(TINY, **changes))
