# SPDX-License-Identifier: Apache-2.0
"""Whoever looks at earlier words tells where; what is told is what is mixed."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvnmt.inference.score import score
from kvnmt.model import assembly
from kvnmt.model.config import ModelConfig
from kvnmt.systems.named import SYSTEMS
from kvnmt.target_context import CATALOGUE
from tests.target_context.test_target_context import OPTIONS, inputs, make

LOOKING = {"self_attentive", "self_attentive_rnn", "key_value_predict"}


@cache
def weights_of(name: str) -> np.ndarray | None:
    if CATALOGUE.build(OPTIONS[name]).self_attention is None:
        return None
    context, params = make(name)
    return np.asarray(jax.jit(context.self_attention)(params, *inputs()))


@pytest.mark.parametrize("name", OPTIONS)
def test_weights_are_of_earlier_words_alone(name):
    weights = weights_of(name)
    member = CATALOGUE.name_of(OPTIONS[name])
    assert (weights is not None) == (member in LOOKING)
    if weights is None:
        return
    T = weights.shape[1]
    assert np.all(np.triu(np.ones((T, T)), 1) * weights == 0)
    total = weights.sum(-1)
    np.testing.assert_allclose(total[:, -1], 1, rtol=1e-6)
    assert np.all((np.abs(total - 1) < 1e-6) | (total == 0))


@pytest.mark.parametrize("name", ["self_attentive", "scope", "no-null"])
def test_told_weights_mix_the_words(name):
    context, params = make(name)
    states, embedded = inputs()
    mixed = jnp.einsum("bti,bie->bte", weights_of(name), embedded)
    read = jax.jit(context.over_time)(params, states, embedded)["word"]
    np.testing.assert_allclose(read, mixed, atol=1e-6)


def test_told_weights_mix_the_states():
    """Column i belongs to the state that predicted word i, from 1."""
    context, params = make("self_attentive_rnn")
    states, embedded = inputs()
    weights = weights_of("self_attentive_rnn")
    assert np.all(weights[:, :, 0] == 0)
    mixed = jnp.einsum("bti,bid->btd", weights[:, :, 1:], states[:, :-1])
    read = jax.jit(context.over_time)(params, states, embedded)["summary"]
    np.testing.assert_allclose(read, mixed, atol=1e-6)


def test_a_window_is_a_window():
    (plain,) = {"plain"} & OPTIONS.keys()
    weights = weights_of(plain)  # looks one state back
    for t in range(1, weights.shape[1]):
        assert np.all(weights[:, t, t] == 1)


def test_memory_rnn_mixes_its_states_with_what_it_tells(key):
    """Step by step: the summary carried is the told weights over s_0, s_1, ..."""
    base = ModelConfig(embedding=4, encoder=4, state=4, initializer="unit")
    config = SYSTEMS["memory-rnn"].model(base)
    model = assembly.build(config, 9, 8)
    params = jax.jit(model.init)(key)
    (scored,) = score(model, params, [[3, 4, 5]], [[3, 4]])

    @jax.jit
    def start(params):
        source = model.encode(params, np.array([[3, 4, 5, 0]]))
        return source, model.initial_state(params, source, 3)

    (source, state), step = start(params), jax.jit(model.step)
    (told,) = scored.self_attention
    for t, token in enumerate(([-1], [3], [4])):
        before = np.asarray(state.decoder.states.rows)[0]
        state, _ = step(params, source, state, np.array(token))
        summary = told[t] @ before[: len(told[t])]
        np.testing.assert_allclose(state.decoder.summary[0], summary, atol=1e-5)
