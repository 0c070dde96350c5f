# SPDX-License-Identifier: Apache-2.0
"""Dropout and noise: where they are drawn, and what they leave alone."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvnmt.errors import UserError
from kvnmt.layers import dropout
from kvnmt.model.config import Dropout
from kvnmt.systems.named import system
from tests.laws import cases
from tests.laws.cases import SOURCE, TARGET
from tests.model.small import NO_DROPOUT, logits

# GRUs over source positions, a memory's own, LSTMs, and a unit taken apart.
WITH_UNITS = ["coverage-neural", "memory-rnn", "attn", "past-future", "memdec"]


def test_dropout_needs_a_key_and_a_rate(key):
    plain = logits(NO_DROPOUT, None)
    np.testing.assert_array_equal(logits(Dropout(0.5, 0.5, 0.5, 0.5), None), plain)
    np.testing.assert_allclose(logits(NO_DROPOUT, key), plain, atol=1e-6)


@pytest.mark.parametrize(
    "place", ["embedding", "annotations", "state", "output", "recurrent", "word"]
)
def test_dropout_in_each_place(place, key):
    rates = dataclasses.replace(NO_DROPOUT, **{place: 0.5})
    dropped = logits(rates, key)
    assert not np.allclose(dropped, logits(NO_DROPOUT, None))
    np.testing.assert_array_equal(logits(rates, key), dropped)
    assert not np.allclose(logits(rates, jax.random.fold_in(key, 1)), dropped)


@pytest.mark.parametrize("place", ["embedding", "recurrent", "word"])
def test_both_sides_have_dropout(place, key):
    rates = dataclasses.replace(NO_DROPOUT, **{place: 0.5})
    config = dataclasses.replace(cases.BASE, dropout=rates)
    encode, params = jax.jit(cases.build(config).encode), cases.params(config)
    plain, dropped = (
        jax.tree.leaves(encode(params, SOURCE, some).decoder) for some in (None, key)
    )
    assert not all(map(np.allclose, dropped, plain))
    deaf = jax.tree.map(jnp.zeros_like, params.encoder)  # all sources are alike to it
    params = dataclasses.replace(params, encoder=deaf)
    plain, dropped = (
        cases.forward(config)(params, SOURCE, TARGET, some).logits
        for some in (None, key)
    )
    assert not np.allclose(dropped, plain)


@pytest.mark.parametrize("place", ["state", "output"])
def test_dropout_after_the_scan_leaves_the_recurrence_alone(place, key):
    rates = dataclasses.replace(NO_DROPOUT, **{place: 0.5})
    config = dataclasses.replace(cases.BASE, dropout=rates)
    forward, params = cases.forward(config), cases.params(config)
    plain = forward(params, SOURCE, TARGET, None).features
    dropped = forward(params, SOURCE, TARGET, key).features
    np.testing.assert_allclose(dropped.context, plain.context, atol=1e-6)
    np.testing.assert_allclose(dropped.alignments[0], plain.alignments[0], atol=1e-6)
    scaled = np.asarray(dropped.state / plain.state)
    if place == "output":
        np.testing.assert_allclose(scaled, np.ones_like(scaled), rtol=1e-4)
    else:
        np.testing.assert_allclose(np.unique(scaled.round(4)), [0, 2])


def test_dropout_between_layers_is_of_what_the_upper_ones_read(key):
    """And the lowest one reads words, which have a rate of their own."""
    rates = dataclasses.replace(NO_DROPOUT, layers=0.5)
    for layers, differs in ((1, False), (3, True)):
        config = dataclasses.replace(cases.BASE, dropout=rates, layers=layers)
        model = cases.build(config)
        encode, params = jax.jit(model.encode), model.init(jax.random.key(2))
        plain, dropped, again = (
            jax.tree.leaves(encode(params, SOURCE, some).decoder)
            for some in (None, key, key)
        )
        assert all(map(np.allclose, plain, dropped)) != differs
        assert all(map(np.array_equal, dropped, again))


def test_layers_that_say_nothing_add_nothing_to_what_they_read():
    config = dataclasses.replace(cases.BASE, layers=2, residual=True)
    model = cases.build(config)
    params = model.init(jax.random.key(2))
    silent = jax.tree.map(jnp.zeros_like, params.encoder.forward[1:])
    stack = (params.encoder.forward[0], *silent)
    backward = (params.encoder.backward[0], *silent)
    changed = dataclasses.replace(params.encoder, forward=stack, backward=backward)
    shallow = dataclasses.replace(
        params.encoder, forward=stack[:1], backward=backward[:1]
    )
    deep, alone = (
        cases.build(some).encode(dataclasses.replace(params, encoder=encoder), SOURCE)
        for some, encoder in ((config, changed), (cases.BASE, shallow))
    )
    for one, other in zip(jax.tree.leaves(deep), jax.tree.leaves(alone), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


@pytest.mark.parametrize("name", WITH_UNITS)
def test_recurrent_dropout_fits_every_kind_of_unit(name, key):
    rates = dataclasses.replace(NO_DROPOUT, recurrent=0.5)
    config = dataclasses.replace(cases.NAMED[name], dropout=rates)
    forward = cases.build(config).forward
    found = jax.eval_shape(forward, cases.params(config), SOURCE, TARGET, key)
    assert found.heads[0].x.shape[:2] == TARGET.shape


@pytest.mark.parametrize("part", ["encoder", "decoder"])
def test_transformer_layers_drop_on_their_own(part, key):
    config = dataclasses.replace(cases.CONFIGS["transformer-tied"], dropout=NO_DROPOUT)
    rates = {"encoder": 0.0, "decoder": 0.0} | {part: 0.5}
    config = dataclasses.replace(
        config,
        decoder=dataclasses.replace(config.decoder, dropout=rates["decoder"]),
        blocks=dataclasses.replace(config.blocks, dropout=rates["encoder"]),
    )
    forward, params = cases.forward(config), cases.params(config)
    dropped = forward(params, SOURCE, TARGET, key).logits
    assert not np.allclose(dropped, forward(params, SOURCE, TARGET).logits)


def test_every_part_of_a_transformer_drops(monkeypatch, key):
    """The entry, weights of self-attention, and what each part adds."""
    config = dataclasses.replace(cases.CONFIGS["transformer-tied"], dropout=NO_DROPOUT)
    config = dataclasses.replace(
        config,
        decoder=dataclasses.replace(config.decoder, dropout=0.25),
        blocks=dataclasses.replace(config.blocks, dropout=0.5),
    )
    dropped = []

    def watch(key: Any, rate: float, x: jax.Array) -> jax.Array:
        dropped.append((rate, x.shape))
        return dropout(key, rate, x)

    for place in ("layers", "encoder", "decoder"):
        monkeypatch.setattr(f"kvnmt.{place}.transformer.dropout", watch)
    monkeypatch.setattr("kvnmt.decoder.source_look.dropout", watch)
    forward = cases.build(config).forward
    jax.eval_shape(forward, cases.params(config), SOURCE, TARGET, key)
    (B, S), T, D = SOURCE.shape, TARGET.shape[1], 6
    read, written = [(B, S, D), (B, 2, S, S)], [(B, T, D), (B, 1, T, T)]
    read, written = [*read, *2 * read[:1]], [*written, *3 * written[:1]]
    wanted = [(0.5, shape) for shape in read] + [(0.25, shape) for shape in written]
    assert [each for each in dropped if each[0]] == wanted


def test_attention_after_the_scan_sees_the_dropped_state(key):
    """Mino et al. (2017) drop out the top of each stack."""
    rates = dataclasses.replace(NO_DROPOUT, state=0.5)
    config = dataclasses.replace(cases.NAMED["attn"], dropout=rates)
    forward, params = cases.forward(config), cases.params(config)
    plain = forward(params, SOURCE, TARGET, None).features.alignments[0]
    dropped = forward(params, SOURCE, TARGET, key).features.alignments[0]
    assert not np.allclose(dropped, plain)


def test_auxiliary_predictors_vote_but_in_training(key):
    single = dataclasses.replace(cases.NAMED["past-future-losses"], dropout=NO_DROPOUT)
    together = dataclasses.replace(single, average_auxiliary=True)
    params = cases.params(single)
    alone = cases.forward(single)(params, SOURCE, TARGET)
    voted = cases.forward(together)(params, SOURCE, TARGET)
    votes = [jax.nn.softmax(x) for x in (head.logits for head in alone.heads)]
    got = np.exp(np.asarray(voted.logits))
    np.testing.assert_allclose(got, sum(votes) / 3, rtol=1e-4, atol=1e-6)
    training = cases.forward(together)(params, SOURCE, TARGET, key)
    np.testing.assert_allclose(training.logits, alone.logits, rtol=1e-4, atol=1e-5)


def test_training_draws_the_noise_of_a_memory(key):
    config = dataclasses.replace(cases.NAMED["memdec"], dropout=NO_DROPOUT)
    forward, params = cases.forward(config), cases.params(config)
    plain = forward(params, SOURCE, TARGET).logits
    assert not np.allclose(forward(params, SOURCE, TARGET, key).logits, plain)


def test_dropout_of_recurrent_states_needs_such_states(key):
    config = system("transformer").model(cases.BASE)
    rates = dataclasses.replace(config.dropout, recurrent=0.2)
    config = dataclasses.replace(config, dropout=rates)
    with pytest.raises(UserError, match="dropout.recurrent is of GRUs and LSTMs"):
        jax.eval_shape(cases.build(config).init, key)
    for part in ({"cell": "gru"}, {"decoder": cases.BASE.decoder}):
        jax.eval_shape(cases.build(dataclasses.replace(config, **part)).init, key)
