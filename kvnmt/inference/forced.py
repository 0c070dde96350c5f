# SPDX-License-Identifier: Apache-2.0
"""Pairs of lines under forced decoding, and which words their tokens belong to."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvnmt.data.links import Links
from kvnmt.data.words import split_words, word_numbers
from kvnmt.inference.score import LIMITS, Scored, score_lines
from kvnmt.inference.trained import Trained
from kvnmt.metrics.alignment import hard_links, word_matrix


class Forced(NamedTuple):
    """One pair under forced decoding, and which word each of its tokens belongs to."""

    scored: Scored
    source: list[int]  # word of every source token
    target: list[int]
    counts: tuple[int, int]  # words of source and target

    def links(self, r: int = -1) -> Links:
        """Hard links of a round between words: two are linked if any pieces are.

        Where a side has no word, there are none.
        """
        if 0 in self.counts:
            return frozenset()
        pieces = hard_links(
            self.scored.alignments[r], len(self.source), len(self.target)
        )
        return frozenset((self.source[i], self.target[j]) for i, j in pieces)

    def matrix(self, r: int = -1) -> NDArray[np.floating]:
        """Attention of a round between words, [target, source]."""
        rounds = self.scored.alignments
        if 0 in self.counts:
            return np.zeros(self.counts[::-1])
        return word_matrix(rounds[r], self.source, self.target, self.counts)


def forced_pair(
    run: Trained, source: str, target: str, ids: Sequence[int], scored: Scored
) -> Forced:
    """Adds words to a pair that was scored.

    Args:
        run: The trained model.
        source: The line that was translated.
        target: Its translation.
        ids: Of the translation, without EOS: what was scored.
        scored: Its score and alignment.
    """
    words = run.vocabularies
    return Forced(
        scored,
        word_numbers(words.source, source, words.source.encode(source)),
        word_numbers(words.target, target, ids),
        (len(split_words(source)), len(split_words(target))),
    )


def force_lines(
    run: Trained,
    source: Sequence[str],
    target: Sequence[str],
    advance: Callable[[int], None] = lambda pairs: None,
    limits: tuple[int, int] = LIMITS,
    scored: bool = True,
) -> list[Forced]:
    """Scores and aligns pairs of lines, as `score_lines` does, with words."""
    encode = run.vocabularies.target.encode
    pairs = score_lines(run, source, target, advance, scored=scored, limits=limits)
    return [
        forced_pair(run, x, y, encode(y), pair)
        for x, y, pair in zip(source, target, pairs, strict=True)
    ]
