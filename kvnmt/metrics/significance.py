# SPDX-License-Identifier: Apache-2.0
"""Whether one system's score differs from another's by more than chance.

=================  ============================================================
sign test          Collins et al. 2005, section 3; Meng et al. 2018, table 1:
                   for every sentence, corpus BLEU of the baseline with that
                   one translation replaced by the system's. Two-sided.
t-test             Miculicich et al. 2018, section 6: paired, one-tailed, here
                   over smoothed sentence BLEU (the paper does not say over
                   what)
bootstrap          Koehn 2004, by sacrebleu: 1 000 resamples. Two-sided.
randomisation      Riezler and Maxwell 2005, by sacrebleu: 10 000 trials
=================  ============================================================

sacrebleu draws from the seed in the environment variable SACREBLEU_SEED, 12345 if
there is none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest
from scipy import stats

from kvnmt.metrics.bleu import (
    Settings,
    bleu_metric,
    bleu_of,
    check_counts,
    sentence_bleu,
)

TIE = 1e-9  # BLEU points; a smaller difference is none
RESAMPLES, SEED = 1000, 12345  # of the bootstrap, as sacrebleu has them
TRIALS = {"bootstrap": RESAMPLES, "randomisation": 10_000}  # by sacrebleu


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


def t_test(baseline: NDArray[np.integer], system: NDArray[np.integer]) -> float:
    """Tests whether the system is better: p of the one-tailed paired t-test.

    Where all sentences gain alike there is no t, and p is the least of an exact test.

    Args:
        baseline: [sentences, 10], as of `kvnmt.metrics.bleu.sentence_statistics`.
        system: The same for the other system.
    """
    difference = sentence_bleu(system) - sentence_bleu(baseline)
    if np.ptp(difference) < TIE:  # no variance, or a single sentence
        return _least_p(len(difference)) if difference.mean() > TIE else 1.0
    result: Any = stats.ttest_1samp(difference, 0.0, alternative="greater")
    return float(result.pvalue)


def resample(
    hypotheses: Sequence[Sequence[str]],
    references: Sequence[str],
    kind: Literal["bootstrap", "randomisation"],
    settings: Settings = Settings(),
    more: Sequence[Sequence[str]] = (),
) -> Resampled:
    """Runs the paired tests of sacrebleu on several systems against the first.

    sacrebleu counts only trials that differ by more than the systems do, so that equal
    scores, or a difference in a handful of sentences, come out as significant. With n
    sentences that differ, no exact test can go below 2 to the power of 1 - n: p is not
    let below that, and is 1 where the scores are equal.

    Args:
        hypotheses: The translations of every system, the baseline's first.
        references: One for every sentence.
        kind: Paired bootstrap or paired approximate randomisation.
        settings: How text is taken apart.
        more: Further references.
    """
    for lines in hypotheses:
        check_counts(lines, references, *more)
    named = [(str(number), lines) for number, lines in enumerate(hypotheses)]
    metrics = {
        "BLEU": bleu_metric(settings),
        "chrF2": CHRF(lowercase=settings.lowercase),
    }
    short: Literal["bs", "ar"] = "bs" if kind == "bootstrap" else "ar"
    test = PairedTest(
        named, metrics, [references, *more], test_type=short, n_samples=TRIALS[kind]
    )
    signatures, results = test()
    scores: dict[str, list[Any]] = {name: results[name] for name in metrics}
    counts = [_differing(lines, hypotheses[0], settings) for lines in hypotheses[1:]]
    return Resampled(
        {
            name: [
                _valid(values[0], system, n) for system, n in zip(values[1:], counts)
            ]
            for name, values in scores.items()
        },
        {name: str(signatures[name]) for name in metrics},
    )


def _differing(one: Sequence[str], other: Sequence[str], settings: Settings) -> int:
    """How many sentences a metric could tell apart."""
    kept = [
        [line.lower() if settings.lowercase else line for line in lines]
        for lines in (one, other)
    ]
    return sum(a.split() != b.split() for a, b in zip(*kept))


def _valid(baseline: Any, system: Any, differing: int) -> float:
    if abs(system.score - baseline.score) < TIE:
        return 1.0
    return max(system.p_value, _least_p(differing))


def _least_p(differing: int) -> float:
    """The least p of an exact test on so many sentences that differ."""
    return min(1.0, 2.0 ** (1 - differing))


def bootstrap(baseline: NDArray[np.integer], system: NDArray[np.integer]) -> float:
    """The paired bootstrap of `resample` from counts alone; always the same draws.

    BLEU is not smoothed, which makes a difference in texts of a few lines.

    Args:
        baseline: [sentences, 10], as of `kvnmt.metrics.bleu.sentence_statistics`.
        system: The same for the other system.

    Returns:
        p, two-sided.
    """
    found = float(abs(bleu_of(system.sum(0)) - bleu_of(baseline.sum(0))))
    if found < TIE:
        return 1.0
    count = len(baseline)
    draws = np.random.default_rng(SEED).choice(count, size=(RESAMPLES, count))
    times = np.stack([np.bincount(draw, minlength=count) for draw in draws])
    differences = np.abs(bleu_of(times @ system) - bleu_of(times @ baseline))
    larger = int((differences - differences.mean() > found).sum())
    differing = int((baseline != system).any(1).sum())
    return max((larger + 1) / (RESAMPLES + 1), _least_p(differing))


def stars(p_above: float | None, p_baseline: float | None, level: float = 0.01) -> str:
    """What tables print behind a score.

    Args:
        p_above: Against the row above, where the system's score is the higher one.
        p_baseline: Against the baseline, where the system's score is the higher one.
        level: Below which a difference is significant; Meng et al. take 0.01.

    Returns:
        ``*`` for the row above, ``+`` for the baseline, or both.
    """
    marks = (("*", p_above), ("+", p_baseline))
    return "".join(mark for mark, p in marks if p is not None and p < level)
