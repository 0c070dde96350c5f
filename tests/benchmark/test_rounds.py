# SPDX-License-Identifier: Apache-2.0
"""Time is taken by turns, and quartiles are those of the books."""

import pytest

from kvnmt.benchmark.rounds import Lane, Spread, per_second, spread, time_rounds


def test_lanes_take_turns_and_two_rounds_do_not_count():
    """By a clock that jumps."""
    durations = {"a": [90, 90, 5, 1, 3], "b": [90, 90, 2, 8, 4]}
    order: list[str] = []
    now = 0.0

    def lane(name: str) -> Lane:
        def run(turn: int) -> int:
            nonlocal now
            order.append(name)
            now += durations[name][turn]
            return turn + 1

        return Lane(run, 0)

    messages: list[str] = []
    times = time_rounds([lane("a"), lane("b")], 3, messages.append, lambda: now)
    assert times == [[5, 1, 3], [2, 8, 4]]
    assert order == ["a", "b"] * 5
    assert messages[0] == "round 0 of 3" and messages[-1] == "round 3 of 3"


@pytest.mark.parametrize(
    "figures, quartiles",
    [
        ([3.0], (3, 3, 3)),
        ([2.0, 1.0], (1.25, 1.5, 1.75)),
        ([5.0, 1.0, 4.0, 2.0, 3.0], (2, 3, 4)),
    ],
)
def test_quartiles(figures, quartiles):
    assert spread(figures) == Spread(*quartiles)


def test_the_slowest_is_the_lowest_speed():
    assert per_second(12, Spread(2, 3, 4)) == Spread(3, 4, 6)
