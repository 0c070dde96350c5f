# SPDX-License-Identifier: Apache-2.0
"""Alignments of a corpus that was given, not searched for."""

from functools import partial

import jax
import numpy as np

from kvnmt.data.batches import pad, with_end
from kvnmt.inference.score import compiled_score, score
from kvnmt.model.assembly import Params
from tests.inference.translating import SIZES, WORDS


def test_alignments_are_those_of_the_pair_alone(talker, sentences):
    model, params = talker
    targets = [ids[::-1] * 2 for ids in sentences]
    scored = score(model, params, sentences, targets, limits=(4, 4096))
    found = [pair.alignments for pair in scored]
    forward = jax.jit(model.forward)
    for place in (0, 3):
        source = pad([with_end(sentences[place])], 1, len(sentences[place]) + 1)
        target = pad([with_end(targets[place])], 1, len(targets[place]) + 1)
        alone = forward(params, source, target).features.alignments
        for ours, theirs in zip(found[place], alone, strict=True):
            np.testing.assert_allclose(ours, theirs[0], rtol=1e-4, atol=1e-5)
    assert not np.allclose(found[0][0], found[0][1], atol=1e-3)


def test_empty_sides_have_an_alignment_of_their_ends(talker):
    scored = score(*talker, [[], [2, 3], []], [[4], [], []])
    shapes = [[matrix.shape for matrix in pair.alignments] for pair in scored]
    rounds = len(talker[1].decoder.rounds)
    assert shapes == [[(2, 1)] * rounds, [(1, 3)] * rounds, [(1, 1)] * rounds]


def test_who_asks_for_alignments_alone_pays_for_no_output_layer(talker, sentences):
    both, alone = (
        score(*talker, sentences, sentences, scored=told) for told in (True, False)
    )
    for ours, theirs in zip(alone, both, strict=True):
        assert ours.token_log_probs == [] and len(theirs.token_log_probs) > 1
        for matrix, other in zip(ours.alignments, theirs.alignments, strict=True):
            np.testing.assert_allclose(matrix, other, rtol=1e-4, atol=1e-5)
    ids = np.ones((4, 8), np.int32)
    work = [
        compiled_score(talker[0], True, told)
        .lower(talker[1], ids, ids)
        .compile()
        .cost_analysis()["flops"]
        for told in (True, False)
    ]
    assert work[0] - work[1] > 2 * ids.size * WORDS * SIZES.embedding


def test_one_alignment_program_serves_a_corpus(talker, sentences):
    shapes = []

    def forward(params: Params, source: jax.Array, target: jax.Array):
        shapes.append(source.shape)
        return talker[0].forward(params, source, target)

    model = talker[0]._replace(forward=partial(forward))
    score(model, talker[1], sentences, sentences, limits=(4, 4096))
    assert len(shapes) == len(set(shapes)) == 1
    score(model, talker[1], sentences[::-1], sentences[::-1], limits=(4, 4096))
    assert len(shapes) == 1
