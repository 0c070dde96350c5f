# SPDX-License-Identifier: Apache-2.0
"""Where a decoder looks among the words that it has already written.

Miculicich Werlen et al. 2018 (Self-attentive residual decoder for neural machine
translation), section 8.1 and figure 2, and the focus that their Algorithm 1 reads.

Weights are [T, T], without padding: row t, from 0, is the step that predicts word t;
column 0 stands before the first word (a null slot) and column i > 0 is word i - 1. Row
t sees columns 0 to t, hence t earlier words; what lies to the right of them is 0.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np


@dataclass(frozen=True)
class RelativePositions:
    """How often the word attended to most stood p places back; p = 1, 2, ... in order.

    Attributes:
        counts: Predictions whose focus is p places back.
        normalised: The same with every prediction counted as one over the number of
            words before it, as in figure 2 of the paper.
        available: Predictions with p words before them or more.
    """

    counts: tuple[int, ...]
    normalised: tuple[float, ...]
    available: tuple[int, ...]

    @property
    def share(self) -> tuple[float, ...]:
        """``counts[p] / available[p]``: how often p was chosen where it was possible.

        Far words are available less often than near ones. This removes that effect,
        which ``normalised`` only weakens.
        """
        pairs = zip(self.counts, self.available, strict=True)
        return tuple(count / total if total else 0.0 for count, total in pairs)


def pooled(values: Sequence[float], greatest: int) -> list[float]:
    """Those of positions 1 to ``greatest``, then the sum of all beyond."""
    near = [*values[:greatest], *[0] * (greatest - len(values))]
    return [*near, sum(values[greatest:])]


def focus(weights: np.ndarray) -> list[int | None]:
    """Finds the earlier word of greatest weight for each step (section 8.1).

        focus[t] = argmax over i < t of the weight of word i

    The null slot is left out. Of equal weights the first counts.

    Args:
        weights: [T, T], as the module describes it.

    Returns:
        T words, counted from 0; None for a step without weight on any, such as step 0,
        which has no earlier word, or that of a word of no piece.
    """
    words = [row[1 : t + 1] for t, row in enumerate(weights)]
    return [int(row.argmax()) if row.any() else None for row in words]


def relative_positions(matrices: Iterable[np.ndarray]) -> RelativePositions:
    """Counts over a test set how far back the focus lies (figure 2).

        p = t - focus[t],  a prediction counted as 1 or as 1 / t

    as step t has t earlier words. "We normalized the count by the number of previous
    words at the time of each prediction" is all that the paper says of it.

    Args:
        matrices: Weights of each sentence. A last row for EOS is a prediction too.
    """
    focused = [(t, i) for weights in matrices for t, i in enumerate(focus(weights))]
    steps = np.array([t for t, i in focused if i is not None], dtype=np.int64)
    chosen = np.array([i for _, i in focused if i is not None], dtype=np.int64)
    lengths = np.bincount(steps, minlength=1)[1:]  # predictions with exactly t words
    size = len(lengths) + 1
    positions = steps - chosen
    counts = np.bincount(positions, minlength=size)[1:]
    normalised = np.bincount(positions, weights=1 / steps, minlength=size)[1:]
    return RelativePositions(
        counts=tuple(counts.tolist()),
        normalised=tuple(normalised.tolist()),
        available=tuple(accumulate(lengths[::-1].tolist()))[::-1],
    )
