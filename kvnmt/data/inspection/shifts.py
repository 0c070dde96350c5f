# SPDX-License-Identifier: Apache-2.0
"""Runs of lines that belong to a line near their own line of the other side.

They come from a line that was lost, added or split on one side, and perhaps repaired
further on; a development set of IWSLT 2014 is known for one. Lines are scored against
the lines of the other side up to some shift away (`kvnmt.data.inspection.association`).
The gain of a line under a shift says by how many nats that pair agrees better than its
own pair. It is clipped, so that no line decides by itself, and reduced by a margin. A
run is a stretch with a large sum of gains that no loss of this size interrupts. Runs
are found in one pass over the lines that gain.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvnmt.data.inspection.association import (
    SAMPLE,
    Rows,
    learn,
    make_lexicon,
    strength,
)
from kvnmt.data.inspection.checks import Part
from kvnmt.data.inspection.findings import EXAMPLES, Finding, Place
from kvnmt.data.inspection.scan import Index
from kvnmt.errors import counted

FOLDS = 5  # a line is scored with what was learnt of the other four fifths
FARTHEST = 2  # lines to either side
FARTHEST_MISSING = 8  # where that many lines are missing on one side
LEAST_LINES = 200  # to learn from
SHORTEST = 8  # lines of a run
CLIP = 8.0  # nats; one line counts for no more
MARGIN = 1.0  # nats a line must gain to count for the shift
LEAST_GAIN = 40.0  # nats of a run; as much ends it
USUAL = 0.4  # a run agrees, under its shift, at least so well beside other lines
UNRELATED = 1.5  # nats per line; with less the two sides have nothing to do
NEAR = 20  # lines between runs that follow one another
AWAY = 11  # lines beyond the farthest shift, where nothing belongs together
NOWHERE = -8.0  # score of a line whose partner would be outside the text


class Run(NamedTuple):
    """Source line i belongs to target line i + shift, for lines first to last."""

    first: int  # lines are counted from 0
    last: int
    shift: int
    gain: float  # nats, clipped


class Shifts(NamedTuple):
    """The shifted lines of two sides; empty if there are too few lines to tell."""

    runs: list[Run]
    agreement: float | None  # mean score at the best shift, in nats per line
    together: int = 0  # lines after which line n and line n agree no more


def check_shifts(part: Part, indices: tuple[Index, Index]) -> Iterator[Finding]:
    """Yields what the runs of shifted lines say about two files.

    Args:
        part: The files; their numbers of lines may differ.
        indices: Of the words of either side.
    """
    sides = part.source, part.target
    rows = [make_lexicon(side, i).rows(side) for side, i in zip(sides, indices)]
    runs, agreement, together = find_runs(*rows)
    if agreement is None:
        return
    if agreement < UNRELATED:
        message = (
            f"{part.files} hardly go together, as far as their frequent words and "
            "their lengths tell; look whether they are translations line by line."
        )
        yield Finding("unrelated", "warning", len(part.source), message)
        return
    lasting: list[Run] = []
    if len(part.source) != len(part.target):
        lasting = _lasting(runs, *map(len, sides))
        yield from _missing(part, lasting)
        if not lasting:
            yield _lost(part, together)
    runs = [run for run in runs if run not in lasting]
    if runs:
        yield _shifted(part, runs)


def find_runs(source: Rows, target: Rows) -> Shifts:
    """Finds the runs of two sides, whose numbers of lines may differ."""
    if min(len(source), len(target)) < LEAST_LINES:
        return Shifts([], None)
    scores = _scores(source, target)
    shared = min(len(source), len(target))  # later lines have no partner
    agreement = float(max(score[:shared].mean() for score in scores.values()))
    if agreement < UNRELATED:
        return Shifts([], agreement)
    usual = np.median(np.max(list(scores.values()), axis=0)[:shared])
    runs = []
    for shift, score in scores.items():
        if not shift:
            continue
        gain = np.clip(score - scores[0], -CLIP, CLIP) - MARGIN
        random = score <= 0  # agrees no better than lines that have nothing to do
        gain[random] = np.minimum(gain[random], -MARGIN)
        for first, last, total in _stretches(gain):
            as_usual = score[first : last + 1].mean() >= USUAL * usual
            if as_usual and last - first + 1 >= SHORTEST:
                runs.append(Run(first, last, shift, total))
    unshifted = np.cumsum(np.clip(scores[0] - USUAL * usual, -CLIP, CLIP))
    together = int(np.argmax(unshifted)) + 1 if unshifted.max() > 0 else 0
    return Shifts(_apart(runs, len(source)), agreement, together)


def _lasting(runs: list[Run], source: int, target: int) -> list[Run]:
    """The last runs, which follow one another up to the end of the text."""
    lasting: list[Run] = []
    for run in reversed(runs):
        end = lasting[0].first if lasting else min(source, target - run.shift)
        if end - run.last > NEAR:
            break
        lasting.insert(0, run)
    return lasting


def _missing(part: Part, lasting: list[Run]) -> Iterator[Finding]:
    """Yields a finding for each place where lines were lost for good."""
    source, target = part.source.path, part.target.path
    for before, run in zip([0, *(run.shift for run in lasting)], lasting):
        count = abs(run.shift - before)
        lacking, other = (source, target) if run.shift > before else (target, source)
        source_line, target_line = run.first + 1, run.first + run.shift + 1
        message = (
            f"near line {source_line} of {source} {counted(count, 'line')} of "
            f"{lacking} must be missing, or too many in {other}: from there on source "
            f"line n belongs to target line n {run.shift:+d}."
        )
        places = Place(source, source_line), Place(target, target_line)
        yield Finding("missing-line", "error", count, message, places)


def _lost(part: Part, together: int) -> Finding:
    """The finding that lines are missing, though the rest is not shifted."""
    places = (Place(part.source.path, max(together, 1)),)
    gap = abs(len(part.source) - len(part.target))
    if together >= min(len(part.source), len(part.target)) - NEAR:
        message = (
            f"{part.files} seem to go together up to the end of the shorter one, so "
            f"that what is missing belongs behind its line {together}."
        )
        return Finding("missing-end", "note", gap, message, places)
    message = (
        f"{part.files} go together up to about line {together} and no more from there "
        "on; lines must be missing near it."
    )
    return Finding("missing-line", "error", gap, message, places)


def _shifted(part: Part, runs: list[Run]) -> Finding:
    stretches = [
        f"lines {run.first + 1} to {run.last + 1} (n belongs to n {run.shift:+d})"
        for run in runs[:EXAMPLES]
    ]
    more = len(runs) - len(stretches)
    if more:
        stretches[-1] += f" and {more} more"
    message = (
        f"{part.source.path}, {', '.join(stretches)}: these lines belong to others of "
        f"{part.target.path} than their own; align them again or remove them."
    )
    places = tuple(
        Place(part.source.path, run.first + 1, f"to {run.last + 1}, shift {run.shift}")
        for run in runs[:EXAMPLES]
    )
    lines = sum(run.last - run.first + 1 for run in runs)
    return Finding("shifted", "error", lines, message, places)


def _apart(runs: list[Run], lines: int) -> list[Run]:
    """The runs in their order, without lines that a better run holds too."""
    taken = np.zeros(lines, np.bool_)
    kept = []
    for run in sorted(runs, key=lambda run: -run.gain):
        free = run.first + np.flatnonzero(~taken[run.first : run.last + 1])
        if len(free) < SHORTEST or len(free) <= free[-1] - free[0]:
            continue  # next to nothing is left, or in two parts
        run = run._replace(first=int(free[0]), last=int(free[-1]))
        taken[free] = True
        kept.append(run)
    return sorted(kept)


def _shifts(source: Rows, target: Rows) -> Sequence[int]:
    missing = abs(len(source) - len(target))
    farthest = max(FARTHEST, missing if missing <= FARTHEST_MISSING else 0)
    return [0, *(s for d in range(1, farthest + 1) for s in (d, -d))]


def _scores(source: Rows, target: Rows) -> dict[int, NDArray[np.float32]]:
    """Scores every source line with the target line at each shift.

    The model that scores a line was learnt from other lines, at the shift that fits
    best. Lines that have nothing to do with each other score 0 on average.
    """
    every = _shifts(source, target)
    away = max(every) + AWAY

    def pairs(shift: int, lines: NDArray, most: int) -> tuple[Rows, Rows]:
        lines = lines[:: max(1, -(-len(lines) // most))]
        return source.take(lines), target.take(lines + shift)

    def lines(shift: int) -> NDArray[np.int64]:
        return np.arange(max(0, -shift), min(len(source), len(target) - shift))

    best = max(every, key=lambda d: strength(*pairs(d, lines(d), SAMPLE // 4)))
    scores = {d: np.full(len(source), NOWHERE, np.float32) for d in (*every, away)}
    for fold in range(FOLDS):
        known = learn(*pairs(best, lines(best)[lines(best) % FOLDS != fold], SAMPLE))
        for shift in scores:
            held = lines(shift)[lines(shift) % FOLDS == fold]
            scores[shift][held] = known.score(*pairs(shift, held, len(source)))
    nothing = scores.pop(away)[lines(away)].mean()
    return {shift: score - nothing for shift, score in scores.items()}


def _stretches(gain: NDArray) -> Iterator[tuple[int, int, float]]:
    """First and last line and sum of the stretches that gain enough."""
    totals = np.concatenate([[0.0], np.cumsum(gain, dtype=np.float64)])
    lines = np.flatnonzero(gain > 0)
    first = last = -1
    base = peak = 0.0
    for line, before, after in zip(lines, totals[lines], totals[lines + 1]):
        if first < 0 or before <= base or before < peak - LEAST_GAIN:
            if peak - base >= LEAST_GAIN:
                yield first, last, float(peak - base)
            first, base, peak = int(line), before, before
        if after > peak:
            last, peak = int(line), after
    if peak - base >= LEAST_GAIN:
        yield first, last, float(peak - base)
