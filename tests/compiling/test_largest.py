# SPDX-License-Identifier: Apache-2.0
"""The largest batch is found, whatever memory does as batches grow."""

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kvnmt.compiling.largest import FINENESS, Trial, search


def attempts(need: Callable[[int], int], available: int, silent: bool):
    """A compiler that is asked; a silent one does not say by how much it refuses."""

    def attempt(rows: int) -> Trial:
        size = need(rows)
        fits = size <= available
        return Trial(rows, size if fits or not silent else None, fits)

    return attempt


@pytest.mark.parametrize("silent", [False, True])
@given(
    first=st.integers(1, 2000),
    multiple=st.sampled_from([1, 8, 64]),
    fixed=st.integers(0, 5000),
    each=st.integers(1, 60),
    bent=st.floats(0, 1),
)
@example(first=1, multiple=1, fixed=1428, each=1, bent=1.0)  # the line leads far out
def test_the_largest_that_fits_is_found(silent, first, multiple, fixed, each, bent):
    def need(rows: int) -> int:
        return fixed + int(each * rows ** (1 + bent / 10))

    available = 40_000
    trials = search(attempts(need, available, silent), first, multiple, available)
    assert all(trial.rows % multiple == 0 for trial in trials)
    assert len({trial.rows for trial in trials}) == len(trials)
    low = max((t.rows for t in trials if t.fits), default=0)
    high = min(t.rows for t in trials if not t.fits)
    assert need(high) > available
    assert high - low <= max(multiple, low / FINENESS)


def test_what_grows_in_proportion_takes_three_compilations():
    trials = search(attempts(lambda n: 700 + 30 * n, 50_000, False), 80, 8, 50_000)
    assert [trial.rows for trial in trials] == [80, *[t.rows for t in trials[1:]]]
    assert len(trials) <= 4


def test_where_nothing_fits_the_smallest_was_tried():
    trials = search(attempts(lambda n: 10**9, 1000, True), 80, 8, 1000)
    assert min(trial.rows for trial in trials) == 8
    assert not any(trial.fits for trial in trials)


@pytest.mark.parametrize("most", [3, 100, 640])
def test_none_is_larger_than_may_be(most):
    trials = search(attempts(lambda n: n, 10**6, False), 80, 8, 10**6, most)
    assert max(trial.rows for trial in trials) == max(most // 8, 1) * 8
    assert all(trial.fits for trial in trials)
