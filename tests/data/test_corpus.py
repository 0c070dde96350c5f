# SPDX-License-Identifier: Apache-2.0
"""From files to ids: which pairs are kept, which vocabularies they get."""

import dataclasses
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvnmt.data import advice, prepare, synthetic
from kvnmt.data.config import LONGEST, DataConfig
from kvnmt.data.corpus import load_corpora
from kvnmt.data.prepare import build_vocabularies, encode_text
from kvnmt.data.sources import TextReader
from kvnmt.data.subwords import build_subwords
from kvnmt.data.text import Block, Parallel
from kvnmt.data.vocabularies import (
    Vocabularies,
    digest,
    load_vocabularies,
    save_vocabularies,
)
from kvnmt.data.vocabulary import UNK, Characters, Words
from kvnmt.errors import UserError


def write(folder: Path, train: list[str], valid: list[str], **changes) -> DataConfig:
    """Files of lines ``source|target``, and the config that names them."""
    paths = {}
    for part, lines in (("", train), ("valid_", valid)):
        for side, column in (("source", 0), ("target", 1)):
            paths[part + side] = path = folder / f"{part}{side}.txt"
            sides = (line.split("|")[column] for line in lines)
            path.write_text("".join(f"{side}\n" for side in sides), newline="\n")
    return DataConfig(**paths, **({"min_count": 1} | changes))


def plain(side) -> list[list[int]]:
    return [ids.tolist() for ids in side]


@pytest.fixture(scope="module")
def text() -> Parallel:
    pairs = synthetic.make_corpus(3, train=120, valid=1, test=1).train
    return Parallel(*([" ".join(p[i]) for p in map(_sides, pairs)] for i in (0, 1)))


def as_text(text: Parallel, size: int = 1000) -> TextReader:
    """The text as if it were read, in blocks of ``size`` pairs."""
    source = [line.encode() for line in text.source]
    target = [line.encode() for line in text.target]

    def blocks() -> Iterator[Block]:
        for start in range(0, len(source), size):
            lines = slice(start, start + size)
            yield Block(source[lines], target[lines], start + 1, ("source", "target"))

    return TextReader("text", len(source), blocks, (), "pair")


def _sides(pair: synthetic.Pair):
    return pair.source, pair.target


def test_pairs_become_ids_with_an_end(tmp_path):
    corpora = load_corpora(write(tmp_path, ["a b a|X", "a|X Y"], ["b c|Y Z"]))
    assert corpora.vocabularies == Vocabularies(Words(("a", "b")), Words(("X", "Y")))
    assert plain(corpora.train.source) == [[2, 3, 2, 0], [2, 0]]
    assert plain(corpora.train.target) == [[2, 0], [2, 3, 0]]
    assert plain(corpora.valid.source) == [[3, 1, 0]]
    assert plain(corpora.valid.target) == [[3, 1, 0]]


def test_references_are_the_text_itself(tmp_path):
    corpora = load_corpora(write(tmp_path, ["a|X"], ["a|X  never seen "]))
    assert corpora.references == ["X  never seen "]


def test_long_pairs_are_left_out_of_training_alone(tmp_path):
    lines = ["a a|X", "a a a|X", "a|X X X", "a|X X"]
    corpora = load_corpora(write(tmp_path, lines, ["a a a a|X"], max_length=2))
    assert plain(corpora.train.source) == [[2, 2, 0], [2, 0]]
    assert plain(corpora.train.target) == [[2, 0], [2, 2, 0]]
    assert plain(corpora.valid.source) == [[2, 2, 2, 2, 0]]
    assert "2 training pairs (left out: 2 longer than 2 tokens)" in corpora.report


def test_nothing_short_enough_is_told(tmp_path):
    with pytest.raises(UserError, match="1 longer than 1 tokens.* data.max_length"):
        load_corpora(write(tmp_path, ["a a|X"], ["a|X"], max_length=1))


def test_empty_lines_stop_or_are_skipped(tmp_path):
    lines = ["a|X", "|Y", "b|Z"]
    with pytest.raises(UserError, match="source.txt, line 2 is empty"):
        load_corpora(write(tmp_path, lines, ["a|X"]))
    corpora = load_corpora(write(tmp_path, lines, ["a|X"], faulty="skip"))
    assert corpora.vocabularies.target.encode("Y") == [1]
    assert plain(corpora.train.source) == [[2, 0], [3, 0]]
    assert "2 training pairs (left out: 1 with an empty side)" in corpora.report
    assert "kept" not in corpora.report


def test_long_validation_pairs_are_kept_and_told(tmp_path):
    config = write(tmp_path, ["a|b"], ["a a|b", "a|b b b", "a|b"], max_length=1)
    corpora = load_corpora(config)
    assert len(corpora.references) == 3
    assert (
        "3 validation pairs (left out: none; 2 longer than 1 tokens, up to 3, are kept"
        in corpora.report
    )


@pytest.mark.parametrize("part", ["train", "valid"])
@pytest.mark.parametrize("side", [0, 1])
def test_what_becomes_no_token_is_an_empty_side(tmp_path, part, side):
    """A space of no width is no blank, and no piece of SentencePiece's either."""
    faulty = ["ba ab|YX XY", "|".join(["\u200b", "X"][:: 1 - 2 * side])]
    lines = ["ab ba|XY YX", "ba|YX"]
    texts = {"train": lines, "valid": lines, part: [*faulty, *lines]}
    choices = {"vocabulary": "bpe", "subwords": 8}
    name = {"train": "", "valid": "valid_"}[part] + ("source", "target")[side]
    said = f"{name}.txt, line 2 holds nothing that can be seen.* data.faulty skip"
    with pytest.raises(UserError, match=said):
        load_corpora(write(tmp_path, *texts.values(), **choices))
    corpora = load_corpora(write(tmp_path, *texts.values(), faulty="skip", **choices))
    encoded = {"train": corpora.train, "valid": corpora.valid}
    assert len(encoded.pop(part).source) == 3
    (other,) = encoded.values()
    assert len(other.source) == 2
    assert corpora.report.count("1 with an empty side") == 1
    assert len(corpora.references) == len(corpora.valid.source)


def test_what_a_given_model_leaves_out_is_an_empty_side(tmp_path):
    """SentencePiece takes U+2581 for a space, though it can be seen."""
    lines = ["ab ba|XY YX", "ba|YX"]
    choices = {"vocabulary": "bpe", "subwords": 8}
    words = load_corpora(write(tmp_path, lines, lines, **choices)).vocabularies
    config = write(tmp_path, ["\u2581|XY", *lines], lines, **choices)
    with pytest.raises(UserError, match="line 1 holds nothing that becomes a token"):
        load_corpora(config, words)


@pytest.mark.parametrize("side", ["source", "target"])
def test_links_of_text_without_spaces_are_told(tmp_path, side):
    lines = [
        "\u732b\u304c\u5ea7\u308b\u3002\u732b\u304c|X Y",
        "\u5ea7\u308b\u3002\u732b\u304c\u732b\u304c|Y",
    ]
    if side == "target":
        lines = ["|".join(line.split("|")[::-1]) for line in lines]
    links = tmp_path / "links"
    links.write_text("0-0\n0-0\n")
    choices = {"vocabulary": "characters"}
    config = write(tmp_path, lines, lines, **choices)
    assert not load_corpora(config).warnings
    (told,) = load_corpora(dataclasses.replace(config, links=links)).warnings
    assert f"the {side} has no spaces between words" in told


@pytest.mark.parametrize("side", ["source", "target", "valid_source", "valid_target"])
def test_a_file_that_is_not_given_is_told_by_its_field(tmp_path, side):
    config = write(tmp_path, ["a|X"], ["a|X"])
    with pytest.raises(UserError, match=f"data.{side} "):
        load_corpora(dataclasses.replace(config, **{side: None}))


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


def test_separate_subwords_are_learnt_on_their_side(text):
    words = build_vocabularies(DataConfig(vocabulary="bpe", subwords=80), as_text(text))
    assert len(words.source) == len(words.target) == 80
    assert digest(words.source) != digest(words.target)
    mean = {
        (name, side): sum(len(vocabulary.encode(line)) for line in lines) / len(lines)
        for name, vocabulary in words._asdict().items()
        for side, lines in (("source", text.source), ("target", text.target))
    }
    assert mean["source", "source"] < mean["target", "source"]
    assert mean["target", "target"] < mean["source", "target"]


def test_joint_subwords_are_one_vocabulary(text):
    config = DataConfig(vocabulary="bpe", subwords=80, joint=True)
    words = build_vocabularies(config, as_text(text))
    assert words.source is words.target
    name = next(w for line in text.source for w in line.split() if w[0].isupper())
    assert words.source.encode(name) == words.target.encode(name)
    both = text.source + text.target
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
def test_vocabularies_survive_the_disk(tmp_path, text, config):
    words = build_vocabularies(config, as_text(text))
    save_vocabularies(words, tmp_path)
    loaded = load_vocabularies(tmp_path)
    assert loaded == words
    save_vocabularies(words, tmp_path / "run" / "vocabulary")
    for place in ("run", "run/vocabulary", "run/checkpoints/7"):
        assert load_vocabularies(tmp_path / place) == words
    for ours, theirs, lines in zip(words, loaded, text[:2]):
        assert [*map(ours.encode, lines)] == [*map(theirs.encode, lines)]


def test_uneven_pairs_are_left_out(tmp_path):
    lines = ["a|X X X", "a a|X X", "a|X X", "a a a|X"]
    corpora = load_corpora(write(tmp_path, lines, ["a|X"], max_ratio=2))
    assert plain(corpora.train.source) == [[2, 2, 0], [2, 0]]
    assert "left out: 2 with a side 2 times the other" in corpora.report


def test_bytes_that_are_not_utf8_stop_or_are_skipped(tmp_path):
    config = write(tmp_path, ["a|X", "b|Y", "c|Z"], ["a|X"])
    (tmp_path / "target.txt").write_bytes(b"X\nY\xff\nZ\n")
    for workers in (0, 2):  # the error comes through from another process
        with pytest.raises(UserError, match="target.txt, line 2: byte 2 .0xff. is not"):
            load_corpora(dataclasses.replace(config, workers=workers))
    corpora = load_corpora(dataclasses.replace(config, faulty="skip"))
    assert plain(corpora.train.source) == [[2, 0], [3, 0]]
    assert "left out: 1 not UTF-8" in corpora.report


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_and_blocks_change_nothing(text, workers):
    config = DataConfig(min_count=1, workers=workers)
    vocabularies = build_vocabularies(config, as_text(text, size=7))
    alone = dataclasses.replace(config, workers=0)
    assert vocabularies == build_vocabularies(alone, as_text(text))
    blocks = list(encode_text(config, vocabularies, as_text(text, size=7)))
    assert len(blocks) == 18
    (whole,) = encode_text(alone, vocabularies, as_text(text))
    for side in (0, 1):
        ids = [i for block in blocks for i in block[side].ids.tolist()]
        assert ids == whole[side].ids.tolist()


@pytest.mark.parametrize("workers", [0, 2])
def test_every_segmentation_of_a_text_is_another(text, workers):
    config = DataConfig(vocabulary="bpe", subwords=60, workers=workers)
    config = dataclasses.replace(config, subword_dropout=0.2, segmentations=3)
    vocabularies = build_vocabularies(config, as_text(text, size=50))
    ways = defaultdict(set)  # of cutting a pair, by the pair
    for block in encode_text(config, vocabularies, as_text(text, size=50)):
        for pair in zip(*block[:2], strict=True):
            lines = (words.decode(ids) for words, ids in zip(vocabularies, pair))
            ways[tuple(lines)].add(str(pair))
    assert set(ways) == set(zip(text.source, text.target))
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


def test_subwords_may_be_learnt_from_fewer_sentences(text):
    config = DataConfig(vocabulary="bpe", subwords=60, subword_sentences=40)
    words = build_vocabularies(config, as_text(text))
    some = Parallel(text.source[::3], text.target[::3])
    all_of_them = dataclasses.replace(config, subword_sentences=1000)
    assert build_vocabularies(all_of_them, as_text(some)) == words
    assert build_vocabularies(all_of_them, as_text(text)) != words


def test_subwords_of_both_sides_are_kept_where_they_are_used(text):
    """From blocks as from the whole text; a symbol is a piece of both sides."""
    choices = {"vocabulary": "bpe", "subwords": 60, "joint": True, "symbols": ("<x>",)}
    whole = DataConfig(**choices, trimmed=False)
    whole = build_vocabularies(whole, as_text(text)).source
    config = DataConfig(**choices, trimmed=True)
    words = build_vocabularies(config, as_text(text, size=7))
    for side, lines in zip(words, (text.source, text.target)):
        cut = [side.pieces(side.encode(f"<x> {line}")) for line in lines]
        assert cut == [whole.pieces(whole.encode(f"<x> {line}")) for line in lines]
        assert all("<x>" in pieces for pieces in cut)
        assert len(side) < len(whole)


def test_subwords_make_characters_alike_as_is_asked(text):
    odd = "ａｂ … ﬁ X"  # wide letters, one character for three dots, a ligature
    lines = [*text.source, odd] * 2
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


def test_validation_pairs_that_are_left_out_are_counted(tmp_path):
    config = write(tmp_path, ["a|A", "b|B"], ["a|A", "b|B"], faulty="skip")
    config.valid_target.write_text("A\n\n")
    assert (
        "1 validation pairs (left out: 1 with an empty side)"
        in load_corpora(config).report
    )


def test_long_lines_teach_subwords_too():
    omega = "Ω" * 3000
    lines = ["a b c d"] * 50 + [f"{omega} {n}" for n in range(3)]
    words = build_subwords(lines, 20)
    assert UNK not in words.encode("Ω")
    # A word of more characters than SentencePiece counts would end the process.
    words = build_subwords(["a b c d"] * 50 + ["ﷺ" * 70_000], 40)
    assert UNK not in words.encode("ﷺ")


def test_a_text_that_changes_meanwhile_is_not_kept(tmp_path, monkeypatch):
    config = write(tmp_path, ["a b|A B", "c d|C D"], ["a|A"], cache=tmp_path / "cache")
    build = prepare.build_vocabularies

    def changed(*arguments):
        config.source.write_text("x y\nz z\n")
        return build(*arguments)

    monkeypatch.setattr(prepare, "build_vocabularies", changed)
    with pytest.raises(UserError, match="changed while it was read"):
        load_corpora(config)
    assert not [path for path in config.cache.iterdir() if path.is_dir()]


def test_sentences_are_as_long_as_the_tokens_of_the_vocabularies_allow(tmp_path):
    """Of taken ones, whatever kind the config would build."""
    run, longest = tmp_path / "run", "a" * LONGEST["characters"]
    save_vocabularies(Vocabularies(Characters("a"), Characters("X")), run)
    pairs = [f"{longest}|X", f"{longest}a|X"]
    config = write(tmp_path, pairs, ["a|X"], vocabularies=run)
    assert config.vocabulary == "words"
    corpora = load_corpora(config)
    assert [len(ids) for ids in corpora.train.source] == [LONGEST["characters"] + 1]
    assert "left out: 1 longer than 400 tokens" in corpora.report
    few = dataclasses.replace(config, max_length=1)
    with pytest.raises(UserError, match="raise data.max_length"):
        load_corpora(few)


def test_where_no_pair_is_left_the_reason_is_told(tmp_path):
    blank = write(tmp_path, ["a|", "|X"], ["a|X"], faulty="skip")
    with pytest.raises(UserError, match="has both sides"):
        load_corpora(blank)
    uneven = write(tmp_path, ["a a a|X"], ["a|X"], max_ratio=2)
    with pytest.raises(UserError, match="raise data.max_ratio"):
        load_corpora(uneven)
