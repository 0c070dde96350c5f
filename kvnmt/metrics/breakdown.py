# SPDX-License-Identifier: Apache-2.0
"""BLEU of parts of a test set: by length of the source, by how rare its words are.

Also, word by word, how well target words of a frequency are translated. Words are what
stands between spaces; frequencies are those of the training text.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvnmt.data.words import split_words
from kvnmt.metrics.bleu import summed_bleu

LENGTHS = (1, 11, 21, 31, 41, 51)  # words; the first of each bucket
FREQUENCIES = (0, 1, 2, 5, 10, 100, 1000)  # times seen in training


class Part(NamedTuple):
    """One bucket of sentences."""

    label: str  # "11-20"
    sentences: int
    bleu: float | None  # None: of no sentence


class WordScore(NamedTuple):
    """One bucket of target words; shares, not percent."""

    label: str
    wanted: int  # words of the references
    precision: float
    recall: float
    f1: float


def bleu_by(
    values: Sequence[int], edges: Sequence[int], statistics: NDArray[np.integer]
) -> list[Part]:
    """BLEU of the sentences of every bucket, from the first to the last that has some.

    Args:
        values: Of every sentence what decides its bucket.
        edges: The first value of each bucket, rising; lower values join the first.
        statistics: [sentences, 10], of `kvnmt.metrics.bleu.sentence_statistics`.
    """
    places = _places(values, edges)
    parts = []
    first, last = (places.min(), places.max()) if len(places) else (0, -1)
    for place, label in enumerate(labels(edges)):
        if not first <= place <= last:
            continue
        mine = places == place
        score = summed_bleu(statistics[mine].sum(0)) if mine.any() else None
        parts.append(Part(label, int(mine.sum()), score))
    return parts


def rarest(lines: Iterable[str], counts: Mapping[str, int]) -> list[int]:
    """How often the rarest word of every line was seen; 0 for a line without words."""
    return [
        min((counts.get(word, 0) for word in split_words(line)), default=0)
        for line in lines
    ]


def words_by_frequency(
    hypotheses: Sequence[str],
    references: Sequence[str],
    counts: Mapping[str, int],
    edges: Sequence[int] = FREQUENCIES,
) -> list[WordScore]:
    """Precision, recall and F1 of target words, by how often training saw them.

    A word is right as often as it stands in both translation and reference of a
    sentence, wherever it stands there.

    Args:
        hypotheses: Translations.
        references: One for each.
        counts: How often every target word was seen.
        edges: The first count of each bucket, rising.
    """
    totals = np.zeros((3, len(edges)), np.int64)  # right, proposed, wanted
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        mine, its = map(Counter, map(split_words, (hypothesis, reference)))
        for row, words in enumerate((mine & its, mine, its)):
            places = _places([counts.get(word, 0) for word in words], edges)
            np.add.at(totals[row], places, list(words.values()))
    scores = []
    for label, (right, proposed, wanted) in zip(labels(edges), totals.T.tolist()):
        if proposed or wanted:
            precision, recall = right / max(proposed, 1), right / max(wanted, 1)
            f1 = 2 * right / (proposed + wanted)
            scores.append(WordScore(label, wanted, precision, recall, f1))
    return scores


def labels(edges: Sequence[int]) -> list[str]:
    """The names of buckets, such as ``2-4`` and ``1000+``."""
    last = [edge - 1 for edge in edges[1:]]
    inner = [f"{a}-{b}" if a < b else f"{a}" for a, b in zip(edges, last)]
    return [*inner, f"{edges[-1]}+"]


def _places(values: Sequence[int], edges: Sequence[int]) -> NDArray[np.intp]:
    places = np.searchsorted(np.array(edges), np.array(values, np.int64), side="right")
    return np.maximum(places - 1, 0)
