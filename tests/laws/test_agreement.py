# SPDX-License-Identifier: Apache-2.0
"""kvnmt's padded batch equals the reference's single sentences, in float64."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from kvnmt import attention as attentions
from kvnmt import decoder as decoders
from kvnmt import losses
from kvnmt import target_context as target_contexts
from kvnmt.losses import Objective
from kvnmt.models import ModelConfig
from kvnmt.systems import SYSTEMS
from tests.laws import cases
from tests.laws.cases import SOURCE, TARGET
from tests.references import attention as reference_attention
from tests.references import sentence
from tests.references.parameters import plain

close = {"rtol": 1e-10, "atol": 1e-10}


def test_every_mechanism_has_a_reference():
    assert set(attentions.CATALOGUE) == set(reference_attention.ATTENTIONS)
    assert set(decoders.CATALOGUE) == set(sentence.DECODERS)
    assert set(target_contexts.CATALOGUE) == set(sentence.TARGET_CONTEXTS)


def setting(config: ModelConfig) -> sentence.Setting:
    """The config in the reference's plain words."""
    named = [
        (catalogue.name_of(options), dataclasses.asdict(options))
        for catalogue, options in (
            (attentions.CATALOGUE, config.attention),
            (decoders.CATALOGUE, config.decoder),
            (target_contexts.CATALOGUE, config.target_context),
        )
    ]
    return sentence.Setting(config.merge, named[0], named[1], named[2][0])


def reference(config: ModelConfig, params) -> list[sentence.Result]:
    """Every row of the batch, run alone."""
    W, what = plain(params), setting(config)
    return [
        sentence.translate(W, what, list(x[x >= 0]), list(y[y >= 0]))
        for x, y in zip(SOURCE, TARGET)
    ]


@pytest.mark.parametrize("name", cases.DISTINCT)
def test_padded_batch_equals_single_sentences(name, x64):
    config = cases.CONFIGS[name]
    params = cases.params(config, "float64")
    prediction = cases.forward(config)(params, SOURCE, TARGET)
    logits = np.asarray(prediction.logits)
    assert logits.dtype == np.float64 and np.isfinite(logits).all()
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    rounds = [np.asarray(a) for a in prediction.features.alignments]
    nats = losses.negative_log_likelihood(prediction.logits, jnp.asarray(TARGET))
    nats = np.asarray(nats)
    for row, expected in enumerate(reference(config, params)):
        T, S = len(expected.log_probs), int((SOURCE[row] >= 0).sum())
        if T:
            np.testing.assert_allclose(log_probs[row, :T], expected.log_probs, **close)
        assert len(rounds) == len(expected.alignments)
        for got, want in zip(rounds, expected.alignments):
            want = np.reshape(want, (T, S))
            np.testing.assert_allclose(got[row, :T, :S], want, **close)
            assert (got[row, :, S:] == 0).all()
        np.testing.assert_allclose(nats[row].sum(), expected.nll, **close)
        assert (nats[row, T:] == 0).all()


@pytest.mark.parametrize("name", SYSTEMS)
def test_loss_of_every_system(name, x64):
    config = cases.CONFIGS[name]
    params = cases.params(config, "float64")
    prediction = cases.forward(config)(params, SOURCE, TARGET)
    expected = reference(config, params)
    nll = sum(result.nll for result in expected)
    atteos = [result.atteos for result in expected]
    source, target = jnp.asarray(SOURCE), jnp.asarray(TARGET)
    reading = prediction.features.alignments[-1]
    got = losses.atteos(reading, source >= 0, target >= 0)
    np.testing.assert_allclose(got, atteos, **close)
    objective = SYSTEMS[name].objective(Objective())
    loss = losses.loss(objective, prediction, source, target)
    weight = 1.0 if name.endswith("atteos") else 0.0
    np.testing.assert_allclose(loss.nats, nll, **close)
    np.testing.assert_allclose(loss.atteos, weight * sum(atteos), **close)
    np.testing.assert_allclose(loss.total, nll + weight * sum(atteos), **close)
    assert int(loss.tokens) == 9
