# SPDX-License-Identifier: Apache-2.0
"""Vocabularies: who gets a row, and that ids stand for what was written."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvnmt.data import vocabulary
from kvnmt.data.subwords import build_subwords
from kvnmt.data.vocabularies import digest, load, save
from kvnmt.data.vocabulary import EOS, PAD, UNK, Characters, Words, count_words
from kvnmt.data.words import split_words, word_numbers
from kvnmt.errors import UserError
from tests.data.helpers import words_of
from tests.data.sides import ODD

WORD = st.text(
    st.characters(exclude_characters=" \n", exclude_categories=["Cs"]), min_size=1
).filter(lambda word: word not in vocabulary.SPECIAL)


def test_words_come_by_frequency_then_by_spelling():
    words = words_of(["b a b", "d c b a", "c"])
    assert words.words == ("b", "a", "c", "d")
    assert words.encode("a d b") == [3, 5, 2]
    assert len(words) == 6


def test_tokens_belong_to_the_words_between_spaces(text, subwords):
    """Also where a subword model writes a word as several, or as none."""

    def numbers_of(words, line):
        return word_numbers(words, line, words.encode(line))

    assert numbers_of(words_of(text), "  the dogs ") == [0, 1]
    line = "the dogs wait"
    numbers = numbers_of(subwords, line)
    assert len(numbers) == len(subwords.encode(line)) > 3
    assert set(numbers) == {0, 1, 2}
    odd = "the \u200b \u00b4x wait"  # no piece; a space and an accent before the x
    ids, numbers = subwords.encode(odd), numbers_of(subwords, odd)
    assert len(ids) == len(numbers)
    assert numbers[0] == 0 and numbers[-1] == 3
    marks = [piece.startswith(vocabulary.SPACE) for piece in subwords.pieces(ids)]
    assert sum(marks) != 4  # which pieces alone would say
    assert split_words(" a\u3000b \u00a0  c\u2028d ") == [
        "a\u3000b",
        "\u00a0",
        "c\u2028d",
    ]
    characters = vocabulary.keep_characters({c: 1 for c in "abc "})
    assert numbers_of(characters, " ab  c ") == [0, 0, 0, 0, 1]
    assert numbers_of(characters, "  ") == []


@pytest.mark.parametrize(
    ("pieces", "numbers"),
    [
        ("▁goat s ▁sleep", [0, 0, 1]),
        ("▁ g o a t ▁goat", [0, 0, 0, 0, 0, 1]),  # not as the line is written anew
        ("▁goat ▁ ▁sleep ▁", [0, 1, 1, 1]),
        ("▁goat <unk> s", [0, 1, 2]),  # decoded with spaces around it
        ("goat ▁sleep <unk>", None),
    ],
)
def test_tokens_of_a_translation_belong_to_the_words_of_its_line(pieces, numbers):
    lines = ["the goats sleep", "the goat sleeps", "a lazy goat", "lazy sleep"] * 10
    goats = build_subwords(lines, 24)
    known = goats.pieces(range(len(goats)))
    ids = [known.index(piece) if piece in known else 1 for piece in pieces.split()]
    line = goats.decode(ids)
    got = word_numbers(goats, line, ids)
    assert numbers in (None, got)
    assert sorted(set(got)) == list(range(len(split_words(line))))


def test_rare_words_are_cut():
    lines = ["a a a b b c"]
    assert words_of(lines, min_count=2).words == ("a", "b")
    assert words_of(lines, min_count=3).words == ("a",)


@pytest.mark.parametrize(("size", "words"), [(3, "a"), (4, "ab"), (5, "abc")])
def test_the_size_counts_the_two_specials(size, words):
    kept = words_of(["a a a b b c"], size=size)
    assert "".join(kept.words) == words
    assert len(kept) == size


@pytest.mark.parametrize("choices", [{"min_count": 9}, {"size": 2}, {"size": 0}])
def test_a_vocabulary_without_words_is_refused(choices):
    with pytest.raises(UserError, match="no word is kept"):
        words_of(["a b"], **choices)


def test_the_order_of_lines_does_not_matter(text):
    other = random.Random(1).sample(text, len(text))
    assert words_of(other) == words_of(text)


def test_unknown_words_share_one_id():
    words = words_of(["a b"])
    assert words.encode("a x b y") == [2, UNK, 3, UNK]
    assert words.decode([2, UNK, 3]) == "a <unk> b"


@pytest.mark.parametrize("special", vocabulary.SPECIAL)
def test_specials_in_the_text_are_unknown_words(special, text):
    words = words_of([f"{special} a {special}", special])
    assert words.words == ("a",)
    assert words.encode(f"a {special}") == [2, UNK]
    pieces = build_subwords([*text, special], 80).encode(f"{special} {special}")
    assert EOS not in pieces


def test_words_stand_between_spaces_alone():
    words = words_of([f" {' '.join(ODD)}  x\ty  "])
    assert set(words.words) == {*ODD, "x\ty"}
    assert words.encode("  ") == words.encode("") == []


@given(st.lists(WORD, min_size=1))
def test_words_come_back(line):
    words = words_of([" ".join(line)])
    ids = words.encode(" ".join(line))
    assert words.decode(ids) == " ".join(line)
    assert words.pieces(ids) == line
    assert min(ids) > UNK


def test_decoding_leaves_the_end_and_padding_out():
    words = words_of(["a b"])
    assert words.decode([2, 3, EOS, PAD, PAD]) == "a b"
    assert words.pieces([2, EOS, PAD]) == ["a", "</s>"]


def test_words_survive_the_disk(tmp_path):
    words = words_of([" ".join(ODD) + " x"])
    save(words, tmp_path / "vocabulary", "source")
    loaded = load(tmp_path / "vocabulary", "source")
    assert loaded == words
    assert loaded.encode(" ".join(ODD)) == words.encode(" ".join(ODD))
    assert digest(loaded) == digest(words)


def test_a_vocabulary_takes_the_place_of_one_of_another_kind(tmp_path, subwords):
    """Such as that of a start that ended before its first checkpoint."""
    save(words_of(["a b"]), tmp_path, "source")
    save(words_of(["a b"]), tmp_path, "target")
    save(subwords, tmp_path, "source")
    assert load(tmp_path, "source") == subwords
    assert load(tmp_path, "target") == words_of(["a b"])


def test_the_digest_tells_vocabularies_apart(subwords):
    some = [Words(("a", "b")), Words(("b", "a")), Words(("ab",)), Words(("a",))]
    digests = {digest(words) for words in (*some, subwords)}
    assert len(digests) == len(some) + 1
    assert digest(Words(("a", "b"))) == digest(some[0])


@pytest.mark.parametrize(
    ("data", "part"),
    [
        (b"the\r\ndog\r\n", "carriage returns; save it with line feeds"),
        (b"the\r\ndog", "carriage returns; save it with line feeds"),
        (b"the\n\ndog\n", "line 2 is not one word"),
        (b"the dog\n", "line 1 is not one word"),
        (b"a\nb\na\n", "lines 1 and 3 are the same word"),
        (b"a\n</s>\n", "line 2 is </s>, which every vocabulary has"),
        (b"<unk>\na\n", "line 1 is <unk>, which every vocabulary has; remove it"),
        (b"".join(b"w%d\t-%d.5\n" % (n, n) for n in range(10)), "source.model"),
        (b"".join(b"w%d 1\n" % n for n in range(10)), r"words .sed 's/..:space:...."),
    ],
)
def test_words_that_a_person_spoilt_are_told(tmp_path, data, part):
    (tmp_path / "source.words").write_bytes(data)
    with pytest.raises(UserError, match=f"source.words' is no vocabulary: .*{part}"):
        load(tmp_path, "source")


def test_the_last_word_needs_no_line_feed(tmp_path):
    (tmp_path / "source.words").write_bytes(b"the\ndog")
    assert load(tmp_path, "source") == Words(("the", "dog"))


def test_a_byte_order_mark_is_no_part_of_the_first_word(tmp_path):
    (tmp_path / "source.words").write_bytes(b"\xef\xbb\xbfthe\ndog\n")
    assert load(tmp_path, "source") == Words(("the", "dog"))


def test_words_are_counted():
    assert count_words(["a b a", "", "b"]) == Counter(a=2, b=2)


@pytest.mark.parametrize(
    ("data", "said"),
    [("abca", "'a' stands in it 2 times"), ("ab\nc\n", "several lines")],
)
def test_characters_that_a_person_spoilt_are_told(tmp_path, data, said):
    (tmp_path / "source.characters").write_text(data)
    with pytest.raises(UserError, match=said):
        load(tmp_path, "source")


def test_characters_may_have_a_line_feed_behind_them(tmp_path):
    (tmp_path / "source.characters").write_text("ab c\n")
    assert load(tmp_path, "source") == Characters("ab c")


def test_a_side_has_one_vocabulary(tmp_path):
    for name in ("source.words", "source.characters"):
        (tmp_path / name).write_text("a\n")
    with pytest.raises(UserError, match="source.words and source.characters; remove"):
        load(tmp_path, "source")
