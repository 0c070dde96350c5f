# SPDX-License-Identifier: Apache-2.0
"""Pieces of work timed in rounds, and the spread of what was timed.

Every round runs each piece once. A machine whose speed drifts slows all of them alike,
so the ratio of two pieces in one round can be trusted where absolute times cannot.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax

WARM = 2  # rounds that do not count


class Lane(NamedTuple):
    """A piece of work that is run again and again."""

    run: Callable[[Any], Any]  # takes the state and gives the next one
    state: Any = None  # before the first time


@dataclass(frozen=True)
class Spread:
    """A figure over several rounds: its quartiles."""

    low: float
    median: float
    high: float


def spread(figures: Sequence[float]) -> Spread:
    """The quartiles of figures; of a single one, that figure three times."""
    if len(figures) == 1:
        return Spread(figures[0], figures[0], figures[0])
    low, median, high = statistics.quantiles(figures, n=4, method="inclusive")
    return Spread(low, median, high)


def per_second(amount: float, seconds: Spread) -> Spread:
    """How much is done in a second, of how long a piece of work takes."""
    return Spread(amount / seconds.high, amount / seconds.median, amount / seconds.low)


def time_rounds(
    lanes: Sequence[Lane],
    repeats: int,
    advance: Callable[[str], None] = lambda what: None,
    clock: Callable[[], float] = time.perf_counter,
) -> list[list[float]]:
    """Times rounds of all lanes, after two rounds that do not count.

    Args:
        lanes: The pieces of work.
        repeats: Timed rounds.
        advance: Told of every round before it starts.
        clock: Gives the time in seconds.

    Returns:
        The seconds of every timed round of each lane.
    """
    states = [lane.state for lane in lanes]
    times: list[list[float]] = [[] for _ in lanes]
    for repeat in range(repeats + WARM):
        advance(f"round {max(repeat - WARM + 1, 0)} of {repeats}")
        for i, lane in enumerate(lanes):
            start = clock()
            states[i] = jax.block_until_ready(lane.run(states[i]))
            if repeat >= WARM:
                times[i].append(clock() - start)
    return times
