# SPDX-License-Identifier: Apache-2.0
"""Vocabularies of a corpus: words, subwords, characters, and what text is cut into."""

import dataclasses
from collections import defaultdict

import pytest

from kvnmt.data import advice
from kvnmt.data.config import DataConfig
from kvnmt.data.corpus import load_corpora
from kvnmt.data.prepare import build_vocabularies, encode_text
from kvnmt.data.subwords import build_subwords
from kvnmt.data.text import Parallel
from kvnmt.data.vocabularies import (
    Vocabularies,
    digest,
    load_vocabularies,
    save_vocabularies,
)
from kvnmt.data.vocabulary import UNK, Words
from kvnmt.errors import UserError
from tests.data.sides import as_text, plain, write


def test_words_are_cut_on_each_side_alone(tmp_path):
    lines = ["a a b|X Y Y", "a c|Z Y"]
    corpora = load_corpora(write(tmp_path, lines, ["a|X"], min_count=2))
    assert corpora.vocabularies == Vocabularies(Words(("a",)), Words(("Y",)))
    corpora = load_corpora(write(tmp_path, lines, ["a|X"], vocabulary_size=4))
    assert corpora.vocabularies == Vocabularies(Words(("a", "b")), Words(("Y", "X")))


def test_given_vocabularies_are_used_as_they_are(tmp_path):
    words = Vocabularies(Words(("b", "a")), Words(("X",)))
    corpora = load_corpora(write(tmp_path, ["a b c|X Y"], ["a|X"]), words)
    assert corpora.vocabularies is words
    assert plain(corpora.train.source) == [[3, 2, 1, 0]]
    assert plain(corpora.train.target) == [[2, 1, 0]]


def test_separate_subwords_are_learnt_on_their_side(parallel):
    words = build_vocabularies(
        DataConfig(vocabulary="bpe", subwords=80), as_text(parallel)
    )
    assert len(words.source) == len(words.target) == 80
    assert digest(words.source) != digest(words.target)
    mean = {
        (name, side): sum(len(vocabulary.encode(line)) for line in lines) / len(lines)
        for name, vocabulary in words._asdict().items()
        for side, lines in (("source", parallel.source), ("target", parallel.target))
    }
    assert mean["source", "source"] < mean["target", "source"]
    assert mean["target", "target"] < mean["source", "target"]


def test_joint_subwords_are_one_vocabulary(parallel):
    config = DataConfig(vocabulary="bpe", subwords=80, joint=True)
    words = build_vocabularies(config, as_text(parallel))
    assert words.source is words.target
    name = next(w for line in parallel.source for w in line.split() if w[0].isupper())
    assert words.source.encode(name) == words.target.encode(name)
    both = parallel.source + parallel.target
    assert [words.source.decode(words.source.encode(line)) for line in both] == both


@pytest.mark.parametrize(
    "config",
    [
        DataConfig(),
        DataConfig(vocabulary="characters"),
        DataConfig(vocabulary="bpe", subwords=80),
        DataConfig(vocabulary="bpe", subwords=80, joint=True),
    ],
)
def test_vocabularies_survive_the_disk(tmp_path, parallel, config):
    words = build_vocabularies(config, as_text(parallel))
    save_vocabularies(words, tmp_path)
    loaded = load_vocabularies(tmp_path)
    assert loaded == words
    save_vocabularies(words, tmp_path / "run" / "vocabulary")
    for place in ("run", "run/vocabulary", "run/checkpoints/7"):
        assert load_vocabularies(tmp_path / place) == words
    for ours, theirs, lines in zip(words, loaded, parallel[:2]):
        assert [*map(ours.encode, lines)] == [*map(theirs.encode, lines)]


@pytest.mark.parametrize("workers", [0, 2])
def test_every_segmentation_of_a_text_is_another(parallel, workers):
    config = DataConfig(vocabulary="bpe", subwords=60, workers=workers)
    config = dataclasses.replace(config, subword_dropout=0.2, segmentations=3)
    vocabularies = build_vocabularies(config, as_text(parallel, size=50))
    ways = defaultdict(set)  # of cutting a pair, by the pair
    for block in encode_text(config, vocabularies, as_text(parallel, size=50)):
        for pair in zip(*block[:2], strict=True):
            lines = (words.decode(ids) for words, ids in zip(vocabularies, pair))
            ways[tuple(lines)].add(str(pair))
    assert set(ways) == set(zip(parallel.source, parallel.target))
    assert sum(map(len, ways.values())) > 2.5 * len(ways)
    assert max(map(len, ways.values())) == 3


@pytest.mark.parametrize(
    ("half", "remedy"),
    [
        ("a@@ b", "sed 's/@@ //g' joins them"),
        ("\u2581a b", "join them (spm_decode)"),
        ("a\uffed b", "join them (detokenize, of pyonmttok)"),
    ],
)
def test_text_that_was_cut_before_is_told(tmp_path, half, remedy):
    """Subwords would be learnt of halves of words, whose marks stay in the output."""
    lines = [f"{half} c|x y"] * 4
    config = write(tmp_path, lines, lines, vocabulary="bpe", subwords=20)
    (told,) = load_corpora(config).warnings
    assert "warning: 20% of the words of the validation text are pieces" in told
    assert remedy in told
    words = write(tmp_path, lines, lines)  # which may be pieces
    (told,) = load_corpora(words).warnings
    assert "is of pieces, too, and cannot be compared" in told
    few = ["a b c|x y"] * 50 + lines[:1]
    config = write(tmp_path, lines, few, vocabulary="bpe", subwords=20)
    assert not load_corpora(config).warnings


def test_subwords_that_are_mostly_characters_are_told(tmp_path, monkeypatch):
    """Rare ones leave few pieces for words; those of a run that is there stay."""
    monkeypatch.setattr(advice, "FEW", 8)
    lines = ["abcd efgh|xy xy"] * 9
    config = write(tmp_path, lines, lines, vocabulary="bpe", subwords=16)
    corpora = load_corpora(config)
    (told,) = corpora.warnings
    assert "source subwords are single characters" in told
    assert "--data.character-coverage 0.9995" in told
    assert not load_corpora(config, corpora.vocabularies).warnings
    fewer = dataclasses.replace(config, character_coverage=0.9995)
    other = write(tmp_path, ["ab ab|xy xy"] * 9, lines, vocabulary="bpe")
    assert not load_corpora(fewer).warnings + load_corpora(other).warnings


def test_rare_characters_may_be_unknown(tmp_path):
    lines = ["ab ba|xy"] * 60 + ["\u00e9|xy"]
    config = write(tmp_path, lines, lines[:1], vocabulary="bpe", subwords=20)
    most = dataclasses.replace(config, character_coverage=0.99)
    for choice, known in ((config, True), (most, False)):
        words = load_corpora(choice).vocabularies.source
        assert (UNK not in words.encode("\u00e9")) == known
        assert UNK not in words.encode("ab ba")
    few = dataclasses.replace(config, subwords=3)
    with pytest.raises(UserError, match="leave out rare ones with data.char"):
        load_corpora(few)


def test_segmentations_are_told(tmp_path):
    lines = ["ab abc|xy xyz"] * 3
    choices = {"subword_dropout": 0.5, "segmentations": 4, "subwords": 12}
    config = write(tmp_path, lines, lines[:1], vocabulary="bpe", **choices)
    corpora = load_corpora(config)
    assert corpora.report.startswith("12 training pairs in 4 segmentations (left")
    assert len({str(ids) for ids in corpora.train.source}) > 1
    faulty = write(tmp_path, [*lines, "|x"], lines[:1], vocabulary="bpe", **choices)
    report = load_corpora(dataclasses.replace(faulty, faulty="skip")).report
    assert "(left out: 1 with an empty side)" in report  # once, not in each
    uncut = dataclasses.replace(faulty, faulty="skip", subword_dropout=0.0)
    assert load_corpora(uncut).report.startswith("3 training pairs (left")
    (ids,) = plain(corpora.valid.source)  # nothing is left to chance
    assert ids[:-1] == corpora.vocabularies.source.encode("ab abc")


def test_merges_are_left_out_of_subwords_alone(tmp_path):
    pairs = ["a b|X"], ["a|X"]
    cut = load_corpora(write(tmp_path, *pairs, vocabulary="bpe", subwords=12))
    mixed = cut.vocabularies._replace(source=Words(("a", "b")))
    config = write(tmp_path, *pairs, vocabulary="bpe", subword_dropout=0.5)
    assert len(load_corpora(config, mixed).train.source)  # words stay as they are
    with pytest.raises(UserError, match="^data.subword_dropout leaves out .* to bpe"):
        load_corpora(write(tmp_path, *pairs, subword_dropout=0.1))


def test_vocabularies_of_another_run_are_taken(tmp_path):
    run = tmp_path / "run"
    save_vocabularies(
        Vocabularies(Words(("b",)), Words(("Y", "X"))), run / "vocabulary"
    )
    config = write(tmp_path, ["a b|X Y"], ["a|X"], vocabularies=run)
    corpora = load_corpora(config)
    assert plain(corpora.train.source) == [[1, 2, 0]]
    assert plain(corpora.train.target) == [[3, 2, 0]]
    with pytest.raises(UserError, match="holds no vocabulary of the source side"):
        load_corpora(dataclasses.replace(config, vocabularies=tmp_path))
    with pytest.raises(UserError, match="no folder '.*vocabularies name a run"):
        load_corpora(dataclasses.replace(config, vocabularies=tmp_path / "none"))
    path = run / "vocabulary" / "source.words"
    with pytest.raises(UserError, match="is a file, and .*source.model and target.mod"):
        load_corpora(dataclasses.replace(config, vocabularies=path))


def test_characters_are_tokens(tmp_path):
    config = write(tmp_path, ["ab a|XY", "a|X"], ["a b c|X"], vocabulary="characters")
    corpora = load_corpora(config)
    source = corpora.vocabularies.source
    assert plain(corpora.train.source) == [[2, 4, 3, 2, 0], [2, 0]]
    assert source.pieces([2, 3, 4, 1, 0]) == ["a", "\u2581", "b", "<unk>", "</s>"]
    assert source.decode([2, 4, 3, 2, 0]) == "ab a"


def test_subwords_may_be_learnt_from_fewer_sentences(parallel):
    config = DataConfig(vocabulary="bpe", subwords=60, subword_sentences=40)
    words = build_vocabularies(config, as_text(parallel))
    some = Parallel(parallel.source[::3], parallel.target[::3])
    all_of_them = dataclasses.replace(config, subword_sentences=1000)
    assert build_vocabularies(all_of_them, as_text(some)) == words
    assert build_vocabularies(all_of_them, as_text(parallel)) != words


def test_subwords_of_both_sides_are_kept_where_they_are_used(parallel):
    """From blocks as from the whole text; a symbol is a piece of both sides."""
    choices = {"vocabulary": "bpe", "subwords": 60, "joint": True, "symbols": ("<x>",)}
    whole = DataConfig(**choices, trimmed=False)
    whole = build_vocabularies(whole, as_text(parallel)).source
    config = DataConfig(**choices, trimmed=True)
    words = build_vocabularies(config, as_text(parallel, size=7))
    for side, lines in zip(words, (parallel.source, parallel.target)):
        cut = [side.pieces(side.encode(f"<x> {line}")) for line in lines]
        assert cut == [whole.pieces(whole.encode(f"<x> {line}")) for line in lines]
        assert all("<x>" in pieces for pieces in cut)
        assert len(side) < len(whole)


def test_subwords_make_characters_alike_as_is_asked(parallel):
    odd = "ａｂ … ﬁ X"  # wide letters, one character for three dots, a ligature
    lines = [*parallel.source, odd] * 2
    results = {
        rule: build_vocabularies(
            DataConfig(vocabulary="bpe", subwords=80, normalization=rule),
            as_text(Parallel(lines, lines)),
        ).source
        for rule in ("nmt_nfkc", "nmt_nfkc_cf", "identity")
    }
    written = {rule: side.decode(side.encode(odd)) for rule, side in results.items()}
    assert written == {
        "nmt_nfkc": "ab ... fi X",
        "nmt_nfkc_cf": "ab ... fi x",
        "identity": odd,
    }


def test_long_lines_teach_subwords_too():
    omega = "Ω" * 3000
    lines = ["a b c d"] * 50 + [f"{omega} {n}" for n in range(3)]
    words = build_subwords(lines, 20)
    assert UNK not in words.encode("Ω")
    # A word of more characters than SentencePiece counts would end the process.
    words = build_subwords(["a b c d"] * 50 + ["ﷺ" * 70_000], 40)
    assert UNK not in words.encode("ﷺ")
