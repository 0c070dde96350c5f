# SPDX-License-Identifier: Apache-2.0
"""Batches to decode: every sentence once, in as few shapes as are worth a program."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvnmt.data import buckets
from kvnmt.data.buckets import EDGES, edge, in_batches, pairs_in_batches
from kvnmt.data.vocabulary import EOS

LENGTHS = st.lists(st.integers(0, 140), max_size=60)


def sentences(lengths: list[int]) -> list[list[int]]:
    """Sentences of such lengths, no two of a length alike."""
    return [[2 + i] * length for i, length in enumerate(lengths)]


def shapes(lengths: list[int], **limits: int) -> list[tuple[int, ...]]:
    return [block.shape for _, block in in_batches(sentences(lengths), **limits)]


@given(LENGTHS, st.sampled_from([1, 3, 64]), st.sampled_from([1, 100, 4096]))
def test_every_sentence_is_in_one_row(lengths, size, tokens):
    corpus, seen, rows = sentences(lengths), [], {}
    for places, block in in_batches(corpus, size, tokens, multiple=2):
        seen += places
        assert rows.setdefault(block.shape[1], len(block)) == len(block)
        assert block.shape[1] in [*EDGES, 200] and len(block) % 2 == 0
        for row, place in zip(block, places):
            ids = [*corpus[place], EOS]
            assert row[: len(ids)].tolist() == ids and np.all(row[len(ids) :] < 0)
    assert sorted(seen) == [i for i, ids in enumerate(corpus) if ids]


@given(LENGTHS, st.data())
def test_every_pair_is_in_one_row(lengths, data):
    other = data.draw(st.permutations(lengths))
    sides, seen = (sentences(lengths), sentences(other)), []
    for places, *blocks in pairs_in_batches(*sides, size=5):
        seen += places
        assert len(blocks[0]) == len(blocks[1])
        for side, block in zip(sides, blocks):
            for row, place in zip(block, places):
                assert row[row > EOS].tolist() == side[place]
        for side, block in zip(sides, blocks):  # the shorter side stays short
            longest = max(len(side[i]) for i in places) + 1
            assert longest <= block.shape[1] and block.shape[1] < 2 * edge(longest) + 1
    assert sorted(seen) == [*range(len(lengths))]


def test_little_text_is_one_program_and_much_is_all():
    lengths = [5, 10, 14, 20] * 100
    assert set(shapes(lengths)) == {(64, 24)}
    assert {width for _, width in shapes(lengths * 30)} == {8, 12, 16, 24}
    # The first lines of much text are padded as all of it is.
    assert {width for _, width in shapes(lengths, expected=12_000)} == {8, 12, 16, 24}


def test_a_long_sentence_does_not_pad_the_others():
    assert set(shapes([5] * 640 + [90])) == {(42, 96), (64, 8)}


@given(st.lists(st.integers(1, 140), max_size=400))
def test_what_is_padded_more_spares_as_many_programs(lengths):
    def positions(found: list[tuple[int, ...]]) -> int:
        return sum(rows * width for rows, width in found)

    few = shapes(lengths)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(buckets, "PROGRAM", -1)
        all_of_them = shapes(lengths)
    assert {width for _, width in all_of_them} <= {edge(n + 1) for n in lengths}
    spared = len({*all_of_them}) - len({*few})
    assert positions(few) <= positions(all_of_them) + buckets.PROGRAM * max(spared, 0)


def test_the_padded_lengths_are_few():
    edges = [edge(n) for n in range(1, 401)]
    assert edges == sorted(edges)
    assert all(padded >= n for n, padded in enumerate(edges, 1))
    assert sorted(set(edges)) == [*EDGES, 200, 300, 400]
