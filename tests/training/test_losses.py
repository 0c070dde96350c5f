# SPDX-License-Identifier: Apache-2.0
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvnmt.decoder import Features
from kvnmt.errors import UserError
from kvnmt.layers import Linear
from kvnmt.model import contract
from kvnmt.model.assembly import Prediction
from kvnmt.model.contract import Head
from kvnmt.training import losses
from kvnmt.training.losses import Objective
from tests.references import sentence
from tests.references.blocks import log_softmax

SOURCE = jnp.asarray([[3, 4, 2, 0], [5, 0, -1, -1], [-1, -1, -1, -1]])
TARGET = jnp.asarray([[2, 3, 0], [4, 0, -1], [-1, -1, -1]])
LOGITS = jnp.asarray(np.random.default_rng(2).normal(0, 2, (3, 3, 6)))


def prediction(*alignments: jax.Array, others: int = 0) -> Prediction:
    zero = jnp.zeros((3, 3, 2))
    auxiliary = tuple(LOGITS * (n + 2) for n in range(others))
    heads = tuple(head(logits) for logits in (LOGITS, *auxiliary))
    return Prediction(Features(zero, zero, alignments), heads)


def head(logits: jax.Array) -> Head:
    """An output layer that gives what it reads."""
    return Head(Linear((jnp.eye(6),), jnp.zeros(6)), logits)


def attending(places: list[list[int]]) -> jax.Array:
    """The alignment that puts all weight on these source positions."""
    return jnp.asarray(np.eye(4)[np.array(places)], jnp.float32)


def test_negative_log_likelihood():
    got = contract.negative_log_likelihood(LOGITS, TARGET)
    for b in range(3):
        for t in range(3):
            word = int(TARGET[b, t])
            want = 0.0 if word < 0 else -log_softmax(np.asarray(LOGITS[b, t]))[word]
            np.testing.assert_allclose(got[b, t], want, rtol=1e-5)


def test_huge_logits_stay_finite():
    got = contract.negative_log_likelihood(LOGITS * 1e6, TARGET)
    assert np.isfinite(got).all()


# Words attend to words and EOS to EOS: nothing to pay. Padded rows attend anywhere.
MONOTONE = [[0, 2, 3], [0, 1, 1], [0, 0, 0]]
# Words attend to EOS and EOS to a word: all T terms are due.
OPPOSITE = [[3, 3, 1], [1, 0, 1], [0, 0, 0]]


@pytest.mark.parametrize("places, want", [(MONOTONE, [0, 0, 0]), (OPPOSITE, [3, 2, 0])])
def test_atteos_at_its_ends(places, want):
    got = losses.atteos(attending(places), SOURCE >= 0, TARGET >= 0)
    np.testing.assert_array_equal(got, want)


def test_atteos_of_soft_alignments():
    alignment = np.random.default_rng(4).dirichlet(np.ones(4), (3, 3))
    alignment[1] = np.random.default_rng(4).dirichlet(np.ones(2), 3) @ np.eye(2, 4)
    got = losses.atteos(jnp.asarray(alignment), SOURCE >= 0, TARGET >= 0)
    want = [
        sentence.atteos(alignment[0].tolist()),
        sentence.atteos(alignment[1, :2, :2].tolist()),
        0.0,
    ]
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_atteos_is_laid_on_a_round_or_on_the_mean_of_all():
    first, last = attending(OPPOSITE), attending(MONOTONE)
    objective = Objective(atteos=2.0)
    got = losses.loss(objective, prediction(first, last), SOURCE, TARGET)
    assert float(got.atteos) == 0 and float(got.total) == float(got.nats)
    got = losses.loss(objective, prediction(last, first), SOURCE, TARGET)
    assert float(got.atteos) == 5
    np.testing.assert_allclose(got.total, float(got.nats) + 2 * 5, rtol=1e-6)
    objective = Objective(atteos=2.0, atteos_rounds="mean")
    got = losses.loss(objective, prediction(last, first), SOURCE, TARGET)
    np.testing.assert_allclose(got.atteos, 2.5, rtol=1e-6)


def test_atteos_without_an_alignment():
    with pytest.raises(UserError, match="alignment"):
        losses.loss(Objective(atteos=1.0), prediction(), SOURCE, TARGET)
    losses.loss(Objective(), prediction(), SOURCE, TARGET)


def test_a_guide_is_the_distance_of_the_last_round_to_the_links():
    """Evenly shared by the source words of a target word; none of what has no link."""
    alignment = np.random.default_rng(4).dirichlet(np.ones(4), (3, 3))
    alignment[1, 0] = [0, 1, 0, 0]  # no mass where a link is: large, but finite
    links = np.zeros((3, 3, 4), bool)
    links[0, 0, [1, 3]] = links[0, 1, 2] = links[1, 0, 0] = True
    want = -np.log(alignment[0, 0, [1, 3]]).sum() / 2 - np.log(alignment[0, 1, 2])
    got = losses.guided(jnp.asarray(alignment, jnp.float32), jnp.asarray(links))
    np.testing.assert_allclose(got[0], want, rtol=1e-5)
    assert 80 < float(got[1]) < 90 and float(got[2]) == 0
    rounds = prediction(attending(OPPOSITE), jnp.asarray(alignment, jnp.float32))
    args = rounds, SOURCE, TARGET, jnp.asarray(links)
    loss = losses.loss(Objective(guided=0.5), *args)
    np.testing.assert_allclose(loss.guided, got.sum(), rtol=1e-6)
    np.testing.assert_allclose(loss.total, loss.nats + 0.5 * got.sum(), rtol=1e-6)
    off = losses.loss(Objective(), *args)
    assert float(off.guided) == 0 and float(off.total) == float(off.nats)
    with pytest.raises(UserError, match="guide for the attention.*alignment"):
        losses.loss(Objective(guided=1.0), prediction(), *args[1:])


def test_subtractive_losses_weigh_every_predictor_alike():
    want = sum(
        np.sum(contract.negative_log_likelihood(LOGITS * n, TARGET)) for n in (2, 3)
    )
    given = prediction(others=2)
    got = losses.loss(Objective(subtractive=0.5), given, SOURCE, TARGET)
    np.testing.assert_allclose(got.subtractive, want, rtol=1e-6)
    np.testing.assert_allclose(got.total, float(got.nats) + 0.5 * want, rtol=1e-6)
    off = losses.loss(Objective(), given, SOURCE, TARGET)
    assert float(off.subtractive) == 0 and float(off.total) == float(off.nats)
    with pytest.raises(UserError, match="needs a decoder with auxiliary predictors"):
        losses.loss(Objective(subtractive=1.0), prediction(), SOURCE, TARGET)


def test_plain_loss_counts_real_words():
    got = losses.loss(Objective(), prediction(), SOURCE, TARGET)
    nats = contract.negative_log_likelihood(LOGITS, TARGET)
    np.testing.assert_allclose(got.nats, np.sum(nats), rtol=1e-6)
    assert int(got.tokens) == 5 and float(got.total) == float(got.nats)
    assert float(got.atteos) == 0


def test_label_smoothing_is_cross_entropy_with_a_spread_target():
    rate, want = 0.3, 0.0
    for b, t in np.argwhere(np.asarray(TARGET) >= 0):
        wished = np.full(6, rate / 6)
        wished[int(TARGET[b, t])] += 1 - rate
        want -= wished @ log_softmax(np.asarray(LOGITS[b, t], np.float64))
    got = losses.loss(Objective(label_smoothing=rate), prediction(), SOURCE, TARGET)
    plain = losses.loss(Objective(), prediction(), SOURCE, TARGET)
    np.testing.assert_allclose(got.total, want, rtol=1e-5)
    assert float(got.nats) == float(plain.nats)
