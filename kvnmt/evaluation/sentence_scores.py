# SPDX-License-Identifier: Apache-2.0
"""What another program gave each sentence, such as COMET: means and tests of them."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvnmt.data.text import read_lines
from kvnmt.errors import UserError, counted
from kvnmt.evaluation.base import Column, LackingError, Report, System, Test
from kvnmt.metrics.significance import (
    bootstrap,
    interval,
    seed_of_environment,
    t_test,
)

COLUMNS = (
    Column("system", "system"),
    Column("mean", "mean", "{:.4f}"),
    Column("half_interval", "±", "{:.4f}"),
    Column("higher", "higher"),
    Column("lower", "lower"),
    Column("t_test", "p t", "{:.4f}"),
    Column("bootstrap", "p boot", "{:.4f}"),
)
NOTE = (
    "of another program; ±: half of the range in which the mean is in 95 of 100 "
    "resamples of the sentences; higher, lower: sentences; p of the paired t-test and "
    "the paired bootstrap against the first, two-sided"
)
# COMET tells the mean of all in a last line, which is no segment's.
_SEGMENT = re.compile(r"\tSegment \d+\tscore: (\S+)$")


def read_scores(path: Path, count: int) -> NDArray[np.floating]:
    """Reads a number from each line of a file, or what COMET prints of each segment.

    Args:
        path: The file.
        count: How many sentences there are.

    Raises:
        UserError: It cannot be read, a line is no number, or there are more or fewer.
    """
    lines = [*enumerate(read_lines(path), 1)]
    found = ((number, _SEGMENT.search(line)) for number, line in lines)
    segments = [(number, match[1]) for number, match in found if match]
    scores = []
    for number, text in segments or lines:
        try:
            scores.append(float(text))
        except ValueError:
            scores.append(np.nan)
        if not np.isfinite(scores[-1]):
            raise UserError(
                f"{path}, line {number}: '{text[:40]}' is no number; let each line be "
                "the score of a sentence."
            )
    if len(scores) != count:
        raise UserError(
            f"'{path}' has {counted(len(scores), 'score')} but there are "
            f"{counted(count, 'reference')}; line n must be the score of sentence n."
        )
    return np.array(scores)


def check(test: Test, systems: Sequence[System]) -> None:
    """Needs the scores of every system."""
    if not test.sentence_scores:
        raise LackingError("--sentence-scores is not given")
    seed_of_environment()
    if len(test.sentence_scores) != len(systems):
        raise UserError(
            f"--sentence-scores names {counted(len(test.sentence_scores), 'file')} for "
            f"{counted(len(systems), 'system')}; name one for each, in their order."
        )


def measure(test: Test, systems: Sequence[System]) -> Report:
    """A row for each system."""
    baseline, rows, seed = test.sentence_scores[0], [], seed_of_environment()
    for system, scores in zip(systems, test.sentence_scores):
        bounds = interval(_summands(scores), _mean)
        row: dict[str, Any] = {
            "system": system.name,
            "mean": scores.mean(),
            "interval": bounds,
            "half_interval": bounds and (bounds[1] - bounds[0]) / 2,
        }
        if rows:
            row |= {
                "higher": int((scores > baseline).sum()),
                "lower": int((scores < baseline).sum()),
                "t_test": t_test(scores - baseline, "two-sided"),
                "bootstrap": bootstrap(
                    _summands(baseline), _summands(scores), _mean, seed
                ),
            }
        rows.append(row)
    columns = COLUMNS if rows[1:] else COLUMNS[:3]
    return Report("scores of sentences", columns, rows, [NOTE])


def _summands(scores: NDArray[np.floating]) -> NDArray[Any]:
    """What a mean is made of: [sentences, 2]."""
    return np.stack([scores, np.ones(len(scores))], axis=1)


def _mean(sums: NDArray[Any]) -> Any:
    return sums[..., 0] / sums[..., 1]
