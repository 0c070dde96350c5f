# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvnmt.data.subwords import build_subwords
from kvnmt.data.vocabulary import EOS, PAD, SPACE, UNK, Characters, Subwords, Words
from kvnmt.data.words import beginning, cut, split_words, word_numbers, word_places
from tests.helpers import toy_lines

WORDS = Words(("a", "b", "c"))
CHARACTERS = Characters("abcd ")


@pytest.fixture(scope="module", name="pieces")
def _pieces() -> Subwords:
    return build_subwords(toy_lines(1, 50), 16)


def test_a_short_line_is_left_as_it_is():
    assert cut(WORDS, "  a  b ", 2) == ["  a  b "]
    assert cut(WORDS, "", 1) == [""]


def test_parts_are_nearly_equal():
    assert cut(WORDS, "a b c a b", 4) == ["a b c", "a b"]
    assert cut(WORDS, "a b c a b", 1) == ["a", "b", "c", "a", "b"]
    sizes = [len(part.split()) for part in cut(WORDS, " ".join("a" * 100), 30)]
    assert sizes == [25] * 4


def test_parts_end_with_sentences():
    """Where one ends in the second half of a part, also within a word."""
    line = "a b c. a b c a b c a b"
    assert cut(WORDS, line, 6) == ["a b c.", "a b c a", "b c a b"]
    assert cut(WORDS, line.replace(".", ""), 6) == ["a b c a b c", "a b c a b"]
    line = "a.bcdabcda"
    assert cut(CHARACTERS, line, 8) == ["a.bcd", "abcda"]  # too near to the beginning
    line = "abcd。abcda"
    assert cut(CHARACTERS, line, 8) == ["abcd。", "abcda"]


def test_a_word_of_many_pieces_is_cut_inside(pieces):
    word = "abcdefgh" * 20
    parts = cut(pieces, f"a {word} b", 10)
    assert "".join(parts).replace(" ", "") == f"a{word}b"
    assert all(len(pieces.encode(part)) <= 10 for part in parts)


@given(data=st.data())
def test_word_numbers_are_counted_from_the_beginning(pieces, data):
    """As far as the words are decoded; from where, each time, is another matter."""
    for vocabulary in (CHARACTERS, pieces):
        known = st.integers(0, len(vocabulary) - 1).filter(
            lambda i: i not in (PAD, EOS)
        )
        ids = data.draw(st.lists(known, max_size=20))
        line = vocabulary.decode(ids)
        if UNK not in ids:
            continue
        counts = [
            len(split_words(vocabulary.decode(ids[: n + 1])))
            + (piece == SPACE and vocabulary is pieces)
            for n, piece in enumerate(vocabulary.pieces(ids))
        ]
        words = len(split_words(line))
        expected = [max(min(count, words) - 1, 0) for count in counts]
        assert word_numbers(vocabulary, line, ids) == expected


@given(
    line=st.text(st.sampled_from("abh \u3000\u2028é"), max_size=60),
    limit=st.integers(1, 9),
)
def test_nothing_is_lost_and_nothing_is_too_long(pieces, line, limit):
    for vocabulary in (WORDS, CHARACTERS, pieces):
        parts = cut(vocabulary, line, limit)
        assert "".join(parts).replace(" ", "") == line.replace(" ", "")
        for part in parts:
            assert len(vocabulary.encode(part)) <= limit or len(part.strip()) == 1
        words = [""] * len(split_words(line))
        for part, places in zip(parts, word_places(line, parts), strict=True):
            for piece, place in zip(split_words(part), places, strict=True):
                words[place] += piece
        assert words == split_words(line)


def test_tags_stand_before_every_part():
    words = build_subwords(toy_lines(1, 50), 24, symbols=["<2de>", "<polite>"])
    line = "<2de> <polite> a b c d e f <2de> a"
    parts = cut(words, line, 9)
    assert len(parts) > 1
    assert all(part.startswith("<2de> <polite> ") for part in parts)
    assert all(len(words.encode(part)) <= 9 for part in parts)
    rest = (part.removeprefix("<2de> <polite> ") for part in parts)
    assert " ".join(rest) == "a b c d e f <2de> a"
    first, *others = word_places(line, parts)
    assert first[:3] == [0, 1, 2] and all(some[:2] == [0, 1] for some in others)
    assert [n for some in (first[2:], *(s[2:] for s in others)) for n in some] == [
        *range(2, 10)
    ]
    joined = cut(words, "<2de><polite>a b c d e f a b", 9)
    assert len(joined) > 1
    assert all(part.startswith("<2de><polite>") for part in joined)
    assert all(len(words.encode(part)) <= 9 for part in joined)
    line = "<2de><polite>a b c d e f a b"
    places = [n for part in word_places(line, joined) for n in part]
    assert places == [*range(8)]  # the tag goes with the word that it is written to
    alike = cut(words, "＜2de＞ a b c d e f a b c", 9)  # it is made alike
    assert len(alike) > 1 and all(part.startswith("＜2de＞ ") for part in alike)
    many = cut(words, "<2de> " * 4 + "a b c d e f", 10)
    assert len(many) < 4  # a part is not filled with tags
    assert len(cut(words, "<2de>" * 400 + "a b", 50)) < 60
    within = cut(words, "a b <2de>c" + " d" * 20, 8)
    assert " ".join(within).count("<2de>") == 1  # no tag of the line
    assert cut(words, "<2de> <2de> <2de>", 2) == ["<2de>"] * 3  # nothing but tags
    assert cut(words, "<2de> a b", 2) == ["<2de>", "a b"]  # no room beside the tag


def test_characters_are_cut_though_only_their_spaces_are_too_many():
    line = " ".join(["abcd"] * 45)  # 180 letters, 44 spaces
    parts = cut(CHARACTERS, line, 200)
    assert " ".join(parts) == line and len(parts) == 2


@given(
    line=st.text(st.sampled_from("abh é"), max_size=40),
    limit=st.integers(1, 9),
)
def test_a_beginning_has_all_that_fits(pieces, line, limit):
    for vocabulary in (WORDS, CHARACTERS, pieces):
        words, start = split_words(line), beginning(vocabulary, line, limit)
        count = len(split_words(start))
        if start == " ".join(words[:count]):
            longer = " ".join(words[: count + 1])
        else:
            assert count == 1 and words[0].startswith(start)
            longer = words[0][: len(start) + 1]
        assert len(vocabulary.encode(start)) <= limit or len(start) == 1
        assert longer == start or len(vocabulary.encode(longer)) > limit
