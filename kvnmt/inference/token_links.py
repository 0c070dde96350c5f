# SPDX-License-Identifier: Apache-2.0
"""Links between the tokens of pairs, counted for a shortlist."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kvnmt.data.links import Links
from kvnmt.inference.score import LIMITS, score
from kvnmt.inference.shortlist import NO_TOKEN
from kvnmt.inference.trained import Trained
from kvnmt.metrics.alignment import hard_links


def attended_links(
    run: Trained,
    source: Sequence[str],
    target: Sequence[str],
    longest: int,
    limits: tuple[int, int] = LIMITS,
) -> tuple[NDArray[np.int64], int]:
    """Links each target token of lines to the source token that it attends to most.

    Pairs of more tokens than ``longest`` on a side are left out, as by training. The
    limits are those of a batch, as `score_lines` has them.

    Returns:
        What `count_links` counts, and how many pairs were left out.
    """
    words = run.vocabularies
    pairs = [
        (words.source.encode(x), words.target.encode(y)) for x, y in zip(source, target)
    ]
    short = [pair for pair in pairs if max(map(len, pair)) <= longest]
    source_ids, target_ids = [x for x, _ in short], [y for _, y in short]
    sides = source_ids, target_ids
    aligned = score(run.model, run.params, *sides, limits=limits, scored=False)
    links = [
        hard_links(pair.alignments[-1], len(x), len(y))
        for pair, x, y in zip(aligned, *sides)
    ]
    return counted_links(source_ids, target_ids, links), len(pairs) - len(short)


def counted_links(
    source: Sequence[Sequence[int]],
    target: Sequence[Sequence[int]],
    links: Sequence[Links],
) -> NDArray[np.int64]:
    """What `count_links` counts, of the ids of pairs and the links between them."""
    pairs = [
        (x[i], y[j]) for x, y, places in zip(source, target, links) for i, j in places
    ]
    pairs += [(NO_TOKEN, token) for ids in target for token in ids]
    return np.array(pairs, np.int64).reshape(-1, 2)
