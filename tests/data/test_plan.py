# SPDX-License-Identifier: Apache-2.0
"""The batch plan: complete, reproducible, and padded to its table."""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvnmt.data import shapes
from kvnmt.data.plan import Epoch, Plan, by_pairs, by_tokens
from tests.data.helpers import batches


def lengths_of(count: int = 203, seed: int = 0, longest: int = 40) -> np.ndarray:
    """Both lengths of pairs; the sides are nearly as long."""
    random = np.random.default_rng(seed)
    source = random.integers(1, longest, count)
    return np.stack([source, source + random.integers(0, 4, count)], axis=1)


PLANS = {
    "pairs": lambda lengths: by_pairs(lengths, 8, 4),
    "narrow windows": lambda lengths: by_pairs(lengths, 7, 4, window=1),
    "one batch": lambda lengths: by_pairs(lengths, 1000, 4),
    "tokens": lambda lengths: by_tokens(lengths, 200, 4),
    "few tokens": lambda lengths: by_tokens(lengths, 1, 3),
    "all tokens": lambda lengths: by_tokens(lengths, 100_000, 5),
    "tokens on eight devices": lambda lengths: by_tokens(lengths, 300, 4, multiple=8),
}
every_plan = pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)


@every_plan
@pytest.mark.parametrize("count", [1, 2, 203])
def test_an_epoch_has_every_pair_once(plan, count):
    made = plan(lengths_of(count))
    for epoch in range(3):
        lines = [planned.lines for planned in batches(made, 1, epoch)]
        assert len(lines) == made.per_epoch
        assert sorted(np.concatenate(lines)) == list(range(count))


@every_plan
def test_every_batch_fits_its_shape(plan):
    lengths = lengths_of()
    made = plan(lengths)
    shapes = {tuple(shape) for shape in made.shapes}
    for planned in batches(made, 1, 0):
        assert tuple(planned.shape) in shapes
        assert (lengths[planned.lines] <= planned.shape).all()
        assert 0 < len(planned.lines) <= planned.rows


@every_plan
def test_a_shape_always_has_as_many_rows(plan):
    seen = set()
    for epoch in range(3):
        made = plan(lengths_of())
        seen |= {(p.rows, *p.shape) for p in batches(made, 1, epoch)}
    assert len(seen) <= len(made.shapes)


@every_plan
def test_a_plan_depends_on_seed_and_epoch_alone(plan):
    def flat(seed: int, epoch: int) -> tuple[int, ...]:
        epoch_batches = batches(plan(lengths_of()), seed, epoch)
        return tuple(np.concatenate([planned.lines for planned in epoch_batches]))

    places = [(seed, epoch) for seed in range(3) for epoch in range(3)]
    plans = {place: flat(*place) for place in places}
    assert len(set(plans.values())) == len(places)
    np.random.seed(5)  # the global generator has no say
    assert {place: flat(*place) for place in places} == plans


def test_early_epochs_pad_the_same_batches_to_fewer_shapes(monkeypatch):
    monkeypatch.setattr(shapes, "COMPILE_COST", 6_000)
    plan = by_pairs(lengths_of(), 8, 6)
    whole, counts = plan.with_all_shapes(), []
    for number in range(12):
        one, other = plan.epoch(1, number), whole.epoch(1, number)
        for name in ("lines", "starts", "order"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        assert plan.real(one) <= whole.real(other)
        for planned in batches(plan, 1, number):
            assert (plan.lengths[planned.lines] <= planned.shape).all()
        counts.append(len(set(one.shapes.tolist())))
    assert counts[0] < counts[5] < counts[-1]
    assert plan.digest() == whole.digest() and plan.order() == whole.order()


def test_a_batch_of_both_longest_sides_fits_though_no_epoch_before_had_one():
    """The two longest pairs, of one source and one target word, seldom meet."""
    lengths = np.array([[1, 1]] * 400 + [[1, 29]] * 9 + [[1, 30], [20, 2]])
    plan = by_pairs(lengths, 2, 3)
    met = 0
    for number in range(150):
        for planned in batches(plan, 1, number):
            longest = plan.lengths[planned.lines].max(axis=0)
            assert (longest <= planned.shape).all()
            met += tuple(longest) == (20, 30)
    assert met


def test_batches_of_pairs_are_full_but_one():
    sizes = [len(p.lines) for p in batches(by_pairs(lengths_of(), 8, 4), 1, 0)]
    assert sorted(sizes) == [3] + [8] * 25


def test_batches_of_a_window_hold_sentences_of_like_length():
    lengths = lengths_of(160)
    longer = lengths.max(axis=1)
    plan = by_pairs(lengths, 8, 4)
    ranges = sorted(
        (longer[p.lines].min(), longer[p.lines].max()) for p in batches(plan, 1, 0)
    )
    for (_, high), (low, _) in itertools.pairwise(ranges):
        assert high <= low


@pytest.mark.parametrize("multiple", [1, 8])
def test_no_batch_has_more_rows_than_there_are_pairs(multiple):
    most = -(-203 // multiple) * multiple
    for plan in (
        by_pairs(lengths_of(), 4096, 4, multiple=multiple),
        by_tokens(lengths_of(), 10**6, 4, multiple=multiple),
    ):
        assert max(planned.rows for planned in batches(plan, 1, 0)) <= most


@given(st.integers(40, 400), st.sampled_from([1, 2, 8]), st.integers(1, 6))
def test_batches_of_tokens_keep_the_budget_and_are_full(tokens, multiple, count):
    plan = by_tokens(lengths_of(), tokens, count, multiple=multiple)
    planned_batches = list(batches(plan, 1, 0))
    for planned in planned_batches:
        assert planned.rows % multiple == 0
        over = planned.rows * planned.shape.max() > tokens
        assert not over or planned.rows == multiple
    # What is left of a shape goes to the next, unless that has fewer rows than this.
    wide = [p for p in planned_batches if len(p.lines) not in plan.rows]
    assert len(wide) <= len(plan.shapes)


@pytest.mark.parametrize("plan", ["pairs", "tokens"])
def test_batches_have_other_members_and_places_every_epoch(plan):
    made = PLANS[plan](np.full((200, 2), 9))
    epochs = [[frozenset(p.lines) for p in batches(made, 1, n)] for n in (0, 1)]
    assert not set(epochs[0]) & set(epochs[1])
    # Of one window: what is long and what is short changes places.
    rising = PLANS[plan](np.repeat(np.arange(1, 151)[:, None], 2, axis=1))
    assert not rising.window or rising.window >= 150
    first, second = (
        [int(p.lines[0]) // 30 for p in batches(rising, 1, n)] for n in (0, 1)
    )
    assert first != second and sorted(first) not in (first, second, first[::-1])


@every_plan
def test_the_share_of_tokens_is_that_of_the_batches(plan):
    lengths = lengths_of()
    made: Plan = plan(lengths)
    planned = list(batches(made, 3, 1))
    positions = sum(p.rows * p.shape.sum() for p in planned)
    share = made.real(made.epoch(3, 1))
    assert share == pytest.approx(lengths.sum() / positions)
    assert 0 < share <= 1


def test_nine_of_ten_positions_hold_a_token():
    """At most 12 shapes, on lengths like those of captions."""
    random = np.random.default_rng(5)
    source = np.exp(random.normal(2.55, 0.32, 30_000)).round().clip(3, 45)
    target = (source * np.exp(random.normal(0.03, 0.13, len(source)))).round()
    lengths = np.stack([source, target.clip(3, 45)], axis=1).astype(np.int32)
    plan = by_tokens(lengths, 4096, 12)
    assert plan.real(plan.epoch(1, 0)) > 0.9


def test_a_few_long_pairs_do_not_make_many_empty_batches():
    lengths = np.array([[5, 5]] * 700 + [[80, 80]] * 10)
    plan = by_tokens(lengths, 4096, 12, multiple=8)
    assert plan.per_epoch == 2
    assert plan.real(plan.epoch(1, 0)) > 0.5


def test_plans_are_told_apart():
    lengths = lengths_of()
    plans = [by_tokens(lengths, 256, 4, multiple=n) for n in (8, 16)]
    plans += [by_tokens(lengths[::-1], 256, 4, multiple=8), by_pairs(lengths, 8, 4)]
    assert len({plan.digest() for plan in plans}) == len(plans)
    assert by_pairs(lengths.astype(np.int32), 8, 4).digest() == plans[-1].digest()
    last = plans[-1]
    assert last.order() == by_pairs(lengths, 8, 4).order()
    assert last.order() != by_pairs(lengths, 8, 4, window=30).order()


def test_a_plan_whose_batches_come_otherwise_is_told_apart(monkeypatch):
    plan, epoch = by_pairs(lengths_of(), 8, 4), Plan.epoch
    before = plan.order()

    def turned(self: Plan, seed: int, number: int) -> Epoch:
        made = epoch(self, seed, number)
        return dataclasses.replace(made, order=made.order[::-1])

    monkeypatch.setattr(Plan, "epoch", turned)
    assert plan.order() != before
