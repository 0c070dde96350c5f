# SPDX-License-Identifier: Apache-2.0
"""How well two lines agree, from words that go together and from their lengths.

A quick lexical model for looking at a corpus, not for translating: IBM model 1 (Brown
et al. 1993) over the most frequent words of a sample of lines. A word here is a run of
letters in lower case, or one character of a script written without spaces, so that text
that is not tokenised can be looked at too. Lengths are compared as their logarithms,
as if these were normally distributed.
"""

import re
from array import array
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvnmt.data.inspection.scan import Index, Scan
from kvnmt.data.scripts import UNSPACED

WORDS = 3000  # on each side, the most frequent
MIN_COUNT = 4
PER_LINE = 12  # words looked at, the first
SAMPLE = 40_000  # lines to learn from
EVERYWHERE = 0.3  # a word in more lines than that tells nothing
ROUNDS = 4  # of expectation and maximisation
PRIOR = 4.0  # how often, as it were, every word was seen with words drawn at random
UNRELATED = 0.2  # share of target words that no source word explains

_WORD = re.compile(f"[{UNSPACED}]|[^\\W{UNSPACED}]+|[?!？！]")


class Rows(NamedTuple):
    """The frequent words and the length of every line of one side."""

    words: NDArray[np.int32]  # [lines, PER_LINE], -1 where there is none
    length: NDArray[np.float32]  # [lines], logarithm of the characters and one
    size: int  # different words

    def __len__(self) -> int:
        """Returns the number of lines."""
        return len(self.length)

    def take(self, lines: NDArray[np.int64]) -> "Rows":
        """Returns some of the lines."""
        return Rows(self.words[lines], self.length[lines], self.size)


@dataclass(frozen=True)
class Lexicon:
    """The frequent words of a text, and those that each word of the text holds."""

    frequent: NDArray[np.int32]  # word after word of the text
    starts: NDArray[np.int64]  # of every word of the text in it, and the end
    size: int  # how many frequent words there are

    def rows(self, text: Scan) -> Rows:
        """Returns the frequent words of all lines of a text."""
        parts = []
        for start in range(0, len(text), SAMPLE):
            bounds = text.starts[start : start + SAMPLE + 1]
            parts.append(self._block(text.words[bounds[0] : bounds[-1]], bounds))
        words = np.concatenate(parts or [np.zeros((0, PER_LINE), np.int32)])
        return Rows(words, np.log1p(text.letters).astype(np.float32), self.size)

    def _block(self, words: NDArray, bounds: NDArray) -> NDArray[np.int32]:
        frequent, line = _expand(words, bounds, self.frequent, self.starts)
        before = np.searchsorted(line, np.arange(len(bounds) - 1))
        place = np.arange(len(line)) - before[line]
        kept = place < PER_LINE
        rows = np.full((len(bounds) - 1, PER_LINE), -1, np.int32)
        rows[line[kept], place[kept]] = frequent[kept]
        return rows


class Agreement(NamedTuple):
    """A lexical model of a pair of languages, learnt from a corpus."""

    words: NDArray[np.float32]  # [source words, target words], nats; -1 is no word
    mean: NDArray[np.float32]  # of the two lengths
    deviation: NDArray[np.float32]
    correlation: float

    def score(self, source: Rows, target: Rows) -> NDArray[np.float32]:
        """Logarithm of how much likelier each pair is than two lines at random."""
        result = np.empty(len(source), np.float32)
        for start in range(0, len(source), SAMPLE):
            part = slice(start, start + SAMPLE)
            s, t = source.words[part], target.words[part]
            best = self.words[s[:, 0, None], t]
            for place in range(1, PER_LINE):
                np.maximum(best, self.words[s[:, place, None], t], out=best)
            result[part] = best.sum(1)
        return result + self._lengths(source.length, target.length)

    def _lengths(self, source: NDArray, target: NDArray) -> NDArray[np.float32]:
        x = (source - self.mean[0]) / self.deviation[0]
        y = (target - self.mean[1]) / self.deviation[1]
        r = self.correlation
        left = 1 - r * r
        square = r * r * (x * x + y * y) - 2 * r * x * y
        return -0.5 * np.log(left) - square / (2 * left)


def make_lexicon(text: Scan, index: Index) -> Lexicon:
    """Chooses the frequent words of a text; ``index`` numbered its words."""
    units: dict[str, int] = {}
    flat, sizes = array("i"), array("i")  # a line may be one word, of many characters
    for word in index:
        parts = _WORD.findall(word.lower())
        sizes.append(len(parts))
        flat.extend([units.setdefault(part, len(units)) for part in parts])
    starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
    uses, every = np.bincount(text.words, minlength=len(sizes)), np.array(flat)
    counts = np.zeros(len(units))
    for first in range(0, len(sizes), SAMPLE):
        some = slice(first, first + SAMPLE)
        place = slice(*starts[some.start : some.stop + 1][[0, -1]])
        weights = np.repeat(uses[some], sizes[some])
        counts += np.bincount(every[place], weights, minlength=len(units))
    counts[counts > EVERYWHERE * len(text)] = 0
    ranked = np.argsort(-counts, kind="stable")[:WORDS]
    ranked = ranked[counts[ranked] >= MIN_COUNT]
    numbers = np.full(len(units), -1, np.int32)
    numbers[ranked] = np.arange(len(ranked))
    return Lexicon(numbers[every], starts, len(ranked))


def learn(source: Rows, target: Rows) -> Agreement:
    """Learns from pairs of lines, most of which should translate each other."""
    lengths = np.stack([source.length, target.length])
    mean, deviation = lengths.mean(1), lengths.std(1) + 1e-3
    normal = (lengths - mean[:, None]) / deviation[:, None]
    correlation = float(np.clip((normal[0] * normal[1]).mean(), 0, 0.95))
    return Agreement(_model1(source, target), mean, deviation, correlation)


def strength(source: Rows, target: Rows) -> float:
    """How far the words of paired lines are from independent, in nats per word pair."""
    shape = source.size, target.size
    s, t, _ = _cells(source.words, target.words)
    joint = np.bincount(s * target.size + t, minlength=source.size * target.size)
    joint = joint.reshape(shape).astype(np.float64)
    expected = np.outer(joint.sum(1), joint.sum(0)) / max(len(s), 1)
    seen = joint > 0
    ratio = np.log(joint[seen] / expected[seen])
    return float((joint[seen] * ratio).sum() / max(len(s), 1))


def _model1(source: Rows, target: Rows) -> NDArray[np.float32]:
    s, t, place = _cells(source.words, target.words)
    cells, inverse = np.unique(s * target.size + t, return_inverse=True)
    rows, columns = np.divmod(cells, max(target.size, 1))
    known = target.words[target.words >= 0]
    share = np.bincount(known, minlength=target.size) / max(len(known), 1)
    ratio = np.ones(len(cells))  # p(target word | source word) / p(target word)
    for _ in range(ROUNDS):
        weights = ratio[inverse]
        total = np.bincount(place, weights, minlength=target.words.size)
        counts = np.bincount(inverse, weights / total[place], minlength=len(cells))
        totals = np.bincount(rows, counts, minlength=source.size)
        expected = (totals[rows] + PRIOR) * share[columns]
        ratio = (counts + PRIOR * share[columns]) / expected
    table = np.full((source.size + 1, target.size + 1), np.log(UNRELATED), np.float32)
    table[rows, columns] = np.log(UNRELATED + (1 - UNRELATED) * ratio)
    table[:, -1] = 0
    return table


def _cells(source: NDArray, target: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """All pairs of words in paired lines, and the place of the target word."""
    both = (source[:, :, None] >= 0) & (target[:, None, :] >= 0)
    line, i, j = np.nonzero(both)
    place = line * target.shape[1] + j
    return source[line, i].astype(np.int64), target[line, j].astype(np.int64), place


def _expand(
    words: NDArray, bounds: NDArray, frequent: NDArray, starts: NDArray
) -> tuple[NDArray, NDArray]:
    """The frequent words in a block of lines, and the line of each."""
    sizes = starts[words + 1] - starts[words]
    ends = np.cumsum(sizes)
    at = np.arange(ends[-1] if len(ends) else 0)
    at += np.repeat(starts[words] - (ends - sizes), sizes)
    line = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    line = np.repeat(line, sizes)
    numbers = frequent[at]
    return numbers[numbers >= 0], line[numbers >= 0]
