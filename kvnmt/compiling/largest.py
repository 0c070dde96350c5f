# SPDX-License-Identifier: Apache-2.0
"""The largest batch that fits on devices, in few compilations.

A program's memory grows nearly in proportion to its rows. So a guess lies on the line
through the known points, if that is between what fits and what does not.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import isqrt
from typing import NamedTuple

from kvnmt.compiling.figures import Compiled, TooLargeError, compile_for
from kvnmt.compiling.program import CompileConfig, mesh_of, share
from kvnmt.compiling.targets import Target
from kvnmt.errors import UserError
from kvnmt.inference.config import GREATEST

ROWS = 8  # of a device: batches are multiples of so many
FINENESS = 16  # the largest batch is known to one part of so many
MOST = 12  # compilations


class Trial(NamedTuple):
    """One compilation."""

    rows: int
    bytes: int | None  # needed on a device; None: the compiler does not say
    fits: bool


class Largest(NamedTuple):
    """The largest batch that fits, as far as was tried."""

    config: CompileConfig  # with that batch
    compiled: Compiled
    trials: tuple[Trial, ...]


def largest_batch(
    config: CompileConfig,
    target: Target,
    advance: Callable[[str], None] = lambda what: None,
) -> Largest:
    """Finds the largest batch of a program that fits on devices.

    Args:
        config: The program; its batch is the first guess.
        target: The devices.
        advance: Told of every compilation before it starts.

    Raises:
        UserError: Not even the smallest batch fits, or nobody knows what there is.
    """
    if target.memory is None:
        raise UserError(f"nobody knows how much memory {target.name} has.")
    best: dict[int, Compiled] = {}

    def attempt(rows: int) -> Trial:
        advance(f"compiling a batch of {rows}")
        try:
            compiled = compile_for(with_rows(config, rows), target)
        except TooLargeError as error:
            return Trial(rows, error.needed, fits=False)
        memory = compiled.figures.memory
        if memory.fits:
            best[rows] = compiled
        return Trial(rows, memory.total, fits=bool(memory.fits))

    mesh_of(target.devices, config.model_axis)  # they can be grouped so
    multiple = ROWS * share(config, target.devices)
    most = None if config.what == "train" else GREATEST
    trials = search(attempt, config.rows, multiple, target.memory, most)
    if not best:
        raise UserError(
            f"not even a batch of {trials[-1].rows} sentences fits on {target.name}."
        )
    rows = max(best)
    return Largest(with_rows(config, rows), best[rows], tuple(trials))


def with_rows(config: CompileConfig, rows: int) -> CompileConfig:
    """The config with another batch."""
    if config.what == "train":
        return replace(config, batch_size=rows)
    return replace(config, search=replace(config.search, batch_size=rows))


def search(
    attempt: Callable[[int], Trial],
    first: int,
    multiple: int,
    available: int,
    most: int | None = None,
) -> list[Trial]:
    """Tries batches until the largest that fits is known.

    Args:
        attempt: Tries one.
        first: The first guess.
        multiple: What every batch is a multiple of.
        available: Bytes of a device.
        most: The largest that may be tried; None: any.

    Returns:
        The trials in their order.
    """
    trials: list[Trial] = []
    end = most and max(most // multiple, 1)
    guess: int | None = max(first // multiple, 1)
    while guess and len(trials) < MOST:
        guess = min(guess, end) if end else guess
        if any(trial.rows == guess * multiple for trial in trials):
            break  # the largest that may be tried fits
        trials.append(attempt(guess * multiple))
        low = max((t.rows // multiple for t in trials if t.fits), default=0)
        high = min((t.rows // multiple for t in trials if not t.fits), default=None)
        guess = _next(low, high, _on_line(trials, available) // multiple)
    return trials


def _next(low: int, high: int | None, guess: int) -> int | None:
    """The next guess between what fits and what does not; None: that is near enough.

    Where the line leads out of the two, it is no guide: the middle of their logarithms.
    """
    near = max(low // FINENESS, 1)
    if high is None:
        return max(guess, low + near)
    if high - low <= near:
        return None
    if low < guess < high:
        return guess
    if guess == low:
        return low + near
    if guess == high:
        return high - near
    return min(max(isqrt(low * high), low + 1), high - 1)


def _on_line(trials: Sequence[Trial], available: int) -> int:
    """The rows that need what there is, on the line through the nearest two trials."""
    known = [(t.bytes, t.rows) for t in trials if t.bytes is not None]
    if trials[-1].bytes is None:  # a refusal: half way to it
        fitting = max((t.rows for t in trials if t.fits), default=0)
        return (fitting + trials[-1].rows) // 2
    known.sort(key=lambda point: abs(point[0] - available))
    (size, rows), (other, others) = [*known, (0, 0)][:2]
    if size == other or (rows - others) * (size - other) <= 0:
        return 2 * rows
    return int(rows + (available - size) * (rows - others) / (size - other))
