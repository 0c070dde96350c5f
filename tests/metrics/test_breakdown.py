# SPDX-License-Identifier: Apache-2.0
"""Parts of a test set: worked by hand."""

import pytest

from kvnmt.metrics.bleu import Settings, bleu_of, sentence_statistics
from kvnmt.metrics.breakdown import (
    WordScore,
    bleu_by,
    rarest,
    words_by_frequency,
)

REFERENCES = ["a b c d", "a b c d e", "a b c d e f", "f e d c"]
HYPOTHESES = ["a b c d", "a b c d x", "a b c d e x", "x x x x"]
COUNTS = {"a": 100, "b": 12, "c": 5, "d": 4, "e": 1}


def test_bleu_of_every_bucket_is_that_of_its_sentences():
    statistics = sentence_statistics(HYPOTHESES, REFERENCES, Settings("none"))
    values = [1, 10, 11, 12]
    short, long = bleu_by(values, (1, 11, 21), statistics)
    assert (short.label, short.sentences) == ("1-10", 2)
    assert (long.label, long.sentences) == ("11-20", 2)
    assert short.bleu == pytest.approx(float(bleu_of(statistics[:2].sum(0))))
    assert long.bleu == pytest.approx(float(bleu_of(statistics[2:].sum(0))))
    (whole,) = bleu_by([-1, 0, 5, 9], (1,), statistics)
    assert (whole.label, whole.sentences) == ("1+", 4)
    assert bleu_by([], (1, 11), statistics[:0]) == []


def test_the_rarest_word_of_a_line():
    assert rarest(["a b", "a x", "", "c b a"], COUNTS) == [12, 0, 0, 5]


def test_words_by_frequency_by_hand():
    # Seen never: x is proposed once and wanted never, f proposed never and wanted once.
    # Seen 1 to 9 times (c, d, e): "c c d" has one c too many; "c d e" are wanted: right
    # c and d, proposed 3, wanted 3. Seen 10 or more: a is right, b wanted too.
    (never, some, often) = words_by_frequency(
        ["a c c d x"], ["a b c d e f"], COUNTS, edges=(0, 1, 10)
    )
    assert never == WordScore("0", 1, 0, 0, 0)
    two_thirds = pytest.approx(2 / 3)
    assert some == WordScore("1-9", 3, two_thirds, two_thirds, two_thirds)
    assert often == WordScore("10+", 2, 1, 0.5, two_thirds)


def test_a_perfect_translation_has_all_words_right():
    for part in words_by_frequency(REFERENCES, REFERENCES, COUNTS):
        assert (part.precision, part.recall, part.f1) == (1, 1, 1)
    wanted = [part.wanted for part in words_by_frequency(["a"] * 4, REFERENCES, COUNTS)]
    assert sum(wanted) == 19
