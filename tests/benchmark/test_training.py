# SPDX-License-Identifier: Apache-2.0
"""Figures of training follow from what was timed."""

import dataclasses

import numpy as np

from kvnmt import devices
from kvnmt.benchmark.config import BenchmarkConfig
from kvnmt.benchmark.rounds import Lane, Spread
from kvnmt.benchmark.training import (
    CompiledSystem,
    Split,
    compile_system,
    flops_of,
    random_batch,
    training_rows,
)
from kvnmt.data.batches import Batch
from kvnmt.data.vocabulary import EOS, PAD
from kvnmt.model.config import ModelConfig

SMALL = BenchmarkConfig(
    model=ModelConfig(embedding=4, encoder=4, state=4),
    batch_size=8,
    source_length=4,
    target_length=3,
    vocabulary=11,
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


def test_a_batch_of_one_has_the_middle_length():
    for seed in (1, 2):
        config = BenchmarkConfig(batch_size=1, source_length=20, fill=0.75, seed=seed)
        assert np.sum(random_batch(config).source != PAD) == 15


def test_batches_are_the_same_for_the_same_seed():
    some, same, other = (
        random_batch(dataclasses.replace(SMALL, seed=seed)) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(some.source, same.source)
    assert np.any(some.target != other.target) or np.any(some.source != other.source)


def test_figures_of_made_up_times():
    batch = Batch(np.array([[5, 0, PAD], [4, 4, 0]]), np.array([[5, 0], [0, PAD]]))
    lane = Lane(lambda state: state)
    systems = [
        CompiledSystem("a", 7, None, 1.5, flops=600.0, lanes=(lane,) * 3),
        CompiledSystem("b", 9, 2**20, 2.5, flops=800.0, lanes=(lane,)),
    ]
    times = [
        [[3.0, 4.0, 5.0], [2.0, 3.0, 3.5], [1.0, 0.5, 1.0]],
        [[6.0, 2.0, 5.0]],
    ]
    a, b = training_rows(systems, times, batch, peak=400.0)
    assert a.step_seconds == Spread(3.5, 4.0, 4.5)
    assert a.source_tokens_per_second == Spread(5 / 4.5, 5 / 4, 5 / 3.5)
    assert a.target_tokens_per_second == Spread(3 / 4.5, 3 / 4, 3 / 3.5)
    assert a.split == Split(forward=1.0, backward=2.5, optimizer=1.0)
    assert a.share == 600 / 4 / 400
    assert b.share == 800 / 5 / 400
    assert b.split is None
    assert a.relative == Spread(1, 1, 1)
    assert b.relative == Spread(0.75, 1.0, 1.5)  # of 0.5, 2 and 1: round by round


def test_parts_of_a_step_compute_what_the_step_computes():
    arrays = devices.split_rows(random_batch(SMALL), devices.data_mesh())
    compiled = compile_system(SMALL, "rnnsearch-star", arrays)
    step, gradient, forward = compiled.lanes
    total, norm = gradient.run(None)
    assert total == forward.run(None)
    _, metrics = step.run(step.state)
    np.testing.assert_allclose(metrics.loss.total, total, rtol=1e-6)
    np.testing.assert_allclose(metrics.gradient_norm, norm, rtol=1e-6)


def test_what_is_computed_again_is_no_work():
    plain = flops_of(SMALL, "kvmematt-r2")
    for less in ({"remat": 1}, {"residuals": "vectors"}):
        assert flops_of(dataclasses.replace(SMALL, **less), "kvmematt-r2") == plain
    assert flops_of(dataclasses.replace(SMALL, batch_size=16), "kvmematt-r2") > plain
    assert flops_of(SMALL, "kvmematt-r1") < plain
