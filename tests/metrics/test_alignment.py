# SPDX-License-Identifier: Apache-2.0
"""Hard links, attention between words, and alignment error rate."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvnmt.errors import UserError
from kvnmt.metrics.alignment import (
    alignment_error_rate,
    error_rates,
    hard_links,
    link_counts,
    soft_alignment_error_rate,
    word_matrix,
)
from kvnmt.metrics.links import Gold, Links, check_links, parse_pharaoh, read_gold
from kvnmt.metrics.significance import bootstrap, interval

GOLD_FOLDER = Path(__file__).resolve().parents[3] / "shared" / "data" / "align"

links = st.frozensets(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=12)


def test_one_link_per_target_word_and_none_to_or_from_eos():
    alignment = np.array(
        [
            # s0  s1  EOS pad
            [0.1, 0.7, 0.2, 0.0],  # t0 -> s1
            [0.2, 0.2, 0.6, 0.0],  # t1 -> EOS: dropped
            [0.5, 0.3, 0.2, 0.0],  # t2 -> s0
            [0.9, 0.1, 0.0, 0.0],  # EOS: gives no link
            [0.0, 1.0, 0.0, 0.0],  # padding
        ]
    )
    assert hard_links(alignment, 2, 3) == {(1, 0), (0, 2)}


def test_padding_is_never_chosen():
    alignment = np.array([[0.4, 0.1, 0.0, 9.0], [0.0, 0.0, 1.0, 9.0]])
    assert hard_links(alignment, 2, 1) == {(0, 0)}
    assert hard_links(np.array([[0.0, 9.0], [1.0, 9.0]]), 0, 1) == set()


@pytest.mark.parametrize("lengths", [(2, 2), (3, 1)])
def test_alignment_without_room_for_eos(lengths):
    with pytest.raises(ValueError, match="no room"):
        hard_links(np.ones((2, 3)), *lengths)


def test_alignment_that_is_not_finite():
    with pytest.raises(UserError, match="not finite"):
        hard_links(np.array([[0.5, np.nan], [0.5, 0.5]]), 1, 1)


def test_alignment_error_rate_by_hand():
    # Sentence 1: S = {00, 11}, P = S + {21}, A = {00, 21, 31}:
    #   |A| = 3, |S| = 2, |A ∩ S| = 1, |A ∩ P| = 2.
    # Sentence 2: S = P = {00}, A = {00}: 1, 1, 1, 1.
    # Corpus: |A| = 4, |S| = 3, |A ∩ S| = 2, |A ∩ P| = 3,
    #   so AER = 1 - (2 + 3) / (4 + 3) = 2/7, precision = 3/4, recall = 2/3.
    # (The mean of the sentences' AERs would be (2/5 + 0) / 2 = 1/5.)
    gold = [parse_pharaoh("0-0 1-1 2?1"), parse_pharaoh("0-0")]
    hypotheses = [frozenset({(0, 0), (2, 1), (3, 1)}), frozenset({(0, 0)})]
    score = alignment_error_rate(hypotheses, gold)
    assert score.aer == pytest.approx(2 / 7)
    assert score.precision == pytest.approx(3 / 4)
    assert score.recall == pytest.approx(2 / 3)


@given(st.lists(st.tuples(links, links, links), min_size=1, max_size=4))
def test_alignment_error_rate_laws(sentences):
    hypotheses = [a for a, _, _ in sentences]
    gold = [Gold(sure, sure | possible) for _, sure, possible in sentences]
    score = alignment_error_rate(hypotheses, gold)
    assert 0 <= score.aer <= 1
    assert alignment_error_rate([g.sure for g in gold], gold).aer == 0
    # Where nothing is merely possible, AER is one minus the F-measure.
    score = alignment_error_rate(hypotheses, [Gold(g.sure, g.sure) for g in gold])
    if score.precision + score.recall > 0:
        harmonic = score.precision * score.recall / (score.precision + score.recall)
        assert score.aer == pytest.approx(1 - 2 * harmonic)


def test_an_error_rate_is_tested_over_sentences():
    """Half of 40 sentences are right; then all, then another half."""
    gold = [parse_pharaoh("0-0")] * 40
    right, wrong = frozenset({(0, 0)}), frozenset({(1, 0)})
    half = link_counts([right, wrong] * 20, gold)
    other = link_counts([wrong, right] * 20, gold)
    assert error_rates(half).tolist() == [0.0, 1.0] * 20
    assert (
        error_rates(link_counts([frozenset()], [Gold(frozenset(), frozenset())])) == 0
    )
    bounds = interval(half, error_rates)
    assert bounds is not None
    # Of 40 coins: the standard deviation of their mean is 0.079.
    assert bounds == pytest.approx((0.5 - 1.96 * 0.079, 0.5 + 1.96 * 0.079), abs=0.03)
    assert bootstrap(half, link_counts([right] * 40, gold), error_rates) < 0.01
    assert bootstrap(half, other, error_rates) == 1


def test_hypothesis_without_links():
    score = alignment_error_rate([frozenset()], [parse_pharaoh("0-0")])
    assert (score.aer, score.precision, score.recall) == (1, 1, 0)


def test_soft_alignment_error_rate_by_hand():
    # Target word 0 reads 0.6 and 0.3 (0.1 is on EOS), word 1 reads 0.2 and 0.8.
    # S = {00}, P = {00, 11}: A ∩ S = 0.6, A ∩ P = 0.6 + 0.8 = 1.4, |A| = 1.9, |S| = 1:
    #   1 - (0.6 + 1.4) / (1.9 + 1) = 0.9 / 2.9.
    matrix = np.array([[0.6, 0.3], [0.2, 0.8]])
    score = soft_alignment_error_rate([matrix], [parse_pharaoh("0-0 1?1")])
    assert score.aer == pytest.approx(0.9 / 2.9)
    assert score.precision == pytest.approx(1.4 / 1.9)
    assert score.recall == pytest.approx(0.6)


@given(st.lists(st.tuples(links, links), min_size=1, max_size=4))
def test_soft_error_of_hard_links_is_the_hard_error(sentences):
    """Links are attention of one where they are, which is what they stand for."""
    hypotheses = [a for a, _ in sentences]
    gold = [Gold(sure, sure) for _, sure in sentences]
    matrices = [np.zeros((10, 10)) for _ in sentences]
    for matrix, own in zip(matrices, hypotheses):
        for i, j in own:
            matrix[j, i] = 1
    soft = soft_alignment_error_rate(matrices, gold)
    assert soft == pytest.approx(alignment_error_rate(hypotheses, gold), abs=1e-12)


def test_attention_between_words_by_hand():
    # Source pieces 0 1 | 2 and EOS, target pieces 0 | 1 2 and EOS; source words 2
    # and 3 and target word 2 have no piece.
    alignment = np.array(
        [
            [0.1, 0.2, 0.3, 0.4],
            [0.5, 0.1, 0.4, 0.0],
            [0.1, 0.1, 0.0, 0.8],
            [9.0, 9.0, 9.0, 9.0],
        ]
    )
    found = word_matrix(alignment, [0, 0, 1], [0, 1, 1], (4, 3))
    want = [[0.3, 0.3, 0.0, 0.0], [0.4, 0.2, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]
    np.testing.assert_allclose(found, want)


@pytest.mark.skipif(not GOLD_FOLDER.is_dir(), reason="gold alignments not at hand")
@pytest.mark.parametrize(
    ("name", "percent"),
    [  # AER, precision, recall of the diagonal
        ("hansards-enfr", (53.7, 48.4, 42.7)),
        ("naacl03-roen", (71.1, 30.4, 27.5)),
        ("kftt-jaen", (89.5, 11.0, 10.0)),
        ("tsinghua-zhen", (81.7, 16.4, 20.9)),
        ("bicici-deen", (63.9, 33.4, 39.2)),
        ("czenali-encs", (74.1, 23.9, 28.3)),
    ],
)
def test_gold_files(name, percent):
    """The data's own description gives the scores of a diagonal alignment."""
    path = GOLD_FOLDER / name / "dev.align"
    gold = read_gold(path)
    naacl = path.with_suffix(".naacl")
    if naacl.exists():
        assert read_gold(naacl, len(gold)) == gold
    source, target = (
        [len(line.split(b" ")) for line in text.read_bytes().splitlines()]
        for text in (
            path.with_suffix(f".{name[-4:-2]}"),
            path.with_suffix(f".{name[-2:]}"),
        )
    )
    check_links(gold, source, target, path)
    assert alignment_error_rate([sentence.sure for sentence in gold], gold).aer == 0
    score = alignment_error_rate(list(map(_diagonal, source, target)), gold)
    rounded = [round(100 * x, 1) for x in (score.aer, score.precision, score.recall)]
    assert rounded == list(percent)


def _diagonal(source_length: int, target_length: int) -> Links:
    alignment = np.zeros((target_length + 1, source_length + 1))
    for j in range(target_length):
        alignment[j, int((j + 0.5) * source_length / target_length)] = 1
    return hard_links(alignment, source_length, target_length)
