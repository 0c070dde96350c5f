# SPDX-License-Identifier: Apache-2.0
"""Vocabularies: who gets a row, and that ids stand for what was written."""

import io
import random
import re
from collections import Counter

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from kvnmt.data import synthetic, vocabulary
from kvnmt.data.bpe_dropout import Merges
from kvnmt.data.subwords import build_subwords, trim
from kvnmt.data.vocabularies import Vocabularies, check_merges, digest, load, save
from kvnmt.data.vocabulary import (
    EOS,
    PAD,
    UNK,
    Characters,
    Subwords,
    Words,
    count_words,
)
from kvnmt.data.words import split_words, word_numbers
from kvnmt.errors import UserError
from tests.data.helpers import words_of
from tests.helpers import toy_lines

ODD = ("a\u2028b", "\x85", "\x0c", "c\rd", "\ufeffe", "\u00a0", "é", "e\u0301", "🙂")
WORD = st.text(
    st.characters(exclude_characters=" \n", exclude_categories=["Cs"]), min_size=1
).filter(lambda word: word not in vocabulary.SPECIAL)


@pytest.fixture(scope="module")
def text() -> list[str]:
    pairs = synthetic.make_corpus(3, train=120, valid=1, test=1).train
    return [" ".join(side) for pair in pairs for side in (pair.source, pair.target)]


@pytest.fixture(scope="module")
def subwords(text):
    return build_subwords(text, 80)


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


def pieces_by(text, **choices) -> bytes:
    """A model as SentencePiece's own program makes it."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text),
        model_writer=model,
        minloglevel=2,
        **{"vocab_size": 60} | choices,
    )
    return model.getvalue()


OURS = {"eos_id": 0, "unk_id": 1, "bos_id": -1}


@pytest.mark.parametrize(
    "ids",
    [
        {},  # of SentencePiece's own program
        {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3},
        {"eos_id": -1, "bos_id": -1},
        {"unk_id": 5, "control_symbols": ["<other>"], "eos_id": 4, "pad_id": 3},
    ],
)
@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_pieces_made_elsewhere_get_our_specials(tmp_path, text, kind, ids):
    """Their own ids would end sentences in their middle; lines are cut as before."""
    data = pieces_by(text, model_type=kind, **ids)
    (tmp_path / "source.model").write_bytes(data)
    words, theirs = load(tmp_path, "source"), Subwords(data)
    assert words.pieces([EOS, UNK]) == ["</s>", "<unk>"]
    for line in (*text[:20], "a \u4e00 b", ""):
        ours = words.encode(line)
        assert words.pieces(ours) == theirs.pieces(theirs.encode(line))
        assert EOS not in ours
        assert words.decode(ours) == theirs._processor.decode(theirs.encode(line))
    assert UNK in words.encode("\u4e00")
    save(words, tmp_path, "target")
    assert load(tmp_path, "target") == words


def test_pieces_with_our_specials_are_left_as_they_are(tmp_path, text):
    data = pieces_by(text, model_type="unigram", **OURS)
    (tmp_path / "source.model").write_bytes(data)
    words = load(tmp_path, "source")
    assert words.data == data and words.decode(words.encode(text[0])) == text[0]


def test_only_merges_are_left_out_by_chance(tmp_path, text, subwords):
    """A unigram model has none; what a user defined is a piece by itself."""
    bpe = {"model_type": "bpe"} | OURS
    plain = Subwords(pieces_by(text, **bpe))
    check_merges(Vocabularies(plain, subwords))
    check_merges(Vocabularies(Words(("a",)), plain))
    defined = Subwords(pieces_by(text, **bpe, user_defined_symbols=["<2en>"]))
    check_merges(Vocabularies(plain, defined))
    other = Subwords(pieces_by(text, model_type="unigram", **OURS))
    with pytest.raises(UserError, match="the target vocabulary is no plain byte-pair"):
        check_merges(Vocabularies(plain, other))
    # What has no piece is bytes, which no merge leads to. All of hexadecimal is text.
    hexadecimal = [*text, "<0x" * 9, *("0123456789 ABCDEF>",) * 9]
    size = {"vocab_size": 400, "hard_vocab_limit": False}
    spelt = pieces_by(hexadecimal, **bpe | size, byte_fallback=True)
    with pytest.raises(UserError, match="the source vocabulary is no plain byte-pair"):
        check_merges(Vocabularies(Subwords(spelt), plain))


def test_no_translation_holds_a_line_feed():
    """Which is a piece of a model that falls back to bytes."""
    size = {"vocab_size": 300, "hard_vocab_limit": False}
    options = OURS | {"model_type": "bpe"} | size
    words = Subwords(pieces_by(toy_lines(1, 50), **options, byte_fallback=True))
    (feed,) = (i for i in range(len(words)) if words.pieces([i]) == ["<0x0A>"])
    assert words.decode([feed, *words.encode("a b"), feed]).split() == ["a", "b"]
    assert "\n" not in words.decode([feed, feed])


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
