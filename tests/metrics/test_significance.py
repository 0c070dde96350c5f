# SPDX-License-Identifier: Apache-2.0
"""Statistical tests: worked by hand, and against scoring everything again."""

import math
import random

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU

from kvnmt.errors import UserError
from kvnmt.metrics import significance
from kvnmt.metrics.bleu import (
    Settings,
    bleu_of,
    corpus_bleu,
    corpus_chrf,
    sentence_bleu,
    sentence_statistics,
)
from kvnmt.metrics.significance import (
    SignTest,
    bootstrap,
    interval,
    resample,
    sign_test,
    t_test,
)

PLAIN = Settings("none")
RNG = random.Random(7)
REFERENCES = [" ".join(RNG.choices("abcdef", k=RNG.randint(1, 12))) for _ in range(40)]


@pytest.fixture
def all_trials(monkeypatch) -> None:
    """As many as users have: the tests' own setting makes fewer."""
    monkeypatch.setattr(significance, "TRIALS", 10_000)


def noisy(seed: int, share: float) -> list[str]:
    """The references with some of their words replaced."""
    rng = random.Random(seed)
    return [
        " ".join(rng.choice("abcdef") if rng.random() < share else w for w in r.split())
        for r in REFERENCES
    ]


def unsmoothed(hypotheses: list[str], references: list[str]) -> float:
    metric = BLEU(tokenize="none", smooth_method="none", force=True)
    return metric.corpus_score(hypotheses, [references]).score


def p_greater(baseline: np.ndarray, system: np.ndarray) -> float:
    return t_test(sentence_bleu(system) - sentence_bleu(baseline), "greater")


def counted(hypotheses: list[str]) -> np.ndarray:
    return sentence_statistics(hypotheses, REFERENCES, PLAIN)


def test_the_interval_is_as_wide_as_sacrebleus(monkeypatch):
    """It draws otherwise; of ten seeds the mean is taken."""
    monkeypatch.setattr(significance, "RESAMPLES", 1000)
    hypotheses, ours, theirs = noisy(3, 0.2), [], []
    for seed in range(10):
        monkeypatch.setenv("SACREBLEU_SEED", str(seed))
        bounds = interval(counted(hypotheses))
        assert bounds is not None and bounds == interval(counted(hypotheses))
        metric = BLEU(tokenize="none", force=True)
        score = metric.corpus_score(hypotheses, [REFERENCES], n_bootstrap=1000)
        assert bounds[0] < score.score < bounds[1]
        ours.append((bounds[1] - bounds[0]) / 2)
        theirs.append(score._ci)
    assert np.mean(ours) == pytest.approx(np.mean(theirs), rel=0.03)


def test_there_is_no_interval_of_a_single_sentence():
    assert interval(counted(noisy(3, 0.2))[:1]) is None


@pytest.mark.parametrize("cut", [slice(None), slice(1, None), slice(0, 3)])
def test_bleu_of_shorter_and_longer_texts_is_sacrebleus(cut):
    """The brevity penalty, and none for what is too long."""
    short = [" ".join(line.split()[cut]) for line in REFERENCES]
    for own, references in ((short, REFERENCES), (REFERENCES, short)):
        counts = sentence_statistics(own, references, PLAIN).sum(0)
        assert bleu_of(counts) == pytest.approx(unsmoothed(own, references))


@pytest.mark.parametrize("share", [0.0, 0.2, 0.6])
def test_bleu_of_summed_statistics_is_sacrebleus(share):
    own = noisy(1, share)
    assert bleu_of(counted(own).sum(0)) == pytest.approx(unsmoothed(own, REFERENCES))


def test_bleu_of_nothing_is_0():
    rows = sentence_statistics(["", "x y", "a b c"], ["a b", "a b", "a b c d"], PLAIN)
    assert bleu_of(rows).tolist() == [0, 0, 0]  # no 4-grams, no match, too short


def test_sign_test_by_hand():
    # Baseline: "a b c d" three times, of which it has "a b c d", "a b c x", "a b c d".
    # System:                                       "a b c d", "a b c d", "x x x x".
    #   Sentence 1 the same: a tie. Sentence 2 in the baseline's place: all n-grams
    #   right, better. Sentence 3: fewer right, worse. So one up, one down: p = 1.
    references = ["a b c d"] * 3
    baseline = sentence_statistics(["a b c d", "a b c x", "a b c d"], references, PLAIN)
    system = sentence_statistics(["a b c d", "a b c d", "x x x x"], references, PLAIN)
    assert sign_test(baseline, system) == SignTest(1, 1, 1.0)


def test_sign_test_by_hand_without_a_doubt():
    # Eight sentences better, none worse: p = 2 / 2^8.
    references = ["a b c d"] * 9
    worse = sentence_statistics(["a b c x"] * 8 + ["a b c d"], references, PLAIN)
    right = sentence_statistics(references, references, PLAIN)
    assert sign_test(worse, right) == SignTest(8, 0, pytest.approx(2 / 256))
    assert sign_test(right, worse) == SignTest(0, 8, pytest.approx(2 / 256))
    assert sign_test(right, right) == SignTest(0, 0, 1.0)


def test_the_sign_test_does_what_scoring_everything_again_does():
    """Of every sentence: the baseline's corpus with that one replaced, scored anew."""
    baseline, system = noisy(1, 0.4), noisy(2, 0.3)
    whole, improved, worsened = unsmoothed(baseline, REFERENCES), 0, 0
    for i, replaced in enumerate(system):
        mixed = [*baseline[:i], replaced, *baseline[i + 1 :]]
        change = unsmoothed(mixed, REFERENCES) - whole
        improved += change > 1e-9
        worsened += change < -1e-9
    tails = sum(math.comb(improved + worsened, k) for k in range(worsened + 1))
    p = min(1.0, 2 * tails / 2 ** (improved + worsened))
    assert improved > worsened > 3
    found = sign_test(counted(baseline), counted(system))
    assert found == SignTest(improved, worsened, pytest.approx(p))


def test_t_test_by_hand():
    # Sentence BLEU 100 against 50 and 100 against 100, by sacrebleu's own function.
    baseline, system = counted(noisy(1, 0.4)), counted(noisy(2, 0.1))
    metric = BLEU(tokenize="none", effective_order=True, force=True)
    shorter = [" ".join(line.split()[n % 3 :]) for n, line in enumerate(REFERENCES)]
    for lines in (noisy(1, 0.4), shorter):
        pairs = zip(lines, REFERENCES)
        scores = [metric.sentence_score(line, [wanted]).score for line, wanted in pairs]
        np.testing.assert_allclose(sentence_bleu(counted(lines)), scores)
    difference = sentence_bleu(system) - sentence_bleu(baseline)
    n = len(difference)
    t = difference.mean() / (difference.std(ddof=1) / math.sqrt(n))
    # The tail of Student's t by summing its density, n - 1 degrees of freedom.
    points = np.linspace(t, t + 200, 2_000_001)
    density = (1 + points**2 / (n - 1)) ** (-n / 2)
    norm = math.gamma(n / 2) / math.gamma((n - 1) / 2) / math.sqrt((n - 1) * math.pi)
    tail = norm * np.trapezoid(density, points)
    assert p_greater(baseline, system) == pytest.approx(tail, rel=1e-4)
    assert p_greater(system, baseline) == pytest.approx(1 - tail, rel=1e-4)
    assert p_greater(system, system) == 1.0
    always = [
        sentence_statistics([own] * 8, ["a b c d"] * 8, PLAIN)
        for own in ("a b c x", "a b c d")
    ]
    assert p_greater(*always) == 0.5**8  # as small as an exact one-tailed test can be
    assert p_greater(*(rows[:1] for rows in always)) == 0.5
    gains = np.full(8, -0.1)
    assert t_test(gains, "greater") == 1.0
    assert t_test(gains, "two-sided") == t_test(-gains, "two-sided") == 2 * 0.5**8
    assert t_test(gains[:1], "two-sided") == 1.0


@pytest.mark.usefixtures("all_trials")
@pytest.mark.parametrize("kind", ["bootstrap", "randomisation"])
def test_resampling_tells_a_better_system_from_one_that_is_no_better(kind):
    baseline, equal, better = noisy(1, 0.4), noisy(3, 0.4), noisy(2, 0.1)
    found = resample([baseline, equal, better, baseline], REFERENCES, kind, PLAIN)
    for metric in ("BLEU", "chrF2"):
        none, much, same = found.p[metric]
        assert much < 0.01 < 0.05 < none <= 1
        assert same == 1
    assert "tok:none" in found.signatures["BLEU"]
    assert {"bootstrap": "bs:1000", "randomisation": "ar:10000"}[kind] in (
        found.signatures["BLEU"]
    )
    assert resample([baseline, better], REFERENCES, kind, PLAIN).p["BLEU"] == [
        found.p["BLEU"][1]
    ]


@pytest.mark.parametrize("share", [0.1, 0.3, 0.38, 0.4])
def test_the_bootstrap_of_counts_is_that_of_lines(share):
    baseline, system = noisy(1, 0.4), noisy(2, share)
    (p,) = resample([baseline, system], REFERENCES, "bootstrap", PLAIN).p["BLEU"]
    assert bootstrap(counted(baseline), counted(system)) == pytest.approx(p)
    assert bootstrap(counted(system), counted(system)) == 1.0


def test_the_bootstrap_is_two_sided():
    """Two equally good systems: p is anything between 0 and 1, as often as it should.

    Which of two translations is whose is drawn anew for every pair of systems.
    """
    one, other = counted(noisy(1, 0.3)), counted(noisy(2, 0.3))
    coins = np.random.default_rng(3).integers(2, size=(200, len(one), 1)).astype(bool)
    p = [
        bootstrap(*(np.where(c, a, b) for a, b in ((one, other), (other, one))))
        for c in coins
    ]
    assert np.mean(np.array(p) < 0.1) < 0.16
    assert 0.4 < np.median(p) < 0.6
    assert max(p) > 0.9
    assert bootstrap(one, other) == pytest.approx(bootstrap(other, one))


@pytest.mark.parametrize("kind", ["bootstrap", "randomisation"])
def test_the_seed_is_that_of_the_environment(kind, monkeypatch):
    two = [noisy(1, 0.4), noisy(2, 0.38)]
    for seed, told in (("7", "seed:7"), ("none", "seed:none")):
        monkeypatch.setenv("SACREBLEU_SEED", seed)
        found = resample(two, REFERENCES, kind, PLAIN)
        assert told in found.signatures["BLEU"]
    others = set()
    for seed in range(7, 13):
        monkeypatch.setenv("SACREBLEU_SEED", str(seed))
        others |= {*resample(two, REFERENCES, kind, PLAIN).p["BLEU"]}
    assert len(others) > 1  # other draws
    monkeypatch.setenv("SACREBLEU_SEED", "abc")
    with pytest.raises(UserError, match="SACREBLEU_SEED is 'abc' but must be none or"):
        resample(two, REFERENCES, kind, PLAIN)


@pytest.mark.parametrize("kind", ["bootstrap", "randomisation"])
def test_no_p_is_smaller_than_so_few_sentences_allow(kind):
    """With n sentences that differ 2 to the power of 1 - n is the least; ties are 1."""
    for n in (1, 2, 3, 5):
        worse = ["x y z w" if i < n else line for i, line in enumerate(REFERENCES)]
        p = resample([worse, REFERENCES], REFERENCES, kind, PLAIN).p["BLEU"][0]
        assert p >= 2.0 ** (1 - n)
    tied = resample([["zz yy"] * 9, ["zz xx"] * 9], ["a b"] * 9, kind, PLAIN)
    assert tied.p["BLEU"] == [1]
    cased = ["A b c d"] * 9
    plain = [line.lower() for line in cased]
    lower = Settings("none", lowercase=True)
    assert resample([cased, plain], plain, kind, lower).p == {"BLEU": [1], "chrF2": [1]}
    assert "case:lc" in resample([cased, plain], plain, kind, lower).signatures["chrF2"]


@pytest.mark.parametrize("kind", ["bootstrap", "randomisation"])
def test_no_difference_at_all_is_less_than_any_chance(kind):
    """One is wrong where the other is right: all of the trials differ as much."""
    right = ["a b c d e f"] * 6
    one, other = ["a b c d x y", *right[1:]], [*right[1:], "a b c d x y"]
    assert resample([one, other], right, kind, PLAIN).p == {"BLEU": [1], "chrF2": [1]}
    assert resample([one, one], right, kind, PLAIN).p == {"BLEU": [1], "chrF2": [1]}


@pytest.mark.usefixtures("all_trials")
def test_randomisation_is_the_exact_test_but_for_chance():
    """Of all 1 024 ways to interchange what 8 sentences gain and 2 lose, 112."""
    lines = [f"a{i} b c d e f g h" for i in range(10)] + ["x y z w v u"] * 40
    worse = [line.replace("h", "Q") for line in lines]
    one, other = worse[:8] + lines[8:], lines[:8] + worse[8:]
    p = resample([one, other], lines, "randomisation", PLAIN).p
    assert p["BLEU"] == p["chrF2"] == [pytest.approx(112 / 1024, abs=0.012)]


@pytest.mark.parametrize("kind", ["bootstrap", "randomisation"])
def test_what_a_metric_cannot_see_makes_no_sentence_differ(kind):
    """Stops that stand apart, in one of two systems, are the same to 13a."""
    lines = [f"the cat {i} sat on the mat." for i in range(40)]
    apart = [line.replace(".", " .") for line in lines]
    worse = [line.replace("cat", "dog") for line in apart[:3]] + apart[3:]
    assert resample([apart, lines], lines, kind).p["BLEU"] == [1]
    assert resample([worse, lines], lines, kind).p["BLEU"][0] >= 0.25


def test_the_seed_0_is_one(monkeypatch):
    monkeypatch.setenv("SACREBLEU_SEED", "0")
    two = [noisy(1, 0.4), noisy(2, 0.38)]
    once, again = (resample(two, REFERENCES, "randomisation", PLAIN) for _ in "ab")
    assert once == again and "seed:0" in once.signatures["BLEU"]


def test_a_blank_line_is_no_reference_beside_a_filled_one():
    """Nor does it let a translation of no words be long enough."""
    lines = ["the cat sat on the mat"] * 4
    blank = ["", *lines[1:]]
    cut = ["", *lines[1:]]
    for score in (corpus_bleu, corpus_chrf):
        alone, both = score(cut, lines), score(cut, lines, more=[blank])
        assert both.score == alone.score < 99
    counts = sentence_statistics(cut, lines, PLAIN, [blank])
    assert (counts == sentence_statistics(cut, lines, PLAIN)).all()
    nothing = corpus_bleu(["", "a b"], ["", "a b"], more=[["", "b a"]], tokenize="none")
    assert "nrefs:2" in nothing.signature
    filled, empty = sentence_statistics(["a", "a"], ["", ""], PLAIN, [["a b", " "]])
    assert (filled[-1], empty[-1]) == (2, 0)  # words of the reference
    chrf = corpus_chrf(["ab", "cd"], ["", "cd"], more=[["ab", ""]])
    assert chrf.score == 100


def test_as_many_hypotheses_as_references():
    with pytest.raises(UserError, match="2 hypotheses but 1 references"):
        sentence_statistics(["a", "b"], ["a"])
    with pytest.raises(UserError, match="2 hypotheses but 1 references"):
        resample([["a"], ["a", "b"]], ["a"], "bootstrap")
