# SPDX-License-Identifier: Apache-2.0
"""Subwords: how they are learnt, spelt, trimmed, and left out by chance."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvnmt.data.bpe_dropout import Merges
from kvnmt.data.subwords import build_subwords, trim
from kvnmt.data.vocabularies import load, save
from kvnmt.data.vocabulary import EOS, PAD, UNK
from kvnmt.errors import UserError
from tests.data.sides import ODD


def test_subwords_come_back(text, subwords):
    for line in text:
        ids = subwords.encode(line)
        assert subwords.decode([*ids, EOS, PAD]) == line
        assert "".join(subwords.pieces(ids)) == "▁" + line.replace(" ", "▁")


def test_subwords_hold_the_specials_at_their_places(subwords):
    assert subwords.pieces([EOS, UNK, PAD]) == ["</s>", "<unk>"]
    assert len(subwords) == 80
    assert UNK in subwords.encode("日")
    assert subwords.encode("") == subwords.encode("  ") == []


@given(st.text(st.sampled_from("adegnoth "), max_size=30))
def test_subwords_spell_words_never_seen(subwords, line):
    line = " ".join(line.split())
    assert subwords.decode(subwords.encode(line)) == line


def test_subwords_are_learnt_the_same_twice(text, subwords):
    assert build_subwords(text, 80) == subwords


def test_a_trimmed_vocabulary_cuts_its_text_as_before(text, subwords, tmp_path):
    """What does not occur in it becomes what does, and nothing unknown."""
    some = text[::9]
    trimmed = trim(subwords, some)
    assert len(trimmed) < len(subwords)
    used = {piece for line in some for piece in subwords.pieces(subwords.encode(line))}
    pieces = trimmed.pieces(range(2, len(trimmed)))
    assert {piece for piece in pieces if len(piece) > 1} <= used <= {*pieces}
    for line in some:
        before = subwords.pieces(subwords.encode(line))
        assert trimmed.pieces(trimmed.encode(line)) == before
    assert any(
        trimmed.pieces(trimmed.encode(x)) != subwords.pieces(subwords.encode(x))
        for x in text
    )
    for line in text:
        ids = trimmed.encode(line)
        assert UNK not in ids and max(ids) < len(trimmed)
        assert trimmed.decode(ids) == line
    assert trim(trimmed, some) == trimmed
    save(trimmed, tmp_path, "target")
    assert load(tmp_path, "target") == trimmed


def test_a_trimmed_vocabulary_has_no_letters_of_another_script(tmp_path):
    """But all letters of its own, and all else; its text is cut as before."""
    chinese = ["一 个 男 孩 看 见 女 王", "女 孩 看 见 王 , 1"] * 9
    english = ["the boy saw a queen", "a queen, the girl"] * 9
    both = build_subwords([*chinese, *english, "Ü"], 60)
    ours, theirs = trim(both, english), trim(both, chinese)
    one, other = ({*"".join(x.pieces(range(2, len(x))))} for x in (ours, theirs))
    assert not one & {*"一男孩女王"} and {*"theboyÜ,1"} <= one
    assert not other & {*"theboyÜ"} and {*"一男孩女王,1"} <= other
    for words, lines in ((ours, english), (theirs, chinese)):
        for line in lines:
            ids, whole = words.encode(line), both.encode(line)
            assert words.pieces(ids) == both.pieces(whole)
            assert words.decode(words.sample(line, 0.5, 1)) == line
    assert UNK in ours.encode("王")
    stray = [*english * 60, "the 王"]  # a letter brings no others of its script
    some = trim(both, stray)
    assert {*"王theÜ"} <= {*"".join(some.pieces(range(2, len(some))))}
    assert UNK not in some.encode("王") and UNK in some.encode("男")


def test_merges_that_are_left_out_spell_the_same_line(text, subwords):
    trimmed = trim(subwords, text[::9])
    for words in (subwords, trimmed):
        samples = [[words.sample(line, 0.3, n) for line in text] for n in range(3)]
        for drawn in samples:
            assert [words.decode(ids) for ids in drawn] == text
            assert max(map(max, drawn)) < len(words) and UNK not in set().union(*drawn)
        assert samples[0] != samples[1] != samples[2] != samples[0]
        whole = sum(len(words.encode(line)) for line in text)
        assert min(sum(map(len, drawn)) for drawn in samples) > 1.1 * whole
        again = [words.sample(line, 0.3, 1) for line in reversed(text)]
        assert again[::-1] == samples[1]  # whatever was drawn before
        assert len(words.sample(text[0], 0.99, 5)) > 0.9 * len(text[0])


def test_what_is_left_out_is_the_same_in_every_process(subwords):
    """These were written down once."""
    ids = subwords.sample("the boy showed a queen to two kings", 0.3, 1)
    assert " ".join(subwords.pieces(ids)) == (
        "▁the ▁ b o y ▁s ho w ed ▁ a ▁ q u e e n ▁t o ▁ t w o ▁k in g s"
    )


@pytest.mark.parametrize("normalization", ["nmt_nfkc", "identity"])
def test_with_no_merge_left_out_pieces_are_those_of_sentencepiece(text, normalization):
    whole = build_subwords(text, 80, normalization)
    odd = ["", " a  b ", "the 日本 ☃ ☃☃ 🙂", "</s><unk> ▁▁a", *ODD]
    for words in (whole, trim(whole, text[::9])):
        for line in text + odd:
            assert words.sample(line, 0.0, 1) == words.encode(line)


def test_a_line_without_end_is_cut_in_time(subwords):
    line = "the" * 30_000
    assert subwords.sample(line, 0.3, 1) == subwords.encode(line)


def test_a_merge_is_left_out_for_a_moment():
    """Algorithm 1 of Provilkov et al. (2020) with random numbers that are known."""
    merges = Merges({"ab": -1.0, "bc": -2.0, "abc": -3.0, "cd": -4.0}, {"bc"})
    draws = iter([0.9, 0.9, 0.9, 0.9, 0.9])  # ab bc cd, abc cd
    assert list(merges.pieces("abcd", 0.5, lambda: next(draws))) == ["abc", "d"]
    draws = iter([0.1, 0.9, 0.1, 0.1])  # bc of bc alone; abcd is no piece, a bc d
    assert list(merges.pieces("abcd", 0.5, lambda: next(draws))) == ["a", "b", "c", "d"]
    # One character that may not come out is what it is.
    assert list(Merges({}, {"a"}).pieces("ab", 0.5, lambda: 0.9)) == ["a", "b"]


@pytest.mark.parametrize("normalization", ["nmt_nfkc", "nmt_nfkc_cf"])
def test_symbols_are_pieces_wherever_they_stand(text, normalization):
    symbols = ["<2DE>", "<2", "(x,y)", "<never>"]
    whole = build_subwords([*text, "<2DE> the girl"], 80, normalization, symbols)
    for words in (whole, trim(whole, text[:9])):
        assert words.pieces(range(2, 6)) == symbols
        assert len(words.encode("<never>")) == 2  # a space before it, as for any word
        line = "<2DE> The the<2DE>the (x,y) (x,y)<2DEs"
        pieces = words.pieces(words.encode(line))
        assert [piece for piece in pieces if piece in symbols] == [
            *("<2DE>", "<2DE>", "(x,y)", "(x,y)", "<2")
        ]
        assert words.sample(line, 0.0, 1) == words.encode(line)
        cut = words.pieces(words.sample(line, 0.9, 1))
        assert [piece for piece in cut if piece in symbols] == [
            piece for piece in pieces if piece in symbols
        ]
        assert len(cut) > len(pieces)
    assert whole.decode(whole.encode("<2DE> the")) == "<2DE> the"
    assert "<2DE>" not in build_subwords(text, 80).pieces(range(80))


@pytest.mark.parametrize(
    "symbol", ["", "a b", "\t", "</s>", "<unk>", "\u2581a", "\u2585", "\udcff"]
)
def test_what_cannot_be_a_symbol_is_told(text, symbol):
    with pytest.raises(
        UserError, match="^data.symbols has .* cannot be a symbol: give"
    ):
        build_subwords(text, 80, symbols=["<2de>", symbol])


def test_a_symbol_may_be_named_twice_and_too_many_are_told(text):
    symbols = ["<2de>", "<2fr>"]
    twice = build_subwords(text, 80, symbols=symbols * 2)
    assert twice.data == build_subwords(text, 80, symbols=symbols).data
    with pytest.raises(UserError, match="^data.symbols are 2, which leaves none of"):
        build_subwords(text, 4, symbols=symbols)


@pytest.mark.parametrize("size", [3, 0])
def test_a_number_of_subwords_that_cannot_be_is_told_in_words(text, size):
    with pytest.raises(UserError) as error:
        build_subwords(text, size)
    sentence = str(error.value)
    assert sentence.startswith(f"data.subwords {size} ")
    assert not re.search(r"[\[\]]|==|<=|> \(|model_proto|spec_|::|\.\.", sentence)


def test_little_text_gives_all_the_subwords_that_it_has(text):
    most = build_subwords(text[:10], 5000)
    assert 30 < len(most) < 5000
    assert build_subwords(text[:10], len(most)) == most
    assert most.decode(most.encode(text[0])) == text[0]


def test_pieces_are_learnt_from_lines_with_a_reserved_character_too():
    learnt = build_subwords(["zq \u2585 dog"] * 9 + ["a b"] * 9, 60)
    assert learnt.pieces(learnt.encode("zq dog")) == ["\u2581zq", "\u2581dog"]


def test_too_few_pieces_for_private_characters_are_told_so():
    with pytest.raises(UserError, match="choose more"):
        build_subwords(["\ue000\ue001\ue002\ue003"] * 3, 4)


@pytest.mark.parametrize("line", ["", "\u200b", "\u3000", "\u2585"])
def test_of_nothing_that_is_seen_no_piece_is_learnt(line):
    for lines in ([line] * 3, []):
        with pytest.raises(UserError, match="no visible character"):
            build_subwords(lines, 60)
