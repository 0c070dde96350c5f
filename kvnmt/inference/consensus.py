# SPDX-License-Identifier: Apache-2.0
"""Minimum Bayes risk decoding: chooses the translation that is most like the others.

The most probable translation may be like no other; one that resembles many others is
right more often. Kumar and Byrne (2004), "Minimum Bayes-Risk Decoding for Statistical
Machine Translation", choose from the n best translations y of a sentence x::

    argmax_y  sum_y' Q(y') BLEU(y, y')
    Q(y') = P(y' | x)^a / sum_y'' P(y'' | x)^a

with ``a`` the ``mbr`` of a search. With 0 all count alike, as is right for translations
that are drawn (Eikema and Aziz 2020), which come as often as they are probable.

BLEU is that of one sentence, with one added to the counts of 2- to 4-grams (Lin and Och
2004), of tokens of the target vocabulary: subwords if it has those. An unknown word is
like no other. The translation itself is among those that it is compared with.
"""

from collections import Counter
from collections.abc import Sequence, Set
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from kvnmt.data.vocabulary import UNK

ORDER = 4  # of the longest n-grams


def most_alike(
    translations: Sequence[Sequence[int]], log_probs: Sequence[float], exponent: float
) -> int:
    """The place of the greatest expected BLEU; of equals the first.

    Args:
        translations: Target ids without EOS, one translation at least.
        log_probs: log P of each, in nats.
        exponent: a. With 0 all that are possible count alike.
    """
    known = np.asarray(log_probs)
    possible = (known > -np.inf) | (known.max() == -np.inf)  # or all are alike
    scores = exponent * np.where(known > -np.inf, known, 0.0)
    scores = np.where(possible, scores, -np.inf)
    weights = np.exp(scores - scores.max())
    return int(np.argmax(pairwise_bleu(translations) @ weights))


def pairwise_bleu(translations: Sequence[Sequence[int]]) -> NDArray[np.floating]:
    """Sentence BLEU, 0 to 1, of every translation (rows) against every (columns)."""
    lengths = np.array([len(ids) for ids in translations])
    logs = np.zeros((len(lengths), len(lengths)))
    for n in range(1, ORDER + 1):
        has = _incidence([_ngrams(ids, n) for ids in translations])
        matches = (has @ has.T).toarray()
        more = int(n > 1)
        totals = np.maximum(lengths - n + 1, 0)[:, None] + more
        with np.errstate(divide="ignore"):  # nothing in common: BLEU is 0
            logs += np.log((matches + more) / np.maximum(totals, 1))
    longer = lengths[None, :] / np.maximum(lengths, 1)[:, None]
    bleu = np.exp(logs / ORDER + np.minimum(1 - longer, 0))
    empty = lengths == 0  # alike, though they have nothing in common
    return np.where(empty[:, None] & empty, 1.0, bleu)


def _ngrams(ids: Sequence[int], n: int) -> set[tuple[tuple[int, ...], int]]:
    """Those without an unknown word, each with how often it was said before."""
    said = Counter()
    several = set()
    for gram in zip(*(ids[start:] for start in range(n))):
        if UNK not in gram:
            several.add((gram, said[gram]))
            said[gram] += 1
    return several


def _incidence(several: Sequence[Set]) -> csr_matrix:
    """Which translation (rows) has which n-gram that any has: ones and zeros."""
    numbers: dict[Any, int] = {}
    places = [
        (row, numbers.setdefault(gram, len(numbers)))
        for row, grams in enumerate(several)
        for gram in grams
    ]
    rows, columns = np.array(places, int).reshape(-1, 2).T
    ones = np.ones(len(places), np.float32)
    size = len(several), max(len(numbers), 1)
    return csr_matrix((ones, (rows, columns)), shape=size)
