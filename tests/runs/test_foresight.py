# SPDX-License-Identifier: Apache-2.0
"""What is told before a training of what validation can measure."""

from dataclasses import replace

import numpy as np
import pytest

from kvnmt.data.batches import encoded
from kvnmt.data.corpus import Corpora
from kvnmt.data.vocabularies import Vocabularies
from kvnmt.data.vocabulary import Words
from kvnmt.inference.config import SearchConfig, longest
from kvnmt.runs.foresight import warnings
from kvnmt.runs.recipes import RECIPES

WORDS = Words(tuple("abcdefghij"))


def foreseen(references: list[str], tokenize: str = "none", **search: object) -> list:
    """Warnings where sources have a word for every reference's two."""
    target = [WORDS.encode(line) for line in references]
    valid = encoded(source=[ids[::2] for ids in target], target=target)
    words = Vocabularies(WORDS, WORDS)
    corpora = Corpora(words, valid, valid, references, "", [])
    plain = RECIPES["modern"]
    training = replace(plain.training, bleu_tokenize=tokenize)
    config = replace(plain.search, **search)
    return list(warnings(corpora, replace(plain, training=training, search=config)))


def test_nothing_is_told_of_text_that_can_be_written():
    assert foreseen(["a b c d e f", "g h i j a b"]) == []


def test_words_that_cannot_be_written_are_told():
    (told,) = foreseen(["a b c d e f", "g h i j a x"])
    assert "the references themselves have BLEU 8" in told


def test_source_words_that_are_unknown_are_told():
    (told,) = foreseen(["a b c d e f"] * 9 + ["x b c d e f"] * 3)
    assert told.startswith("the references")
    told, _ = foreseen(["a b c d e f"] * 9 + ["x b c d e f"] * 4)
    assert told.startswith("warning: 10% of the source tokens of the validation text")


def test_references_of_few_words_are_told():
    """BLEU of such a text is 0 even with itself."""
    (told,) = foreseen(["a b c", "d e"])
    assert "hardly a reference has four tokens" in told


def test_references_that_are_longer_than_translations_are_told():
    lines = ["a b c d e f"] * 98 + ["a b c d e f g h"] * 2
    bounds = {"length_ratio": 1.0, "length_extra": 4}
    (told,) = foreseen(lines, **bounds)  # 3 + 4 are for 6 words and EOS
    assert "2% of the references are longer" in told
    assert told.endswith("give a greater --search.length-ratio")
    assert foreseen(lines[1:], **bounds | {"length_extra": 5}) == []
    (told,) = foreseen(lines, max_length=7)
    assert told.endswith("--search.length-ratio or --search.max-length")


def test_text_without_spaces_is_told():
    lines = ["\u732b\u304c\u5ea7\u308b\u3002" * 4] * 2
    first, *_ = foreseen(lines)
    assert first.endswith(
        "give --training.bleu-tokenize zh, ja-mecab, ko-mecab or char"
    )


@pytest.mark.parametrize("ratio", [0.42, 1.5])
def test_the_longest_translations_are_exact(ratio):
    """In float32, 0.42 times 150 would be a word short."""
    config = SearchConfig(length_ratio=ratio, length_extra=10)
    limits = longest(config, 151)
    assert limits[150] == {0.42: 63, 1.5: 225}[ratio] + 10
    bounded = longest(SearchConfig(max_length=20), 151)
    assert np.array_equal(bounded, np.minimum(longest(SearchConfig(), 151), 21))
