# SPDX-License-Identifier: Apache-2.0
"""Links that guide a training stay with the tokens of their words."""

import gzip
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kvnmt.data.batches import EncodedCorpus, LinkedBatch, make_batch
from kvnmt.data.config import DataConfig
from kvnmt.data.corpus import load_corpora
from kvnmt.data.links import links_between, parse_links
from kvnmt.data.subwords import build_subwords
from kvnmt.data.vocabularies import Vocabularies
from kvnmt.data.vocabulary import SPACE
from kvnmt.data.words import word_numbers
from kvnmt.errors import OptionError, UserError
from tests.data.helpers import joined, write

SOURCE = ["a b c", "b", "c c a b a a", "a c", "b a"]
TARGET = ["B A C", "B", "C A B", "", "A B"]
LINKS = ["0-1 1-0 2?2", "", "0-0 1-0 2-1 3-2", "0-0", "1-0"]
WORDS = {"min_count": 1}
PIECES = {"vocabulary": "bpe", "subwords": 18}


def linked(folder: Path, links: bytes = joined(LINKS), **choices) -> DataConfig:
    choices = {"faulty": "skip", "links": write(folder / "links", links)} | choices
    source, target = (
        write(folder / name, joined(lines))
        for name, lines in (("source", SOURCE), ("target", TARGET))
    )
    return DataConfig(source, target, source, target, **choices)


def read(corpus: EncodedCorpus, words: Vocabularies) -> list[set[tuple[str, str]]]:
    """The linked pieces of every pair."""
    assert corpus.links is not None
    pairs = []
    for x, y, places in zip(corpus.source, corpus.target, corpus.links):
        pieces = [s.pieces(ids[:-1].tolist()) for s, ids in zip(words, (x, y))]
        pairs.append({(pieces[0][i], pieces[1][j]) for i, j in places.reshape(-1, 2)})
    return pairs


EACH = [
    {("a", "A"), ("b", "B"), ("c", "C")},
    set(),
    {("c", "C"), ("a", "A"), ("b", "B")},
    {("a", "A")},
]


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_links_stay_with_their_pair(tmp_path, pack):
    """A pair before them is left out, another has none; possible links count."""
    config = linked(tmp_path, pack(joined(LINKS)), **WORDS)
    made = load_corpora(config)
    assert read(made.train, made.vocabularies) == EACH
    assert made.valid.links is None
    shorter = load_corpora(replace(config, max_length=3))
    assert read(shorter.train, made.vocabularies) == [*EACH[:2], EACH[3]]


def test_a_pair_of_lines_may_come_from_one_file(tmp_path):
    config = linked(tmp_path, **WORDS)
    pairs = [f"{x}\t{y}" for x, y in zip(SOURCE, TARGET)]
    path = write(tmp_path / "pairs", joined(pairs))
    tsv = DataConfig(pairs=path, valid_pairs=path, links=config.links, faulty="skip")
    made = load_corpora(replace(tsv, **WORDS))
    assert read(made.train, made.vocabularies) == EACH


def test_all_pieces_of_linked_words_are_linked(tmp_path):
    lines = ["abc ca", "bb", "cab b", "bcaa ab"] * 20
    source = write(tmp_path / "source", joined(lines))
    target = write(tmp_path / "target", joined([line.upper() for line in lines]))
    links = write(tmp_path / "links", joined(["0-0"] * 80))
    few = PIECES | {"subwords": 9}
    config = DataConfig(source, target, source, target, links=links, **few)
    made = load_corpora(config)
    several = 0
    for *ids, places in zip(made.train.source, made.train.target, made.train.links):
        linked_to = places.reshape(-1, 2)
        for side, words, own in zip((0, 1), made.vocabularies, ids):
            pieces = words.pieces(own[:-1].tolist())
            begun = np.cumsum([piece.startswith(SPACE) for piece in pieces])
            first = np.flatnonzero(begun == 1).tolist()
            assert sorted(set(linked_to[:, side].tolist())) == first
            several += len(first) > 1
        assert len(linked_to) == len({tuple(link) for link in linked_to.tolist()})
    assert several


@pytest.mark.parametrize(
    "odd", ["10\u00a0km", "\u200b", "a\u00b4b", "aq\u017eb"], ids=ascii
)
def test_pieces_keep_their_word_however_it_is_cut(odd):
    """A blank within a word, a word without any character, and an unknown one."""
    line = f"{odd} weit {odd} weg"
    words = build_subwords([line.replace("\u017e", "")] * 20, 40)
    usual = word_numbers(words, line, words.encode(line))
    text = "".join(words.pieces(words.encode(line)))
    cuts = set()
    for number in range(20):
        ids = words.sample(line, 0.5, number)
        numbers = word_numbers(words, line, ids)
        for word in range(4):
            assert _joined(words, ids, numbers, word) == _joined(
                words, words.encode(line), usual, word
            )
        assert "".join(words.pieces(ids)) == text
        cuts.add(tuple(ids))
    assert len(cuts) > 5


def _joined(words, ids, numbers, word) -> str:
    """The pieces of one word."""
    own = [piece for piece, n in zip(words.pieces(ids), numbers) if n == word]
    return "".join(own)


@pytest.mark.parametrize("segmentations", [1, 3])
def test_the_cache_keeps_them(tmp_path, segmentations):
    """In their own entry, which another text of links is not taken from."""
    choices = {"subword_dropout": 0.5, "segmentations": segmentations}
    config = linked(tmp_path, **PIECES, **choices)
    words = load_corpora(replace(config, cache=tmp_path / "cache")).vocabularies
    fresh = load_corpora(config, words).train
    for _ in range(2):
        kept = load_corpora(replace(config, cache=tmp_path / "cache"), words).train
        assert isinstance(kept.links.ids, np.memmap)
        assert list(kept.links.ids) == list(fresh.links.ids)
        assert list(kept.links.lengths) == list(fresh.links.lengths)
    assert len([path for path in (tmp_path / "cache").iterdir() if path.is_dir()]) == 1
    few = linked(tmp_path, joined(["0-0", "", "", "", ""]), **PIECES, **choices)
    kept = load_corpora(replace(few, cache=tmp_path / "cache"), words).train
    assert any(kept.links.lengths) and len(kept.links.ids) < len(fresh.links.ids)
    plain = load_corpora(replace(few, cache=tmp_path / "cache", links=None), words)
    assert plain.train.links is None


def test_a_batch_has_them_as_a_matrix(tmp_path):
    made = load_corpora(linked(tmp_path, **WORDS))
    batch = make_batch(made.train, np.array([2, 1, 0]), 4, (7, 5))
    assert isinstance(batch, LinkedBatch) and batch.links.shape == (4, 5, 7)
    places = [[0, 0, 0], [0, 0, 1], [0, 1, 2], [0, 2, 3]]  # row, target, source
    places += [[2, 0, 1], [2, 1, 0], [2, 2, 2]]
    assert np.argwhere(batch.links).tolist() == places


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            lambda lines: [*lines, "0-0"],
            "has 6 lines for 5 sentence pairs; line n must",
        ),
        (
            lambda lines: [*lines[:4], "0:0"],
            "links, line 5: '0:0' is not a link; write",
        ),
        (
            lambda lines: [*lines[:4], "2-0"],
            "line 5: link 2-0 lies outside a pair of 2",
        ),
    ],
)
def test_faults_are_told_by_their_line(
    tmp_path, change: Callable[[list[str]], list[str]], told: str
):
    with pytest.raises(UserError, match=told):
        load_corpora(linked(tmp_path, joined(change(LINKS)), **WORDS))


def test_links_that_are_not_utf8_are_told(tmp_path):
    lines = joined(LINKS[:4]) + b"0-0 \xff\n"
    with pytest.raises(UserError, match="links, line 5: byte 5 .0xff. is not UTF-8"):
        load_corpora(linked(tmp_path, lines, **WORDS))


def test_how_many_there_are_is_told(tmp_path):
    config = linked(tmp_path, **WORDS)
    assert "; 8 links between tokens), 4 validation" in load_corpora(config).report
    with pytest.raises(OptionError, match="links' links no word .* leave data.links"):
        load_corpora(linked(tmp_path, joined([""] * 5), **WORDS))


def test_a_file_that_is_not_there_is_told(tmp_path):
    config = replace(linked(tmp_path, **WORDS), links=tmp_path / "none")
    with pytest.raises(UserError, match="there is no file"):
        load_corpora(config)


def test_a_line_of_links_is_sure_and_possible():
    assert parse_links(" 0-1 2?3\r") == ({(0, 1)}, {(0, 1), (2, 3)})
    with pytest.raises(ValueError, match="'0--1' is not a link"):
        parse_links("0--1")
    assert links_between(("a b", "c"), "1?0", "here") == {(1, 0)}
    with pytest.raises(UserError, match="^here: link 0-1 lies outside"):
        links_between(("a b", "c"), "0-1", "here")
