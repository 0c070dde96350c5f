# SPDX-License-Identifier: Apache-2.0
"""Links between the tokens of pairs, counted for a shortlist."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kvnmt.data.links import Links
from kvnmt.inference.score import score
from kvnmt.inference.shortlist import NO_TOKEN
from kvnmt.inference.trained import Trained
from kvnmt.metrics.alignment import hard_links


def attended_links(
    run: Trained, source: Sequence[str], target: Sequence[str]
) -> NDArray[np.int64]:
    """Links each target token of lines to the source token that it attends to most.

    Returns:
        What `count_links` counts.
    """
    source_ids = [run.vocabularies.source.encode(line) for line in source]
    target_ids = [run.vocabularies.target.encode(line) for line in target]
    scored = score(run.model, run.params, source_ids, target_ids)
    links = [
        hard_links(pair.alignments[-1], len(x), len(y))
        for pair, x, y in zip(scored, source_ids, target_ids)
    ]
    return counted_links(source_ids, target_ids, links)


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
