# SPDX-License-Identifier: Apache-2.0
"""Corpora of ids, and batches padded to a shape."""

import pickle

import numpy as np
import pytest

from kvnmt.data.batches import encoded, make_batch, pad
from kvnmt.data.vocabulary import EOS, PAD


def test_a_batch_holds_its_pairs_and_padding():
    pairs = encoded([[5], [6, 7, 8], []], [[9, 9], [4], [3]])
    batch = make_batch(pairs, np.array([2, 0, 1]), 4, (5, 3))
    assert batch.source.dtype == batch.target.dtype == np.int32
    assert EOS == 0 and PAD == -1
    assert batch.source.tolist() == [
        [0, -1, -1, -1, -1],
        [5, 0, -1, -1, -1],
        [6, 7, 8, 0, -1],
        [-1, -1, -1, -1, -1],
    ]
    assert batch.target.tolist() == [[3, 0, -1], [9, 9, 0], [4, 0, -1], [-1, -1, -1]]


def test_lengths_are_those_of_both_sides():
    pairs = encoded([[5], [6, 7]], [[9, 9], []])
    assert pairs.lengths.tolist() == [[2, 3], [3, 1]]
    assert len(pairs.source) == 2
    assert [ids.tolist() for ids in pairs.target] == [[9, 9, 0], [0]]


def test_a_corpus_goes_to_another_process():
    pairs = encoded([[5], [6, 7]], [[9, 9], []])
    sent = pickle.loads(pickle.dumps(pairs))
    assert [ids.tolist() for ids in sent.source] == [[5, 0], [6, 7, 0]]


def test_a_pair_that_does_not_fit_is_an_error():
    with pytest.raises(ValueError):
        make_batch(encoded([[5, 5]], [[5]]), np.array([0]), 1, (2, 2))


def test_nothing_is_packed_into_empty_rows():
    assert pad([], 2, 3).tolist() == [[-1] * 3] * 2
