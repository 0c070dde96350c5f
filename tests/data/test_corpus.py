# SPDX-License-Identifier: Apache-2.0
"""From files to ids: which pairs are kept, which vocabularies they get."""

import dataclasses

import pytest

from kvnmt.data import prepare
from kvnmt.data.config import LONGEST, DataConfig
from kvnmt.data.corpus import load_corpora
from kvnmt.data.prepare import build_vocabularies, encode_text
from kvnmt.data.vocabularies import Vocabularies, save_vocabularies
from kvnmt.data.vocabulary import Characters, Words
from kvnmt.errors import UserError
from tests.data.sides import as_text, plain, write


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


def test_links_of_text_with_other_blanks_are_told(tmp_path):
    lines = ["a\u00a0b c|X Y", "a b|X\u3000Y"]
    links = tmp_path / "links"
    links.write_text("0-0 1-1\n0-0\n")
    config = write(tmp_path, lines, lines, vocabulary="words")
    assert not load_corpora(config).warnings
    (told,) = load_corpora(dataclasses.replace(config, links=links)).warnings
    assert "2 lines of the validation text have other blanks" in told


@pytest.mark.parametrize("side", ["source", "target", "valid_source", "valid_target"])
def test_a_file_that_is_not_given_is_told_by_its_field(tmp_path, side):
    config = write(tmp_path, ["a|X"], ["a|X"])
    with pytest.raises(UserError, match=f"data.{side} "):
        load_corpora(dataclasses.replace(config, **{side: None}))


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
def test_workers_and_blocks_change_nothing(parallel, workers):
    config = DataConfig(min_count=1, workers=workers)
    vocabularies = build_vocabularies(config, as_text(parallel, size=7))
    alone = dataclasses.replace(config, workers=0)
    assert vocabularies == build_vocabularies(alone, as_text(parallel))
    blocks = list(encode_text(config, vocabularies, as_text(parallel, size=7)))
    assert len(blocks) == 18
    (whole,) = encode_text(alone, vocabularies, as_text(parallel))
    for side in (0, 1):
        ids = [i for block in blocks for i in block[side].ids.tolist()]
        assert ids == whole[side].ids.tolist()


def test_validation_pairs_that_are_left_out_are_counted(tmp_path):
    config = write(tmp_path, ["a|A", "b|B"], ["a|A", "b|B"], faulty="skip")
    config.valid_target.write_text("A\n\n")
    assert (
        "1 validation pairs (left out: 1 with an empty side)"
        in load_corpora(config).report
    )


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
