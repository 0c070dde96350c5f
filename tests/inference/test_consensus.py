# SPDX-License-Identifier: Apache-2.0
"""Minimum Bayes risk decoding: expected BLEU, and what is chosen by it."""

import math
from dataclasses import replace

import numpy as np
import pytest

from kvnmt.data.vocabulary import UNK
from kvnmt.inference.config import SearchConfig
from kvnmt.inference.consensus import most_alike, pairwise_bleu
from kvnmt.inference.translate import translate_nbest
from tests.inference.test_translate import build
from tests.training.test_risk import bleu


def test_bleu_of_all_pairs_is_sacrebleus():
    random = np.random.default_rng(0)
    several = [random.integers(2, 5, size).tolist() for size in (0, 1, 3, 5, 7, 7, 9)]
    want = [[bleu(ours, theirs) for theirs in several] for ours in several]
    want[0][0] = 1.0  # nothing and nothing are alike
    np.testing.assert_allclose(pairwise_bleu(several), want, atol=1e-12)
    assert len({*np.ravel(want)}) > 20


def test_an_unknown_word_is_like_no_other():
    (same, other), _ = pairwise_bleu([[4, UNK, 5], [4, UNK, 5]])
    assert same == other == pytest.approx(bleu([4, 6, 5], [4, 7, 5]))


def test_nothing_is_chosen_where_most_say_nothing():
    assert most_alike([[2], [], [], []], [-9.0, -1.0, -1.0, -1.0], 0.0) == 1


def test_the_choice_is_of_the_greatest_expected_bleu():
    odd, *alike = [7, 7, 7, 7], [2, 3, 4, 5, 6], [2, 3, 4, 5, 8], [2, 3, 4, 6]
    log_probs = [math.log(p) for p in (0.6, 0.1, 0.2, 0.1)]
    table = pairwise_bleu([odd, *alike])
    for exponent in (0.0, 0.3, 1.0):
        weights = np.exp(exponent * np.array(log_probs))
        want = int(np.argmax(table @ weights))
        assert most_alike([odd, *alike], log_probs, exponent) == want
    assert most_alike([odd, *alike], log_probs, 1.0) == 0  # it has most by itself
    assert most_alike([odd, *alike], log_probs, 0.0) == 1
    assert most_alike([[3], [3]], [-800.0, -900.0], 1.0) == 0  # of equals the first
    assert most_alike([[], [3]], [-1.0, -1.0], 0.0) == 0  # nothing is like itself


@pytest.mark.parametrize("sample", [False, True])
def test_it_leads_the_list_and_the_rest_stay(sample):
    model, params = build("rnnsearch-star")
    plain = SearchConfig(beam=1 if sample else 6, nbest=6, sample=sample)
    sentences = [[2, 3, 4], [], [5], [3, 3, 2, 6]]
    before = translate_nbest(model, params, sentences, plain)
    after = translate_nbest(model, params, sentences, replace(plain, mbr=0.0))
    moved = 0
    for old, new in zip(before, after, strict=True):
        ids, log_probs = [way.ids for way in old], [way.log_prob for way in old]
        place = most_alike(ids, log_probs, 0.0) if old else 0
        assert new == [old[place], *old[:place], *old[place + 1 :]]
        moved += place > 0
    assert moved


def test_what_is_impossible_counts_for_nothing():
    with np.errstate(all="raise"):
        assert most_alike([[5], [6, 7], [6, 7]], [-math.inf, -1, -1], 0.0) == 1
        far = [-2000.0, -2000.1, -2000.2, -math.inf]
        assert most_alike([[5], [6, 7], [6, 7], [5]], far, 1.0) == 1
        assert most_alike([[5], [6, 7], [6, 7]], [-math.inf] * 3, 1.0) == 1
