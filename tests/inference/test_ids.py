# SPDX-License-Identifier: Apache-2.0
"""Text that translations begin with becomes the tokens that were written."""

import pytest

from kvnmt.data.codes import Codes
from kvnmt.data.subwords import build_subwords
from kvnmt.data.vocabulary import UNK, Characters, Words
from kvnmt.inference.ids import begun_ids
from tests.helpers import toy_lines

PIECES = build_subwords(toy_lines(1, 50), 16)
VOCABULARIES = {
    "words": Words(("a", "b")),
    "characters": Characters("ab "),
    "codes": Codes(("a@@", "b@@", "a", "b"), ()),
    "bpe": PIECES,
}


@pytest.mark.parametrize("kind", VOCABULARIES)
@pytest.mark.parametrize(
    "text", ["a \u4e00 b", "\u4e00 a", "b \u4e00", "a\u4e00b a", "a"]
)
def test_an_unknown_word_is_that_token_again(kind, text):
    """Not the characters that show it, alone or within a word."""
    words = VOCABULARIES[kind]
    ids = words.encode(text)
    shown = words.decode(ids)
    assert (UNK in ids) == ("\u4e00" in text)
    assert begun_ids(words, shown) == ids
    assert begun_ids(words, shown.strip()) == ids


def test_text_without_unknown_words_is_read_as_usual():
    for words in VOCABULARIES.values():
        assert begun_ids(words, "a b") == words.encode("a b")
        assert begun_ids(words, "") == words.encode("")
