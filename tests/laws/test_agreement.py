# SPDX-License-Identifier: Apache-2.0
"""kvnmt's padded batch equals the reference's single sentences, in float64.

The laws that need nothing but the same compiled forward pass are here too, for all
named systems: in another file each would be traced again.
"""

import dataclasses
from functools import cache
from typing import Annotated, Literal, get_args, get_origin

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvnmt.decoder.mem_dec import fixed_noise
from kvnmt.model import contract
from kvnmt.model.config import ModelConfig
from kvnmt.systems.named import SYSTEMS
from kvnmt.training import losses
from kvnmt.training.losses import Objective
from tests.laws import cases
from tests.laws.cases import SOURCE, TARGET
from tests.laws.test_model import MEMBERS
from tests.references import sentence
from tests.references.attention import ATTENTIONS
from tests.references.decoder import DECODERS, Sizes
from tests.references.parameters import plain
from tests.references.target_context import TARGET_CONTEXTS

close = {"rtol": 1e-10, "atol": 1e-10}
NAMES = [name for name in cases.DISTINCT if name in cases.NAMED]
STARTS = {"write_bias"}  # initial values, which random parameters overwrite


def test_every_mechanism_has_a_reference():
    assert set(cases.CATALOGUES["attention"]) == set(ATTENTIONS)
    assert set(cases.CATALOGUES["decoder"]) == set(DECODERS)
    assert set(cases.CATALOGUES["target_context"]) == set(TARGET_CONTEXTS)


def test_every_option_is_met():
    """All named values of the choices, both of the switches, two of the numbers."""
    met: dict[tuple[str, str], set[str]] = {}
    for config in cases.CONFIGS.values():
        for field, (_, options) in cases.chosen(config).items():
            for option, value in options.items():
                met.setdefault((field, option), set()).add(str(value))
        for option in ("merge", "cell", "readout", "tie"):
            met.setdefault(("", option), set()).add(getattr(config, option))
    asked = [("", option) for option in dataclasses.fields(ModelConfig)]
    for field, catalogue in cases.CATALOGUES.items():
        for member in catalogue.values():
            asked += [(field, option) for option in dataclasses.fields(member.Options)]
    for field, option in asked:
        if (field, option.name) in met and option.name not in STARTS:
            kind = option.type
            if get_origin(kind) is Annotated:  # with bounds or marks
                kind, *_ = get_args(kind)
            words = get_args(kind) if get_origin(kind) is Literal else ()
            values = met[field, option.name]
            assert len(values) > 1 and values >= set(words), (option.name, values)


def setting(config: ModelConfig) -> sentence.Setting:
    """The config in the reference's plain words."""
    attention, (decoder, moves), target_context = cases.chosen(config).values()
    if decoder == "mem_dec":
        draws = fixed_noise(moves["slots"], config.state)
        moves["draws"] = list(np.asarray(draws, np.float64))
    return sentence.Setting(
        merge=config.merge,
        cell=config.cell,
        heads=config.blocks.heads,
        annotation=config.sizes.annotation,
        sizes=Sizes(config.embedding, config.state),
        attention=attention,
        decoder=(decoder, moves),
        target_context=target_context,
        readout=config.readout,
        average_auxiliary=config.average_auxiliary,
        residual=config.residual,
    )


@cache
def reference(config: ModelConfig) -> list[sentence.Result]:
    """Every row of the batch, run alone."""
    what = setting(config)
    W = plain(jax.device_get(cases.params(config, "float64")), what)
    return [
        sentence.translate(W, what, list(x[x >= 0]), list(y[y >= 0]))
        for x, y in zip(SOURCE, TARGET)
    ]


def assert_predicts(logits: jax.Array, expected: list[list], nlls: list[float]) -> None:
    """Logits [B, T, V] give the log-probabilities and losses of every row."""
    nats = np.asarray(contract.negative_log_likelihood(logits, jnp.asarray(TARGET)))
    logits = np.asarray(logits)
    assert logits.dtype == np.float64 and np.isfinite(logits).all()
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    for row, (want, nll) in enumerate(zip(expected, nlls, strict=True)):
        T = len(want)
        if T:
            np.testing.assert_allclose(log_probs[row, :T], want, **close)
        np.testing.assert_allclose(nats[row].sum(), nll, **close)
        assert (nats[row, T:] == 0).all()


@pytest.mark.parametrize("name", cases.DISTINCT)
def test_padded_batch_equals_single_sentences(name, x64):
    config = cases.CONFIGS[name]
    params = cases.params(config, "float64")
    prediction = cases.forward(config)(params, SOURCE, TARGET)
    results = reference(config)
    assert_predicts(
        prediction.logits,
        [result.log_probs for result in results],
        [result.nll for result in results],
    )
    rounds = [np.asarray(a) for a in prediction.features.alignments]
    for row, expected in enumerate(results):
        T, S = len(expected.log_probs), int((SOURCE[row] >= 0).sum())
        assert len(rounds) == len(expected.alignments)
        others = prediction.heads[1:]
        assert len(others) == len(expected.auxiliary)
        for got, want in zip(rounds, expected.alignments):
            want = np.reshape(want, (T, S))
            np.testing.assert_allclose(got[row, :T, :S], want, **close)
            assert (got[row, :, S:] == 0).all()
    for place, head in enumerate(prediction.heads[1:]):
        assert_predicts(
            head.logits,
            [result.auxiliary[place] for result in results],
            [result.auxiliary_nll[place] for result in results],
        )


@pytest.mark.parametrize("name", MEMBERS)
def test_sentences_of_one_token(name, x64):
    """A source of one word, of EOS alone, and none; EOS is all that is predicted."""
    config, target = cases.CONFIGS[name], np.zeros((3, 1), np.int32)
    params, what = cases.params(config, "float64"), setting(config)
    W = plain(jax.device_get(params), what)
    for words in (5, 0, -1):
        source = np.full((3, 1), words, np.int32)
        prediction = cases.forward(config)(params, source, target)
        result = sentence.translate(W, what, [*source[0][source[0] >= 0]], [0])
        logits = np.asarray(prediction.logits[:, 0])
        log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        for row in log_probs:
            np.testing.assert_allclose(row, result.log_probs[0], **close)


def linked(seed: int) -> np.ndarray:
    """Random links between words [B, T, S]; about every third word has none."""
    there = (TARGET >= 0)[:, :, None] & (SOURCE >= 0)[:, None, :]
    return there & (np.random.default_rng(seed).random(there.shape) < 0.3)


@pytest.mark.parametrize("name", SYSTEMS)
def test_loss_of_every_system(name, x64):
    config = cases.CONFIGS[name]
    params = cases.params(config, "float64")
    prediction = cases.forward(config)(params, SOURCE, TARGET)
    expected = reference(config)
    nll = sum(result.nll for result in expected)
    source, target = jnp.asarray(SOURCE), jnp.asarray(TARGET)
    atteos = subtractive = guided = 0.0
    links = linked(7)
    if expected[0].atteos is not None:
        want = [result.atteos for result in expected]
        reading = prediction.features.alignments[-1]
        got = losses.atteos(reading, source >= 0, target >= 0)
        np.testing.assert_allclose(got, want, **close)
        atteos = sum(want)
        guided = sum(
            sentence.guided(result.alignments[-1], set(zip(*np.nonzero(row.T))))
            for result, row in zip(expected, links)
        )
    if len(prediction.heads) > 1:
        subtractive = sum(sum(result.auxiliary_nll) for result in expected)
    own = float(name.endswith("atteos")), float(name.endswith("losses")), 0.0
    other = 0.7 * (atteos != 0), 0.3 * (subtractive != 0), 0.4 * (guided != 0)
    for objective, weights in (
        (SYSTEMS[name].objective(Objective()), own),
        (Objective(0.0, other[0], "last", *other[1:]), other),
    ):
        terms = np.where(weights, (atteos, subtractive, guided), 0)
        loss = losses.loss(objective, prediction, source, target, jnp.asarray(links))
        np.testing.assert_allclose(loss.nats, nll, **close)
        got = loss.atteos, loss.subtractive, loss.guided
        np.testing.assert_allclose(got, terms, **close)
        np.testing.assert_allclose(loss.total, nll + np.dot(weights, terms), **close)
        assert int(loss.tokens) == 9


@pytest.mark.parametrize("name", NAMES)
def test_no_word_sees_itself_or_a_later_one(name, x64):
    """Row k differs from the last in word k: what comes after k differs, no more."""
    config, T = cases.CONFIGS[name], TARGET.shape[1]
    target = np.tile(np.array([5, 2, 7, 3], np.int32), (T, 1))
    for k in range(T - 1):
        target[k, k] = 1
    source = SOURCE[[0] * T]
    got = cases.forward(config)(cases.params(config, "float64"), source, target)
    change = np.abs(np.asarray(got.logits) - np.asarray(got.logits)[-1:]).max(axis=-1)
    later = np.triu(np.ones((T, T), bool), k=1)
    assert (change[~later] < 1e-12).all()
    assert (change[:-1][later[:-1]] > 1e-6).all()
