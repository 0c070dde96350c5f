# SPDX-License-Identifier: Apache-2.0
"""Where a decoder looks among its own words, and how far back that is."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvnmt.metrics.self_attention import focus, pooled, relative_positions

FIRST = np.array(
    [
        # null  w0   w1   w2
        [1.0, 0.0, 0.0, 0.0],  # step 0: no earlier word
        [0.9, 0.1, 0.0, 0.0],  # step 1: w0, whatever the null slot has
        [0.2, 0.3, 0.5, 0.0],  # step 2: w1
        [0.4, 0.2, 0.2, 0.2],  # step 3: w0, the first of equals
    ]
)
SECOND = np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.0, 0.6, 0.4]])  # None, w0, w0


@st.composite
def self_attention(draw):
    size = draw(st.integers(0, 8))
    numbers = st.lists(st.integers(0, 9), min_size=size * size, max_size=size * size)
    return np.tril(np.reshape(draw(numbers), (size, size)) / 9)


def test_focus_by_hand():
    assert focus(FIRST) == [None, 0, 1, 0]
    assert focus(SECOND) == [None, 0, 0]
    assert focus(np.empty((0, 0))) == []


def test_row_without_weight_on_words_is_no_prediction():
    weights = np.array([[1.0, 0, 0], [0.5, 0.5, 0], [1.0, 0, 0]])
    assert focus(weights) == [None, 0, None]
    assert relative_positions([weights]).counts == (1,)


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=12))
def test_focus_of_a_content_score_is_a_running_argmax(energies):
    # Energies that do not depend on the step: what is softmaxed only gets longer.
    e = np.exp(np.array(energies, dtype=np.float64))  # the first is the null slot's
    weights = np.tril(np.tile(e, (len(e), 1)))
    weights /= weights.sum(axis=1, keepdims=True)
    best, running = None, []
    for t in range(len(energies)):
        if t and (best is None or energies[t] > energies[best + 1]):
            best = t - 1
        running.append(best)
    assert focus(weights) == running


def test_relative_positions_by_hand():
    # FIRST:  step 1 looks 1 back, of 1 word; step 2 looks 1 back, of 2;
    #         step 3 looks 3 back, of 3.
    # SECOND: step 1 looks 1 back, of 1; step 2 looks 2 back, of 2.
    # normalised: p = 1: 1 + 1/2 + 1;  p = 2: 1/2;  p = 3: 1/3.
    # p words or more before them had 5, 3 and 1 predictions.
    found = relative_positions(iter([FIRST, SECOND]))
    assert found.counts == (3, 1, 1)
    assert found.normalised == pytest.approx((5 / 2, 1 / 2, 1 / 3))
    assert found.available == (5, 3, 1)
    assert found.share == pytest.approx((3 / 5, 1 / 3, 1))


@pytest.mark.parametrize(
    ("greatest", "expected"),
    [(1, [3, 3]), (2, [3, 1, 2]), (3, [3, 1, 2, 0]), (5, [3, 1, 2, 0, 0, 0])],
)
def test_positions_beyond_the_last_are_pooled(greatest, expected):
    assert pooled((3, 1, 2), greatest) == expected
    assert pooled((), 2) == [0, 0, 0]


@given(st.lists(self_attention(), max_size=4))
def test_relative_positions_counted_one_by_one(matrices):
    rows = [
        (t, list(row[1 : t + 1]))
        for weights in matrices
        for t, row in enumerate(weights)
    ]
    rows = [(t, words) for t, words in rows if any(words)]
    size = max([t for t, _ in rows], default=0) + 1
    counts, normalised = np.zeros(size), np.zeros(size)
    available = np.zeros(size, dtype=int)
    for t, words in rows:
        p = t - words.index(max(words))
        counts[p] += 1
        normalised[p] += 1 / t
        for earlier in range(1, t + 1):
            available[earlier] += 1
    found = relative_positions(matrices)
    assert found.counts == tuple(counts[1:])
    assert found.normalised == pytest.approx(tuple(normalised[1:]))
    assert found.available == tuple(available[1:])
