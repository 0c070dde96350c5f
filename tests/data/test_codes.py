# SPDX-License-Identifier: Apache-2.0
"""Merges of subword-nmt cut words as that program does.

What is expected of words was printed by subword-nmt 0.3.8.
"""

import dataclasses
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvnmt.data import codes, prepare
from kvnmt.data.codes import LONGEST, Codes, keep_pieces, read_codes
from kvnmt.data.sources import open_text
from kvnmt.data.vocabularies import Vocabularies, load, save
from kvnmt.data.vocabulary import UNK, Words, count_words
from kvnmt.data.words import word_numbers
from kvnmt.errors import OptionError, UserError
from kvnmt.runs.shared_words import shared_words
from tests.helpers import toy_data

LEARNT = b"""#version: 0.2
l o
lo w</w>
e r</w>
n e
w er</w>
lo w
x x
xx xx
x x</w>
low er</w>
lo w</w>
ne w
"""
OLD = b"l o\nlo w\ne r\ner </w>\nw e\nn </w>\na a\naa </w>\nlow </w>\n"
KNOWN = "lo@@ w l@@ o@@ er ne@@ n@@ e@@ low@@ xx@@ x x@@ s@@ t".split()
LINE = "low lower lowest newer new xxxxx xxxx xxx x wer owl ßx"


def cut(merges: Codes, line: str) -> str:
    return " ".join(piece for word in line.split() for piece in merges.cut(word))


@pytest.mark.parametrize(
    ("data", "known", "line", "expected"),
    [
        (
            *(LEARNT, (), LINE),
            "low lo@@ wer low@@ e@@ s@@ t ne@@ wer ne@@ w xxxx@@ x xx@@ xx xx@@ x x "
            "wer o@@ w@@ l ß@@ x",
        ),
        (
            *(LEARNT, KNOWN, LINE),
            "lo@@ w lo@@ w@@ er low@@ e@@ s@@ t ne@@ w@@ er ne@@ w xx@@ xx@@ x xx@@ "
            "x@@ x xx@@ x x w@@ er o@@ w@@ l ß@@ x",
        ),
        (
            *(OLD, (), "low lower lowest newer aan aa aaaa n"),
            "low low@@ er low@@ e@@ s@@ t n@@ e@@ w@@ er aa@@ n aa aa@@ aa n",
        ),
    ],
    ids=["as learnt", "with a vocabulary", "version 0.1"],
)
def test_pieces_are_those_of_subword_nmt(data, known, line, expected):
    merges = dataclasses.replace(read_codes(data), words=tuple(known))
    assert cut(merges, line) == expected


@pytest.mark.parametrize("data", [LEARNT, OLD])
@given(words=st.lists(st.text("lowernxa", min_size=1), max_size=6))
def test_words_come_back(data, words):
    """Whether merges are left out or not; each piece belongs to its word."""
    merges, line = read_codes(data), " ".join(words)
    whole = keep_pieces(merges, count_words([line, "l o w e r n x a"]))
    single = (f"{letter}{end}" for letter in "lowernxa" for end in ("@@", ""))
    letters = dataclasses.replace(merges, words=tuple(single))
    for vocabulary in (whole, letters):
        ids = vocabulary.encode(line)
        assert UNK not in ids
        assert vocabulary.decode([*ids, 0, -1]) == line
        assert vocabulary.encode(line) == ids == vocabulary.sample(line, 0.0, 1)
        last = [not piece.endswith("@@") for piece in vocabulary.pieces(ids)]
        numbers = word_numbers(vocabulary, line, ids)
        assert numbers == [sum(last[:n]) for n in range(len(ids))]
    other = letters.sample(line, 0.5, 3)
    assert other == letters.sample(line, 0.5, 3) and letters.decode(other) == line


def test_each_merge_is_left_out_by_itself():
    """All four ways of two that are alike; none of two that share a letter is both."""
    merges = Codes((), (("a", "b"), ("x", "x")))
    draw = random.Random(1).random
    ways = {tuple(merges.cut("ababx", lambda: draw() < 0.5)) for _ in range(99)}
    a, b, ab = "a@@", "b@@", "ab@@"
    assert ways == {
        *((ab, ab, "x"), (ab, a, b, "x"), (a, b, ab, "x"), (a, b, a, b, "x"))
    }
    assert merges.cut("xxxxx") == ["xx@@", "xx@@", "x"]
    assert {tuple(merges.cut("xxxy", lambda: draw() < 0.5)) for _ in range(99)} == {
        ("xx@@", "x@@", "y"),
        ("x@@", "xx@@", "y"),
        ("x@@", "x@@", "x@@", "y"),
    }


def test_letters_are_pieces_of_the_vocabulary():
    """Though merges join them wherever they stand: nothing of its text is unknown."""
    merges = read_codes(b"#version: 0.2\nq u\nu a</w>\nqu a</w>\n")
    counts = {"qua": 9, "qu": 3, "a": 2}
    kept = keep_pieces(merges, counts, min_count=3)
    assert {"q@@", "u@@", "a", "u"} <= {*kept.words}
    assert UNK not in kept.encode("qua qu a")
    for number in range(40):
        ids = kept.sample("qua qu a", 0.5, number)
        assert UNK not in ids and kept.decode(ids) == "qua qu a"


def test_a_word_with_an_unknown_piece_is_cut_as_usual():
    """So that every token has its word, whatever was not merged."""
    merges = read_codes(LEARNT)
    kept = keep_pieces(merges, {"low": 3, "lower": 3, "newer": 3})
    line = "lower ßlow newer low"
    usual = kept.encode("ßlow")
    assert UNK in usual
    drawn = set()
    for number in range(30):
        ids = kept.sample(line, 0.5, number)
        numbers = word_numbers(kept, line, ids)
        assert len(numbers) == len(ids) and sorted(numbers) == numbers
        parts = [[i for i, n in zip(ids, numbers) if n == word] for word in range(4)]
        assert parts[1] == usual
        for word, part in zip(line.split(), parts):
            assert word == "ßlow" or kept.decode(part) == word
        drawn.add(tuple(ids))
    assert len(drawn) > 3
    whole = kept.encode(line)
    assert word_numbers(kept, line, whole) == [
        n for n, word in enumerate(line.split()) for _ in kept.encode(word)
    ]
    assert word_numbers(kept, line, whole[:-1])  # of no such line: as well as it can


def test_a_word_without_end_is_merged_in_stretches():
    merges = dataclasses.replace(read_codes(LEARNT), words=("xx@@", "x@@", "xx", "x"))
    word = "x" * (3 * LONGEST + 2)
    pieces = merges.pieces(merges.encode(word))
    assert "".join(pieces).replace("@@", "") == word
    assert (
        pieces[:-1] == ["xx@@"] * (len(pieces) - 1) and word not in merges._remembered
    )


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(codes, "MOST", 2)
    merges = dataclasses.replace(read_codes(LEARNT), words=tuple(KNOWN))
    assert [merges.encode(word) for word in LINE.split()] == [
        dataclasses.replace(merges).encode(word) for word in LINE.split()
    ]
    assert len(merges._remembered) <= 2


def test_half_a_word_at_the_end_is_one():
    merges = dataclasses.replace(read_codes(LEARNT), words=("ne@@", "w"))
    assert [merges.decode(ids) for ids in ([2], [2, 3], [2, 2, 3, 3], [2, 1])] == [
        *("ne", "new", "nenew w", "ne<unk>")
    ]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"#version: 0.3\na b\n", "its version is 0.3, and 0.1 and 0.2 are known"),
        (b"#version: 0.2\na b\na b c\n", "line 3 is not two pieces"),
        (b"a b\n\nc d\n", "line 2 is not two pieces"),
        (b"#version: 0.2\na</ w>\n", "line 2 cuts </w> in two"),
        (b"a b\n#vocabulary\nab\na b\n", "line 4 is no piece"),
        (b"a b\n#vocabulary\nab\n<unk>\n", "line 4 is no piece"),
        (b"a b\n#vocabulary\nab\nab\n", "a piece stands in it twice"),
        (b"\xff", "invalid start byte"),
        (b"#version 2\na b\n", "its version is , and"),
    ],
)
def test_what_is_no_file_of_merges_is_told(data, reason, tmp_path):
    with pytest.raises(ValueError, match=reason):
        read_codes(data)
    config = toy_data(tmp_path, vocabulary="codes", codes=tmp_path / "codes")
    (tmp_path / "codes").write_bytes(data)
    with pytest.raises(OptionError, match=f"codes' holds no merges .*{reason}"):
        prepare.build_vocabularies(config, open_text(config, "train"))


def test_merges_in_a_file_of_another_kind_are_told(tmp_path):
    config = toy_data(tmp_path, vocabulary="codes", codes=tmp_path / "codes")
    (tmp_path / "codes").write_bytes(b"\x1f\x8b\x08\x00")
    with pytest.raises(OptionError, match="codes' holds no merges .*gzip -dc"):
        prepare.build_vocabularies(config, open_text(config, "train"))


def test_a_file_may_have_been_in_an_editor():
    edited = b"\xef\xbb\xbf#version: 0.2.0\nl o\n\n\n"
    assert read_codes(edited) == read_codes(b"#version: 0.2\nl o\n")


def test_codes_of_fastbpe_have_counts_behind_the_pieces():
    counted = b"l o 70\nlo w</w> 51\n"
    assert read_codes(counted) == read_codes(b"#version: 0.2\nl o\nlo w</w>\n")
    with pytest.raises(ValueError, match="line 2 is not two pieces"):
        read_codes(b"l o\nlo w</w> 51\n")


def test_a_vocabulary_is_saved_whole(tmp_path):
    merges = dataclasses.replace(read_codes(LEARNT), words=tuple(KNOWN))
    save(merges, tmp_path, "source")
    assert load(tmp_path, "source") == merges
    (tmp_path / "target.codes").write_bytes(LEARNT)
    with pytest.raises(UserError, match="target.codes' is no .* merges and no pieces"):
        load(tmp_path, "target")


def test_deep_merges_are_cut_again():
    """However many merges made a piece, as a file from elsewhere may have it."""
    merges = [("a", "a"), *(("a" * n, "a") for n in range(2, 3000))]
    few = Codes(("a@@", "a"), tuple(merges))
    assert [*few._known("a" * 2999, "@@")] == ["a@@"] * 2999


def test_a_piece_that_may_be_a_word_is_that_word():
    """Where a model of other vocabularies starts one of codes."""
    pieces = dataclasses.replace(read_codes(LEARNT), words=("lo@@", "low", "w"))
    words = Words(("w", "lo", "low"))
    ours, theirs = Vocabularies(pieces, pieces), Vocabularies(words, pieces)
    shared = shared_words(ours, theirs)
    assert [list(side) for side in shared.source] == [[0, 1, 3, 4], [0, 1, 4, 2]]
    assert shared.target[0] == shared.target[1] == [0, 1, 2, 3, 4]
