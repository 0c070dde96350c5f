# SPDX-License-Identifier: Apache-2.0
"""Whether one system's score differs from another's by more than chance.

=================  ============================================================
sign test          Collins et al. 2005, section 3; Meng et al. 2018, table 1:
                   for every sentence, corpus BLEU of the baseline with that
                   one translation replaced by the system's. Two-sided.
t-test             Miculicich et al. 2018, section 7: paired, one-tailed, here
                   over smoothed sentence BLEU (the paper does not say over
                   what)
bootstrap          Koehn 2004: 1 000 resamples. Two-sided, not as sacrebleu has it.
randomisation      Riezler and Maxwell 2005: 10 000 trials. As above.
=================  ============================================================

Both resamplings draw from the seed in the environment variable SACREBLEU_SEED, 12345 if
there is none.

The difference in a resample is that of the systems plus chance. Minus the mean of all
resamples it is only chance, and p is how often that is as large as the difference of
the systems, with either sign. sacrebleu 2.6 drops the sign before it takes the mean,
as a script of Moses did: at the level of 0.05 it tells 10 in 100 pairs of equally good
systems apart, and p is hardly ever above 0.45. Here it is 5 in 100. sacrebleu's
randomisation leaves out trials that differ by just as much as the systems do: where 8
sentences gain and 2 lose alike, its p is 0.024, and 0.109 over all 1 024 trials.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.chrf import CHRF
from scipy import stats

from kvnmt.errors import UserError
from kvnmt.metrics.bleu import (
    Settings,
    bleu_metric,
    bleu_of,
    sentence_counts,
    summed_bleu,
)

TIE = 1e-9  # BLEU points; a smaller difference is none
LEVEL = 0.01  # below which p has a star, as in Meng et al.
BOUNDS = 2.5, 97.5  # percentiles of resamples
RESAMPLES, TRIALS, SEED = 1000, 10_000, 12345  # as sacrebleu has them
AT_ONCE = 2**21  # most sentences of resamples that are drawn together

Counts: TypeAlias = Sequence[NDArray[np.int64]]  # [sentences, counts] of every system
Scores: TypeAlias = Callable[[NDArray[np.int64]], NDArray[np.floating]]  # of sums


@dataclass(frozen=True)
class SignTest:
    """How many sentences, put in the baseline's place, move its corpus BLEU."""

    improved: int
    worsened: int
    p: float


class Resampled(NamedTuple):
    """p-values of all systems but the first, against the first, by metric."""

    p: dict[str, list[float]]  # "BLEU" and "chrF2"
    signatures: dict[str, str]


def sign_test(baseline: NDArray[np.integer], system: NDArray[np.integer]) -> SignTest:
    """The sign test on corpus BLEU without smoothing.

    Replacing sentence i changes the summed statistics by one row, so that all n
    corpora are scored at once and nothing is counted again. Ties are left out.

    Args:
        baseline: [sentences, 10], as of `kvnmt.metrics.bleu.sentence_statistics`.
        system: The same for the other system.
    """
    whole = baseline.sum(0)
    change = bleu_of(whole - baseline + system) - bleu_of(whole)
    improved, worsened = int((change > TIE).sum()), int((change < -TIE).sum())
    moved = improved + worsened
    p = float(stats.binomtest(improved, moved).pvalue) if moved else 1.0
    return SignTest(improved, worsened, p)


def t_test(
    gains: NDArray[np.floating], alternative: Literal["greater", "two-sided"]
) -> float:
    """The p of the paired t-test of what a system gains on each sentence.

    Where all n sentences gain alike there is no t, and p is the least of an exact
    test: 2 to the power of -n, and twice that if it is two-sided.
    """
    if np.ptp(gains) < TIE:  # no variance, or a single sentence
        gain, sides = gains.mean(), 1 if alternative == "greater" else 2
        differs = gain > TIE if sides == 1 else abs(gain) > TIE
        return min(1.0, sides * 0.5 ** len(gains)) if differs else 1.0
    result: Any = stats.ttest_1samp(gains, 0.0, alternative=alternative)
    return float(result.pvalue)


def resample(
    hypotheses: Sequence[Sequence[str]],
    references: Sequence[str],
    kind: Literal["bootstrap", "randomisation"],
    settings: Settings = Settings(),
    more: Sequence[Sequence[str]] = (),
) -> Resampled:
    """Compares several systems with the first by a paired test over sentences.

    With n sentences whose counts differ, no exact test can go below 2 to the power of
    1 - n: p is not let below that, and is 1 where the scores are equal.

    Args:
        hypotheses: The translations of every system, the baseline's first.
        references: One for every sentence.
        kind: Paired bootstrap or paired approximate randomisation.
        settings: How text is taken apart.
        more: Further references.
    """
    metrics: dict[str, Metric] = {
        "BLEU": bleu_metric(settings),
        "chrF2": CHRF(lowercase=settings.lowercase),
    }
    seed, result = seed_of_environment(), Resampled({}, {})
    for name, metric in metrics.items():
        counts = [sentence_counts(metric, x, references, more) for x in hypotheses]
        signature: Any = metric.get_signature()
        signature.update("seed", str(seed).lower())
        score = partial(_scores, metric)
        if kind == "bootstrap":
            signature.update("bs", RESAMPLES)
            values = _bootstrapped(score, counts, seed)
        else:
            signature.update("ar", TRIALS)
            values = _randomised(score, counts, seed)
        result.signatures[name] = str(signature)
        result.p[name] = _bounded(score, counts, values)
    return result


def bootstrap(
    baseline: NDArray[np.int64],
    system: NDArray[np.int64],
    score: Scores = bleu_of,
    seed: int | None = SEED,
) -> float:
    """The paired bootstrap of `resample` from counts alone.

    BLEU is not smoothed, which makes a difference in texts of a few lines.

    Args:
        baseline: [sentences, counts], by default as of
            `kvnmt.metrics.bleu.sentence_statistics`.
        system: The same for the other system.
        score: Of sums of such counts; by default BLEU.
        seed: Of the draws; None: others each time.

    Returns:
        p, two-sided.
    """
    counts = [baseline, system]
    return _bounded(score, counts, _bootstrapped(score, counts, seed))[0]


def resampled_scores(
    counts: Counts, score: Scores = bleu_of, seed: int | None = SEED
) -> NDArray[np.floating]:
    """The score of every system in each resample of the sentences.

    Args:
        counts: [sentences, counts] of every system.
        score: Of sums of such counts; by default BLEU.
        seed: Of the draws; None: others each time.

    Returns:
        [systems, resamples]; the same sentences are drawn for all.
    """
    draws, count = np.random.default_rng(seed), len(counts[0])
    size = max(1, AT_ONCE // count)  # of so many resamples: one is as long as the text
    blocks: list[list[NDArray[np.floating]]] = []
    for start in range(0, RESAMPLES, size):
        places = draws.choice(count, size=(min(size, RESAMPLES - start), count))
        times = np.stack([np.bincount(draw, minlength=count) for draw in places])
        blocks.append([score(times @ rows) for rows in counts])
    return np.concatenate(blocks, axis=1)


def interval(
    counts: NDArray[np.integer], score: Callable[[Any], Any] = summed_bleu
) -> tuple[float, float] | None:
    """Between what bounds a score is in 95 of 100 resamples (Koehn 2004, section 3).

    Args:
        counts: [sentences, counts], by default as of
            `kvnmt.metrics.bleu.sentence_statistics`.
        score: Of the sum of such counts; by default BLEU.

    Returns:
        The lower and the upper one; None of a single sentence, which tells nothing.
    """
    count = len(counts)
    if count < 2:
        return None
    draws, scores = np.random.default_rng(seed_of_environment()), []
    for _ in range(RESAMPLES):  # one by one: they are as long as the test set
        times = np.bincount(draws.integers(count, size=count), minlength=count)
        scores.append(score(times @ counts))
    low, high = np.percentile(scores, BOUNDS)
    return float(low), float(high)


def seed_of_environment() -> int | None:
    """The seed of draws; None, for ``none`` in the environment: another each time.

    Raises:
        UserError: It is neither none nor a whole number from 0 on.
    """
    given = os.environ.get("SACREBLEU_SEED", str(SEED))
    if given.lower() == "none":
        return None
    if not given.isdecimal():
        raise UserError(
            f"SACREBLEU_SEED is '{given}' but must be none or a whole number."
        )
    return int(given)


def _scores(metric: Metric, sums: NDArray[np.int64]) -> NDArray[np.floating]:
    return np.array([metric._compute_score_from_stats(row).score for row in sums])


def _bounded(score: Scores, counts: Counts, values: Sequence[float]) -> list[float]:
    """No p is less than an exact test can give; that of a tie is 1."""
    whole = score(np.stack([rows.sum(0) for rows in counts]))
    return [
        1.0 if abs(its - whole[0]) < TIE else max(p, _differing(counts[0], rows))
        for p, its, rows in zip(values, whole[1:], counts[1:])
    ]


def _bootstrapped(score: Scores, counts: Counts, seed: int | None) -> list[float]:
    """Koehn's test: p of all systems but the first."""
    scores = resampled_scores(counts, score, seed)
    real = [score(rows.sum(0)[None])[0] for rows in counts]
    return [
        _by_chance(each - scores[0], difference - real[0])
        for each, difference in zip(scores[1:], real[1:])
    ]


def _randomised(score: Scores, counts: Counts, seed: int | None) -> list[float]:
    """The test of Riezler and Maxwell: each sentence's translations change places."""
    baseline = counts[0]
    coins = np.random.default_rng(seed)
    swaps = coins.integers(2, size=(TRIALS, len(baseline)), dtype=np.int8)
    p = []
    for rows in counts[1:]:
        moved = _products(swaps, rows - baseline)
        sums = [each.sum(0) for each in (baseline, rows)]
        real = np.diff(score(np.stack(sums)))[0]
        trials = score(sums[1] - moved) - score(sums[0] + moved)
        larger = int((np.abs(trials) >= abs(real) - TIE).sum())
        p.append((larger + 1) / (TRIALS + 1))
    return p


def _products(
    swaps: NDArray[np.int8], change: NDArray[np.int64], size: int = 500
) -> NDArray[np.int64]:
    """Their matrix product, some rows at a time: floats are fast, but large."""
    parts = [
        swaps[start : start + size].astype(np.float64) @ change
        for start in range(0, len(swaps), size)
    ]
    return np.concatenate(parts).round().astype(np.int64)


def _by_chance(resampled: NDArray[np.floating], difference: float) -> float:
    """How often chance alone makes a difference as large, with either sign."""
    chance = np.abs(resampled - resampled.mean())
    larger = int((chance >= abs(difference) - TIE).sum())
    return (larger + 1) / (len(resampled) + 1)


def _differing(baseline: NDArray[np.integer], system: NDArray[np.integer]) -> float:
    """The least p of an exact test on the sentences that differ."""
    count = int((baseline != system).any(1).sum())
    return min(1.0, 2.0 ** (1 - count))
