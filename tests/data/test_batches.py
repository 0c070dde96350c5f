# SPDX-License-Identifier: Apache-2.0
"""The batch plan: complete, reproducible, cut anywhere, and padded to its table."""

import itertools
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvnmt.data.batches import (
    Encoded,
    batches_per_epoch,
    choose_edges,
    from_step,
    make_batch,
    pad,
    plan_epoch,
    with_end,
)
from kvnmt.data.vocabulary import EOS, PAD

LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=12)


def wasted(lengths, edges) -> float:
    """Padded positions over all sentences, infinite if one does not fit."""
    fits = ([edge for edge in edges if edge >= n] for n in lengths)
    return sum(min(some, default=np.inf) for some in fits) - sum(lengths)


def corpus(count: int = 23, seed: int = 0) -> Encoded:
    """Sentences of random lengths; the first words of both sides number the pair."""
    random = np.random.default_rng(seed)

    def side(offset: int) -> list[np.ndarray]:
        sizes = random.integers(1, 8, count)
        return [with_end([offset + i, *[5] * n]) for i, n in enumerate(sizes)]

    return Encoded(side(100), side(500))


@given(LENGTHS, st.integers(1, 5))
def test_no_other_edges_waste_less(lengths, count):
    edges = choose_edges(np.array(lengths), count)
    others = itertools.combinations(sorted(set(lengths)), min(count, len(set(lengths))))
    assert wasted(lengths, edges) == min(wasted(lengths, other) for other in others)


@given(LENGTHS, st.integers(1, 5))
def test_edges_rise_to_the_longest(lengths, count):
    edges = choose_edges(np.array(lengths), count)
    assert len(edges) == min(count, len(set(lengths)))
    assert list(edges) == sorted(set(edges))
    assert edges[-1] == max(lengths)


@pytest.mark.parametrize("size", [1, 4, 7, 23, 50])
@pytest.mark.parametrize("window", [1, 2, 20])
def test_an_epoch_has_every_pair_once(size, window):
    lengths = corpus().lengths
    plan = plan_epoch(1, 0, lengths, size, window=window)
    assert sorted(np.concatenate(plan)) == list(range(len(lengths)))
    assert len(plan) == batches_per_epoch(len(lengths), size)
    assert sorted(map(len, plan))[1:] == [size] * (len(plan) - 1)


def test_a_plan_depends_on_seed_and_epoch_alone():
    lengths = corpus(200).lengths

    def flat(seed: int, epoch: int) -> tuple[int, ...]:
        return tuple(np.concatenate(plan_epoch(seed, epoch, lengths, 8)))

    places = [(seed, epoch) for seed in range(3) for epoch in range(3)]
    plans = {place: flat(*place) for place in places}
    assert len(set(plans.values())) == len(places)
    np.random.seed(5)  # the global generator has no say
    assert {place: flat(*place) for place in places} == plans


def test_batches_of_a_window_hold_sentences_of_like_length():
    lengths = np.random.default_rng(3).integers(1, 50, 160)
    plan = plan_epoch(1, 0, lengths, 8, window=20)
    ranges = sorted((lengths[lines].min(), lengths[lines].max()) for lines in plan)
    for (_, high), (low, _) in itertools.pairwise(ranges):
        assert high <= low


def test_batches_have_other_members_every_epoch():
    lengths = np.ones(80, np.int64)
    first, second = (
        {frozenset(lines.tolist()) for lines in plan_epoch(1, epoch, lengths, 8)}
        for epoch in (0, 1)
    )
    assert not first & second


def test_batches_come_in_no_order_of_length():
    lengths = np.arange(1, 161)
    first = [int(lines[0]) for lines in plan_epoch(1, 0, lengths, 8)]
    assert first != sorted(first)
    assert first != sorted(first, reverse=True)


def test_the_stream_can_be_entered_anywhere():
    pairs, size, edges = corpus(), 5, (4, 6, 9)
    epoch = batches_per_epoch(len(pairs.source), size)
    assert epoch * size > len(pairs.source)  # the last batch is not full
    stream = list(islice(from_step(pairs, 7, size, edges, 0), 3 * epoch))
    for step in range(2 * epoch + 1):
        rest = islice(from_step(pairs, 7, size, edges, step), 3 * epoch - step)
        for batch, same in zip(rest, stream[step:], strict=True):
            np.testing.assert_array_equal(batch.source, same.source)
            np.testing.assert_array_equal(batch.target, same.target)


def test_the_stream_follows_the_plan():
    pairs, size, edges = corpus(), 5, (9,)
    stream = from_step(pairs, 7, size, edges, 0)
    for epoch in range(2):
        for lines in plan_epoch(7, epoch, pairs.lengths, size):
            batch = next(stream)
            full = batch.source[:, 0] >= 0
            assert list(batch.source[full, 0] - 100) == list(lines)
            assert list(batch.target[full, 0] - 500) == list(lines)


def test_a_batch_is_padded_to_a_shape_of_the_table():
    pairs = corpus(60)
    edges = choose_edges(pairs.lengths, 3)
    assert len(edges) == 3
    shapes = set()
    for lines in plan_epoch(1, 0, pairs.lengths, 8):
        batch = make_batch(pairs, lines, 8, edges)
        assert batch.source.shape == batch.target.shape
        longest = pairs.lengths[lines].max()
        assert batch.source.shape[1] == min(e for e in edges if e >= longest)
        shapes.add(batch.source.shape)
    assert shapes == {(8, edge) for edge in edges}


def test_a_batch_holds_its_pairs_and_padding():
    pairs = Encoded(
        [with_end([5]), with_end([6, 7, 8]), with_end([])],
        [with_end([9, 9]), with_end([4]), with_end([3])],
    )
    batch = make_batch(pairs, np.array([2, 0, 1]), 4, (3, 5, 9))
    assert batch.source.dtype == batch.target.dtype == np.int32
    assert EOS == 0 and PAD == -1
    assert batch.source.tolist() == [
        [0, -1, -1, -1, -1],
        [5, 0, -1, -1, -1],
        [6, 7, 8, 0, -1],
        [-1, -1, -1, -1, -1],
    ]
    assert batch.target.tolist() == [
        [3, 0, -1, -1, -1],
        [9, 9, 0, -1, -1],
        [4, 0, -1, -1, -1],
        [-1, -1, -1, -1, -1],
    ]


@pytest.mark.parametrize(("source", "target"), [(3, 1), (1, 3), (3, 3)])
def test_the_longer_side_decides_the_shape(source, target):
    pairs = Encoded([with_end([5] * source)], [with_end([5] * target)])
    batch = make_batch(pairs, np.array([0]), 1, (2, 4, 9))
    assert batch.source.shape == batch.target.shape == (1, 4)


def test_lengths_are_those_of_the_longer_side():
    pairs = Encoded([with_end([5]), with_end([6, 7])], [with_end([9, 9]), with_end([])])
    assert pairs.lengths.tolist() == [3, 3]


def test_nothing_is_packed_into_empty_rows():
    assert pad([], 2, 3).tolist() == [[-1] * 3] * 2
