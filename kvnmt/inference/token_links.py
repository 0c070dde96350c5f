# SPDX-License-Identifier: Apache-2.0
"""Links between the tokens of pairs, counted for a shortlist."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kvnmt.data.vocabularies import Vocabularies
from kvnmt.data.vocabulary import Vocabulary
from kvnmt.data.words import word_numbers
from kvnmt.inference.score import align
from kvnmt.inference.shortlist import NO_TOKEN
from kvnmt.inference.trained import Trained
from kvnmt.metrics.alignment import hard_links
from kvnmt.metrics.links import Links


def attended_links(
    run: Trained, source: Sequence[str], target: Sequence[str]
) -> NDArray[np.int64]:
    """Links each target token of lines to the source token that it attends to most.

    Returns:
        What `count_links` counts.
    """
    source_ids = [run.vocabularies.source.encode(line) for line in source]
    target_ids = [run.vocabularies.target.encode(line) for line in target]
    aligned = align(run.model, run.params, source_ids, target_ids)
    links = [
        hard_links(rounds[-1], len(x), len(y))
        for rounds, x, y in zip(aligned, source_ids, target_ids)
    ]
    return _counted(source_ids, target_ids, links)


def spread_links(
    vocabularies: Vocabularies,
    source: Sequence[str],
    target: Sequence[str],
    links: Sequence[Links],
) -> NDArray[np.int64]:
    """Links all tokens of words that are linked.

    Args:
        vocabularies: Of both sides.
        source: Lines.
        target: Their translations.
        links: Between the words of each pair.

    Returns:
        What `count_links` counts.
    """
    source_ids = [vocabularies.source.encode(line) for line in source]
    target_ids = [vocabularies.target.encode(line) for line in target]
    spread = []
    for x, y, i, j, words in zip(source, target, source_ids, target_ids, links):
        left = _by_word(vocabularies.source, x, i)
        right = _by_word(vocabularies.target, y, j)
        spread.append(
            frozenset(
                (a, b)
                for word, other in words
                for a in left.get(word, ())
                for b in right.get(other, ())
            )
        )
    return _counted(source_ids, target_ids, spread)


def _by_word(
    vocabulary: Vocabulary, line: str, ids: Sequence[int]
) -> dict[int, list[int]]:
    """The places of the tokens of every word that has some."""
    places: dict[int, list[int]] = {}
    for place, word in enumerate(word_numbers(vocabulary, line, ids)):
        places.setdefault(word, []).append(place)
    return places


def _counted(
    source: Sequence[Sequence[int]],
    target: Sequence[Sequence[int]],
    links: Sequence[Links],
) -> NDArray[np.int64]:
    pairs = [
        (x[i], y[j]) for x, y, places in zip(source, target, links) for i, j in places
    ]
    pairs += [(NO_TOKEN, token) for ids in target for token in ids]
    return np.array(pairs, np.int64).reshape(-1, 2)
