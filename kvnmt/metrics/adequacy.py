# SPDX-License-Identifier: Apache-2.0
"""Over- and under-translation: what of the source was dropped or said twice.

Meng et al. (2018), section 4.2, had people count. Three measures stand in for them:

* `coverage_by_gold`: exact where it is known which target words translate which source
  words of the reference, and a translation is a function of its source, as in
  `kvnmt.data.synthetic` (but for units of different size with a word in common). On
  other text it also counts paraphrases as dropped.
* `coverage_by_attention`: from the alignment that the system read by. The thresholds
  are ours; the paper has none.
* `repeated_ngrams`: from the text alone.

They are not the people's judgement, and their figures must not be put beside it.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvnmt.data.links import Links
from kvnmt.metrics.links import Gold

MASS = 0.2  # a source word that received less, and no strongest link, was not read
MOST = 3  # strongest links of a source word whose number of translations is not known


@dataclass(frozen=True)
class Coverage:
    """Counts, so that sentences can be summed."""

    words: int = 0  # of the source that were looked at
    dropped: int = 0
    repeated: int = 0
    invented: int = 0  # target words that translate nothing of the source
    produced: int = 0  # target words

    def __add__(self, other: "Coverage") -> "Coverage":
        pairs = zip(vars(self).values(), vars(other).values())
        return Coverage(*(mine + its for mine, its in pairs))

    @property
    def under(self) -> float:
        """Share of source words that were dropped."""
        return self.dropped / self.words if self.words else 0.0

    @property
    def over(self) -> float:
        """Share of source words that were translated too often."""
        return self.repeated / self.words if self.words else 0.0

    @property
    def invention(self) -> float:
        """Share of target words that translate nothing of the source."""
        return self.invented / self.produced if self.produced else 0.0


def coverage_by_gold(
    reference: Sequence[str],
    links: Links,
    hypothesis: Sequence[str],
    stem: Callable[[str], str] = str,
) -> Coverage:
    """Compares the words of a translation with those that the source asks for.

    Words that are linked, directly or through others, are a unit: its source words are
    translated together by its target words. A unit is dropped if every one of its
    target words stands in the translation less often than in the reference, by as many
    as the unit has of it; it is repeated if one of them stands there more often. Each
    counts with all its source words.

    Args:
        reference: Words of a translation by people.
        links: (source, target), of each source word and the reference's.
        hypothesis: Words of the translation looked at.
        stem: What of a target word tells which word it is, without its inflection.

    Returns:
        Counts over the source words that have a link.
    """
    proposed, known = Counter(map(stem, hypothesis)), Counter(map(stem, reference))
    missing, extra = known - proposed, proposed - known
    invented = sum(count for word, count in extra.items() if not known[word])
    total = Coverage(invented=invented, produced=len(hypothesis))
    for sources, targets in _units(links):
        needs = Counter(stem(reference[j]) for j in targets)
        dropped, repeated = needs <= missing, bool(needs & extra)
        missing -= needs if dropped else Counter()
        extra -= needs if repeated else Counter()
        size = len(sources)
        total += Coverage(size, dropped * size, repeated * size)
    return total


def coverage_by_attention(
    alignment: NDArray[np.floating],
    links: Links,
    gold: Gold | None = None,
    readable: Collection[int] | None = None,
) -> Coverage:
    """Guesses from the attention what was dropped or repeated.

    A source word is dropped if it received less than `MASS` in all and has no hard
    link. It is repeated if it has more of them than in the gold alignment and one;
    without gold, more than `MOST`.

    Args:
        alignment: [target words, source words], as of
            `kvnmt.metrics.alignment.word_matrix`.
        links: Hard links of the same, (source, target).
        readable: Source words that count; None: all. A word of which the vocabulary
            makes no piece cannot be read.
        gold: Of the source sentence and a reference, if there is one.
    """
    T, S = alignment.shape
    received = alignment.sum(0)
    words = range(S) if readable is None else readable
    linked = Counter(i for i, _ in links)
    expected = Counter(i for i, _ in gold.possible) if gold else Counter()
    allowed = {i: expected[i] + 1 if gold else MOST for i in words}
    return Coverage(
        words=len(words),
        dropped=sum(bool(received[i] < MASS) and not linked[i] for i in words),
        repeated=sum(linked[i] > allowed[i] for i in words),
        produced=T,
    )


def repeated_ngrams(sentences: Iterable[Sequence[str]], n: int) -> float:
    """Share of all n-grams that stood in their sentence before."""
    repeated = total = 0
    for words in sentences:
        grams = Counter(zip(*(words[k:] for k in range(n))))
        total += sum(grams.values())
        repeated += sum(grams.values()) - len(grams)
    return repeated / total if total else 0.0


def _units(links: Links) -> list[tuple[set[int], set[int]]]:
    """Connected parts of the links: source words and target words of each."""
    units: list[tuple[set[int], set[int]]] = []
    for i, j in sorted(links):
        joined = {i}, {j}
        apart = []
        for unit in units:
            if i in unit[0] or j in unit[1]:
                joined = joined[0] | unit[0], joined[1] | unit[1]
            else:
                apart.append(unit)
        units = [*apart, joined]
    return units
