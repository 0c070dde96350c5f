# SPDX-License-Identifier: Apache-2.0
"""Tests of the rows of a table against a baseline, over seeds, sentences, and both.

A result keeps what BLEU is made of, sentence by sentence, in a line of text. So any two
results of the same test set can be compared, in whatever order they were measured.

Two runs of one seed are no pair: the same baseline, trained with the same seed by two
versions that round otherwise, differs from itself as much as two seeds do. But runs
that start from the same run are a pair, and so are a run and what is made of it. What
all seeds of a row share, such as a teacher, is not looked for.
"""

import base64
import zlib
from collections.abc import Mapping, Sequence
from math import comb
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from experiments.harness.results import Figures, told_apart
from experiments.harness.settings import agree
from kvnmt.metrics.bleu import Settings, bleu_of, sentence_statistics
from kvnmt.metrics.significance import TIE, bootstrap, resampled_scores

LEAST_SEEDS = 3  # that are tested
STORED = np.dtype("<i4")
WIDTH = 10  # of `sentence_statistics`


class Against(NamedTuple):
    """What the rows of a table are tested against."""

    baseline: Mapping[str, str]  # what tells its results from those of a row
    figure: str  # that is compared over the seeds
    counts: str  # what is compared over the sentences


def packed_counts(
    hypotheses: Sequence[str],
    references: Sequence[str],
    settings: Settings = Settings(tokenize="none"),
) -> str:
    """What BLEU is made of, by default of tokenised text, as a result keeps it."""
    counts = sentence_statistics(hypotheses, references, settings)
    return base64.b64encode(zlib.compress(counts.astype(STORED).tobytes())).decode()


def counts_in(text: str) -> NDArray[np.int64]:
    """The counts that `packed_counts` packed: [sentences, 10]."""
    plain = zlib.decompress(base64.b64decode(text))
    return np.frombuffer(plain, STORED).astype(np.int64).reshape(-1, WIDTH)


def p_over_seeds(
    group: Sequence[Figures], baseline: Sequence[Figures], against: Against
) -> float | None:
    """The p of a two-sided t-test over the seeds of both, three each at least.

    It is that of pairs if each result has its pair in the baseline, and Welch's if none
    has.

    Args:
        group: The results of a row.
        baseline: Those of its baseline.
        against: Says which figure is compared.

    Returns:
        None if there are too few seeds, or only some are pairs.
    """
    matched = _matched(group, baseline, against.figure)
    if matched is None:
        return None
    ours, theirs, paired = matched
    return _over_seeds(np.array(ours), np.array(theirs), paired).p()


def p_over_sentences(
    group: Sequence[Figures], baseline: Sequence[Figures], against: Against
) -> list[float]:
    """The p of the paired bootstrap for each seed that both have, in order.

    Args:
        group: The results of a row.
        baseline: Those of its baseline.
        against: Says where the counts are.
    """
    ours, theirs = (_by_seed(results, against.counts) for results in (group, baseline))
    pairs = [
        (counts_in(theirs[seed][against.counts]), counts_in(ours[seed][against.counts]))
        for seed in sorted(ours.keys() & theirs.keys())
    ]
    return [bootstrap(*pair) for pair in pairs if _same_references(*pair)]


def p_over_both(
    group: Sequence[Figures], baseline: Sequence[Figures], against: Against
) -> float | None:
    """The p of mean BLEU over seeds and sentences, both drawn anew; two-sided.

    The t-test takes the sentences as they are, the bootstrap the seeds. Here t is the
    difference over the root of a sum of variances: those of both means over their seeds
    (of pairs, that of the mean difference), and that of the difference over resamples
    of the sentences, the same for all runs. Its freedom is that of Welch and
    Satterthwaite. What seeds make of just these sentences counts in both, so p is
    rather too large than too small.

    Args:
        group: The results of a row.
        baseline: Those of its baseline.
        against: Says where the counts are.

    Returns:
        None if one of the two has fewer than three seeds, a seed has no counts, test
        sets differ, or only some are pairs.
    """
    matched = _matched(group, baseline, against.counts)
    told = [len(_by_seed(results, against.figure)) for results in (group, baseline)]
    counted = [len(_by_seed(results, against.counts)) for results in (group, baseline)]
    if matched is None or told != counted:
        return None
    ours, theirs, paired = matched
    counts, (n, m) = [*map(counts_in, [*ours, *theirs])], (len(ours), len(theirs))
    if not all(_same_references(counts[0], rows) for rows in counts):
        return None
    signs = np.repeat([1 / n, -1 / m], [n, m])
    scores = bleu_of(np.stack([rows.sum(0) for rows in counts]))
    by_sentences = (signs @ resampled_scores(counts)).var(ddof=1)
    seeds = _over_seeds(scores[:n], scores[n:], paired)
    return seeds.p((by_sentences, max(len(counts[0]) - 1, 1)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Corrects p for how many tests there are (Holm 1979), in the order given.

    If all tests that are then below a level are believed, the chance that any of them
    is wrong is at most that level, however the tests depend on each other.
    """
    order = np.argsort(p_values)
    corrected = np.empty(len(order))
    remaining = np.arange(len(order), 0, -1)
    corrected[order] = np.maximum.accumulate(np.take(p_values, order) * remaining)
    return np.minimum(corrected, 1.0).tolist()


def with_p(
    against: Against, by: Sequence[str], results: Sequence[Figures]
) -> list[Figures]:
    """Results with their p over sentences as `p`, where their baseline is among them.

    Args:
        against: What they are tested against.
        by: The fields that tell rows apart, but for the seed.
        results: Of the rows of a table.
    """

    def named(result: Figures, other: Mapping[str, str]) -> list[str]:
        return [str({**result, **other}.get(key, "")) for key in (*by, "data")]

    lines = []
    for result in results:
        name = named(result, against.baseline)
        is_baseline = named(result, {}) == name
        baseline = [r for r in results if not is_baseline and named(r, {}) == name]
        p = p_over_sentences([result], baseline, against)
        lines.append(result | ({"p": p[0]} if p else {}))
    return lines


class _Difference(NamedTuple):
    """How much higher the mean of a row is, and how sure that is over the seeds."""

    of_means: float
    variances: tuple[tuple[float, int], ...]  # that add up, each with its freedom
    least: float  # p of an exact test, of a difference without variance

    def p(self, *more: tuple[float, int]) -> float:
        """Two-sided, by Welch and Satterthwaite; further variances add up, too."""
        variances, freedom = np.array([*self.variances, *more]).T
        variance = variances.sum()
        if variance < TIE**2:  # no t
            return 1.0 if abs(self.of_means) < TIE else self.least
        together = variance**2 / (variances**2 / freedom).sum()
        return float(2 * stats.t.sf(abs(self.of_means) / variance**0.5, together))


def _over_seeds(
    ours: NDArray[np.floating], theirs: NDArray[np.floating], paired: bool
) -> _Difference:
    n, m, mean = len(ours), len(theirs), float(ours.mean() - theirs.mean())
    if paired:
        variance = (ours - theirs).var(ddof=1) / n
        return _Difference(mean, ((variance, n - 1),), 2 / 2**n)
    both = (ours.var(ddof=1) / n, n - 1), (theirs.var(ddof=1) / m, m - 1)
    return _Difference(mean, both, 2 / comb(n + m, n))


def _matched(
    group: Sequence[Figures], baseline: Sequence[Figures], key: str
) -> tuple[list[Any], list[Any], bool] | None:
    """A figure over the seeds of both, and whether they are pairs, then in order."""
    ours, theirs = (_by_seed(results, key) for results in (group, baseline))
    pairs = {seed in theirs and _related(ours[seed], theirs[seed]) for seed in ours}
    paired = pairs == {True}
    if paired:
        theirs = {seed: theirs[seed] for seed in ours}
    if min(len(ours), len(theirs)) < LEAST_SEEDS or len(pairs) > 1:
        return None
    told, others = ([row[key] for row in rows.values()] for rows in (ours, theirs))
    return told, others, paired


def _related(ours: Figures, theirs: Figures) -> bool:
    """Whether one was made of the other, or both, of one seed, of the same runs."""
    rows, others = ({**(result.get("based_on") or {})} for result in (ours, theirs))
    if rows.keys() & others.keys():
        return True
    # Former versions noted no rows: those that start warm start from their seed's.
    starts = (str(result.get("start")) for result in (ours, theirs))
    if not (rows and others) and all(start.startswith("warm") for start in starts):
        return True
    made = [(told, told_apart(theirs)) for told in rows.values()]
    made += [(told, told_apart(ours)) for told in others.values()]
    known = [both for both in made if all(told.partition(":")[0] for told in both)]
    return any(agree(*both) for both in known)


def _by_seed(results: Sequence[Figures], key: str) -> dict[int, Figures]:
    """Those that have the figure."""
    told = [r for r in results if None not in (r.get("seed"), r.get(key))]
    return {r["seed"]: r for r in told}


def _same_references(one: NDArray[np.int64], other: NDArray[np.int64]) -> bool:
    """Whether the sentences may be the same: their references have the same lengths."""
    return np.array_equal(one[:, -1], other[:, -1])
