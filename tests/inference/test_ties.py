# SPDX-License-Identifier: Apache-2.0
"""Words do not depend on the batch, but where two are as probable up to rounding.

``KVNMT_TIES=10000`` tries so many sentences; what moved is printed (``-s``).
"""

import os
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
import pytest

from kvnmt.data.vocabulary import EOS, UNK
from kvnmt.inference.config import SearchConfig
from kvnmt.inference.score import score
from kvnmt.inference.translate import Translation, translate
from kvnmt.model import assembly
from kvnmt.model.assembly import Model, Params
from kvnmt.model.config import ModelConfig
from kvnmt.systems.named import system
from tests.helpers import drawn

COUNT = int(os.environ.get("KVNMT_TIES", "100"))  # sentences
WORDS, NEAR = 40, 1e-7  # of the output layer: how far apart the rows of twins are
ROUNDING = 1e-5  # nats that what is computed in another order may differ by


@pytest.fixture(scope="module")
def talker() -> tuple[Model, Params]:
    model = assembly.build(
        system("kvmematt-r2").model(ModelConfig(embedding=16, encoder=16, state=16)),
        WORDS,
        WORDS,
    )
    params = drawn(model, scale=0.5)
    b = params.output.b.at[EOS].set(-2.0)
    return model, params.replace(output=params.output.replace(b=b))


def twins(params: Params, alike: bool) -> Params:
    """Every word but the specials has a twin as probable as itself, nearly.

    Args:
        params: Of the model.
        alike: Whether what follows twins is the same, too.
    """
    random = np.random.default_rng(5)
    first, second = np.arange(UNK + 1, WORDS, 2), np.arange(UNK + 2, WORDS, 2)
    W, b = np.array(params.output.W[0]), np.array(params.output.b)
    apart = random.choice([-NEAR, NEAR], W[:, first].shape)
    W[:, second], b[second] = W[:, first] + apart, b[first]
    table = np.array(params.target_embedding)
    if alike:
        table[second] = table[first]
    return params.replace(
        output=params.output.replace(W=(jnp.asarray(W),), b=jnp.asarray(b)),
        target_embedding=jnp.asarray(table),
    )


@pytest.fixture(scope="module")
def sentences() -> list[list[int]]:
    """Of one padded length."""
    random = np.random.default_rng(4)
    sizes = random.integers(1, 8, COUNT)
    return [random.integers(UNK, WORDS, n).tolist() for n in sizes]


def alone_and_together(
    model: Model, params: Params, sentences: Sequence[Sequence[int]], beam: int
) -> list[tuple[Translation, Translation]]:
    """A sentence on each device, and 64 on all of them."""
    alone, together = (
        translate(
            model, params, sentences, SearchConfig(beam=beam, batch_size=size, nbest=1)
        )
        for size in (1, 64)
    )
    return [*zip(alone, together)]


@pytest.mark.parametrize("beam", [1, 3])
def test_without_ties_no_word_moves(talker, sentences, beam):
    pairs = alone_and_together(*talker, sentences, beam)
    assert [ours.ids for ours, _ in pairs] == [theirs.ids for _, theirs in pairs]
    scores = [[one.log_prob for one in pair] for pair in pairs]
    np.testing.assert_allclose(*zip(*scores), rtol=1e-5, atol=ROUNDING)


def test_a_word_moves_only_to_one_as_probable(talker, sentences):
    """The first that differs; what comes behind it is another sentence."""
    model, params = talker[0], twins(talker[1], alike=False)
    pairs = alone_and_together(model, params, sentences, 1)
    moved = [n for n, (ours, theirs) in enumerate(pairs) if ours.ids != theirs.ids]
    print(f"greedy: {len(moved)} of {len(pairs)} sentences moved")
    if not moved:  # it depends on how products of this machine are rounded
        pytest.skip("no tie was rounded apart here")
    both = [
        score(model, params, [sentences[n] for n in moved], [p.ids for p in side])
        for side in zip(*(pairs[n] for n in moved))
    ]
    for n, *scored in zip(moved, *both):
        ours, theirs = ([*one.ids, EOS] for one in pairs[n])
        place = next(t for t, (a, b) in enumerate(zip(ours, theirs)) if a != b)
        nats = [one.token_log_probs[place] for one in scored]
        assert abs(nats[0] - nats[1]) < ROUNDING, (n, place)


def test_a_beam_moves_only_to_what_scores_as_much(talker, sentences):
    model, params = talker[0], twins(talker[1], alike=True)
    pairs = alone_and_together(model, params, sentences, 3)
    moved = sum(ours.ids != theirs.ids for ours, theirs in pairs)
    print(f"beam 3: {moved} of {len(pairs)} sentences moved")
    scores = [[one.score for one in pair] for pair in pairs]
    np.testing.assert_allclose(*zip(*scores), atol=ROUNDING)
