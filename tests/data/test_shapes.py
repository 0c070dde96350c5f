# SPDX-License-Identifier: Apache-2.0
"""The table of padded shapes: few, holding every pair, wasting little."""

import itertools

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kvnmt.data import shapes as shapes_module
from kvnmt.data.shapes import (
    MOVES,
    NEVER,
    choose_edges,
    choose_shapes,
    first_epochs,
    fit,
)

LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=12)
PAIRS = st.lists(st.tuples(*[st.integers(1, 30)] * 2), min_size=1, max_size=60)


def wasted(lengths, edges) -> float:
    """Padded positions over all sentences, infinite if one does not fit."""
    fits = ([edge for edge in edges if edge >= n] for n in lengths)
    return sum(min(some, default=np.inf) for some in fits) - sum(lengths)


def padded(lengths, shapes) -> float:
    """Positions in the smallest shapes that hold each pair, infinite if none does."""
    holds = [[s for s in shapes if all(pair <= s)] for pair in lengths]
    return sum(min(map(sum, some), default=np.inf) for some in holds)


def slow_first_epochs(lengths, rows, shapes) -> list[int]:
    """Leaves one shape out after the other, counting what is padded anew each time."""
    first, left = [0] * len(shapes), [*range(len(shapes))]
    while len(left) > 1:
        least = padded(lengths, shapes[left])
        others = {i: [j for j in left if j != i] for i in left}
        more = {
            i: rows * (padded(lengths, shapes[rest]) - least)
            for i, rest in others.items()
        }
        i = min(left, key=lambda i: more[i])
        if more[i] > shapes_module.COMPILE_COST:
            break
        first[i] = shapes_module.COMPILE_COST // more[i] if more[i] else NEVER
        left.remove(i)
    return first


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


@given(PAIRS, st.integers(1, 6))
def test_every_pair_fits_and_shapes_are_better_than_squares(pairs, count):
    lengths = np.array(pairs)
    shapes = choose_shapes(lengths, count)
    assert 1 <= len(shapes) <= count
    assert (shapes.sum(axis=1)[1:] >= shapes.sum(axis=1)[:-1]).all()
    longer = lengths.max(axis=1)
    squares = np.array([[edge, edge] for edge in choose_edges(longer, count)])
    assert padded(lengths, shapes) <= padded(lengths, squares)


@given(PAIRS, st.integers(1, 6))
def test_the_smallest_shape_that_holds_a_pair_is_found(pairs, count):
    lengths = np.array(pairs)
    shapes = choose_shapes(lengths, count)
    chosen = shapes[fit(lengths, shapes)]
    assert (lengths <= chosen).all()
    assert chosen.sum() == padded(lengths, shapes)


def test_no_single_move_wastes_less():
    lengths = np.random.default_rng(0).integers(1, 40, (60, 2))
    shapes = choose_shapes(lengths, 6)
    least = padded(lengths, shapes)
    for place in np.ndindex(shapes.shape):
        for move in MOVES:
            other = shapes.copy()
            other[place] += move
            assert padded(lengths, other) >= least


def test_uneven_languages_get_uneven_shapes():
    source = np.random.default_rng(1).integers(5, 20, 500)
    shapes = choose_shapes(np.stack([source, 2 * source], axis=1), 4)
    assert (shapes[:, 1] == 2 * shapes[:, 0]).all()


@pytest.mark.parametrize("cells", [20, 6000])
def test_long_texts_are_rounded(cells, monkeypatch):
    monkeypatch.setattr(shapes_module, "CELLS", cells)
    lengths = np.random.default_rng(2).integers(1, 60, (400, 2))
    shapes = choose_shapes(lengths, 5)
    assert len(shapes) <= 5
    assert (shapes <= lengths.max(axis=0)).all()
    assert (lengths <= shapes[fit(lengths, shapes)]).all()


def test_long_pairs_need_no_table():
    lengths = np.array([[3, 4], [9000, 8000], [3, 4], [50, 9000]])
    shapes = np.array([[5, 5], [60, 9000], [9000, 9000]])
    np.testing.assert_array_equal(fit(lengths, shapes), [0, 2, 0, 1])


@given(PAIRS, st.integers(1, 6), st.sampled_from([1, 8]), st.integers(1, 400))
@example([(20, 1), (1, 29), (1, 30)], 3, 1, 1)
def test_a_shape_waits_until_its_program_is_worth_it(pairs, count, rows, cost):
    lengths = np.array(pairs)
    most = lengths.max(axis=0, keepdims=True)
    lengths = np.concatenate([lengths, most])
    shapes = choose_shapes(lengths, count)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shapes_module, "COMPILE_COST", cost)
        first = first_epochs(lengths, rows, shapes)
        assert first.tolist() == slow_first_epochs(lengths, rows, shapes)
    assert first[fit(most, shapes)] == 0


def test_a_shape_comes_after_what_its_program_costs():
    """Each epoch pads a batch of [4, 4] to [10, 10], 12 positions a row more."""
    lengths, shapes = np.array([[4, 4], [10, 10]]), np.array([[4, 4], [10, 10]])
    rows = shapes_module.COMPILE_COST // 12 // 3
    assert first_epochs(lengths, rows, shapes).tolist() == [3, 0]
    assert first_epochs(lengths, 8 * rows, shapes).tolist() == [0, 0]
