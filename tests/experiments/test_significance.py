# SPDX-License-Identifier: Apache-2.0
"""Tests of rows of tables: over seeds, over sentences, and over both."""

import base64
import zlib
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from experiments.harness.significance import (
    Against,
    counts_in,
    p_over_both,
    p_over_seeds,
    p_over_sentences,
)
from kvnmt.metrics.bleu import bleu_of

AGAINST = Against({"system": "rnnsearch-star"}, "bleu", "counts")


def row(seed: int, bleu: float) -> dict[str, object]:
    return {"system": "rnnsearch-star", "seed": seed, "bleu": bleu}


def counted(matches: np.ndarray) -> str:
    """Sentences of four words, of which so many n-grams of each order are right."""
    rows = np.zeros((len(matches), 10), "<i4")
    rows[:, :4] = np.minimum(matches[:, None], np.arange(4, 0, -1))
    rows[:, 4:] = 4, 3, 2, 1, 4, 4
    return base64.b64encode(zlib.compress(rows.tobytes())).decode()


def of_seeds(matches: Sequence[np.ndarray]) -> list[dict[str, object]]:
    texts = [counted(each) for each in matches]
    scores = [float(bleu_of(counts_in(text).sum(0))) for text in texts]
    rows = enumerate(zip(scores, texts), 1)
    return [row(seed, bleu) | {AGAINST.counts: text} for seed, (bleu, text) in rows]


def test_seeds_are_tested_by_welch_s_test():
    """By hand: means 1 apart, variances 1 and 4, so t is 1 / sqrt(5 / 3)."""
    baseline = [row(seed, 36.0 + seed) for seed in (1, 2, 3)]
    group = [row(seed, 35.0 + 2 * seed) for seed in (1, 2, 3)]
    freedom = (5 / 3) ** 2 / ((1 / 3) ** 2 / 2 + (4 / 3) ** 2 / 2)
    expected = 2 * stats.t.sf(1 / (5 / 3) ** 0.5, freedom)
    assert p_over_seeds(group, baseline, AGAINST) == pytest.approx(expected)
    assert p_over_seeds(group[:2], baseline, AGAINST) is None


def made_of(results, *runs):
    return [
        result | {"start": "warm", "based_on": {f"run-{seed}": run}}
        for seed, (result, run) in enumerate(zip(results, runs), 1)
    ]


TOLD = "d-1:x", "d-2:x", "d-3:x"


@pytest.mark.parametrize("kind", ["made of it", "of one start", "unnoted", "reversed"])
def test_runs_of_one_start_are_tested_as_pairs(kind):
    """By hand: the differences are 1, 2 and 3, so t is 2 / sqrt(1 / 3)."""
    baseline = [
        row(seed, 36.0 + 5 * seed) | {"config": f"d-{seed}", "text": "x"}
        for seed in (1, 2, 3)
    ]
    group = [row(seed, 36.0 + 6 * seed) for seed in (1, 2, 3)]
    if kind in ("made of it", "reversed"):
        group = made_of(group, *TOLD)
    if kind == "of one start":
        group, baseline = made_of(group, *TOLD), made_of(baseline, *TOLD)
    if kind == "unnoted":
        group, baseline = (
            [r | {"start": "warm"} for r in g] for g in (group, baseline)
        )
    if kind == "reversed":
        group, baseline = baseline, group
    expected = 2 * stats.t.sf(2 / (1 / 3) ** 0.5, 2)
    assert p_over_seeds(group, baseline, AGAINST) == pytest.approx(expected)
    some = [group[0], row(2, 48.0), row(3, 54.0)]
    assert p_over_seeds(some, baseline, AGAINST) is None  # only one is a pair


def test_runs_of_which_nothing_is_told_are_no_pairs():
    baseline = [row(seed, 36.0 + 5 * seed) for seed in (1, 2, 3)]
    group = [row(seed, 36.0 + 6 * seed) for seed in (1, 2, 3)]
    welch = p_over_seeds(group, baseline, AGAINST)
    assert p_over_seeds(made_of(group, *TOLD), baseline, AGAINST) == welch
    known = [each | {"config": f"d-{each['seed']}"} for each in baseline]
    assert p_over_seeds(made_of(group, "", ":x", ":::"), known, AGAINST) == welch
    assert p_over_seeds(made_of(group, *TOLD[::-1]), known, AGAINST) is None  # but one


def test_pairs_and_sentences_are_tested_together():
    """Where all sentences are alike, that is the test of the pairs."""
    flat = [[np.full(9, n) for n in counts] for counts in ([2, 3, 4], [1, 2, 4])]
    ours, theirs = (made_of(of_seeds(counts), *TOLD) for counts in flat)
    pairs = p_over_seeds(ours, theirs, AGAINST)
    assert p_over_both(ours, theirs, AGAINST) == pytest.approx(pairs)
    ours, theirs = map(of_seeds, flat)
    assert pairs != pytest.approx(p_over_seeds(ours, theirs, AGAINST))


def test_seeds_and_sentences_are_tested_together():
    """Where sentences are alike it is Welch's test; where seeds are, the bootstrap."""
    flat = [[np.full(9, n) for n in counts] for counts in ([1, 1, 2], [3, 3, 4])]
    ours, theirs = map(of_seeds, flat)
    welch = p_over_seeds(ours, theirs, AGAINST)
    assert p_over_both(ours, theirs, AGAINST) == pytest.approx(welch)
    assert p_over_both(ours, theirs[:2], AGAINST) is None
    others = [theirs[0] | {"counts": counted(np.ones(8))}, *theirs[1:]]
    assert p_over_both(ours, others, AGAINST) is None
    random = np.random.default_rng(0)
    one, two = random.integers(1, 5, (2, 500))
    ours, theirs = of_seeds([one] * 3), of_seeds([two] * 3)
    (each, *_) = p_over_sentences(ours, theirs, AGAINST)
    assert 0.05 < each < 0.9
    assert p_over_both(ours, theirs, AGAINST) == pytest.approx(each, abs=0.05)
    assert p_over_both(ours, ours, AGAINST) == 1.0
    single = [of_seeds([np.full(1, n)] * 3) for n in (1, 4)]
    assert p_over_both(*single, AGAINST) == 0.1  # of one sentence, that never differs


def test_only_both_together_hold_their_level():
    """Of equally good systems, seeds make some better, and sentences suit some."""
    random, wrong = np.random.default_rng(5), np.zeros(3, int)
    for _ in range(100):
        suited = random.normal(2.5, 1.0, 100) + random.normal(0, 0.9, (2, 1, 100))
        said = suited + random.normal(0, 0.1, (2, 3, 1))
        said += random.normal(0, 0.1, (2, 3, 100))
        ours, theirs = map(of_seeds, said.round().clip(1, 4).astype(int))
        seeds = p_over_seeds(ours, theirs, AGAINST)
        (sentences, *_) = p_over_sentences(ours, theirs, AGAINST)
        p = p_over_both(ours, theirs, AGAINST), seeds, sentences
        wrong += np.array(p) < 0.05
    assert wrong[0] <= 5 < 10 < min(wrong[1:])


@pytest.mark.parametrize(("gain", "p", "pairs"), [(0.0, 1.0, 1.0), (1.5, 0.1, 0.25)])
def test_there_is_no_t_without_variance(gain, p, pairs):
    baseline = [row(seed, 36.0) for seed in (1, 2, 3)]
    group = [one | {AGAINST.figure: one[AGAINST.figure] + gain} for one in baseline]
    assert p_over_seeds(group, baseline, AGAINST) == p
    ours, theirs = made_of(group, *TOLD), made_of(baseline, *TOLD)
    assert p_over_seeds(ours, theirs, AGAINST) == pairs
