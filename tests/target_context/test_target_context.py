# SPDX-License-Identifier: Apache-2.0
"""Target contexts: their laws in every form, and what is said of each."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvnmt.errors import UserError
from kvnmt.initializers import gaussian
from kvnmt.laws.check import check
from kvnmt.laws.target_context import unroll
from kvnmt.target_context import (
    CATALOGUE,
    Options,
    TargetContext,
    delta_memory,
    key_value_predict,
    n_gram,
    self_attentive,
    slots,
)
from kvnmt.typing import Sizes

SIZES = Sizes(embedding=3, encoder=4, annotation=8, state=12, alignment=6)
B, T = 2, 5
OPTIONS: dict[str, Options] = {
    name: member.Options() for name, member in CATALOGUE.items()
} | {
    "scope": self_attentive.Options(scope=True),
    "no-null": self_attentive.Options(null_slot=False),
    "scope-no-null": self_attentive.Options(scope=True, null_slot=False),
    "plain": key_value_predict.Options(form="plain", window=1),
    "window": key_value_predict.Options(form="kv", window=2, word=False),
    "bigram": n_gram.Options(parts=2, word=False),
    "unigram": n_gram.Options(parts=1),
    "longer": n_gram.Options(parts=6),  # than the target
    "channels": delta_memory.Options(update="gated_delta_2", heads=2),
    "sum": delta_memory.Options(update="sum", key_size=4),
    "abc": slots.Options(gate="abc", slots=3),
}


@cache
def make(name: str) -> tuple[TargetContext, Any]:
    context = CATALOGUE.build(OPTIONS[name])
    init = jax.jit(lambda key: context.init(key, SIZES, gaussian(1.0)))
    return context, init(jax.random.key(1))


@cache
def inputs(scale: float = 1.0) -> tuple[jax.Array, jax.Array]:
    key_state, key_word = jax.random.split(jax.random.key(2))
    states = scale * jax.random.normal(key_state, (B, T, SIZES.state))
    embedded = scale * jax.random.normal(key_word, (B, T, SIZES.embedding))
    return states, embedded.at[:, 0].set(0)  # no word precedes the first


@pytest.mark.parametrize("name", OPTIONS)
def test_laws_hold(name):
    member = CATALOGUE[CATALOGUE.name_of(OPTIONS[name])]
    excused = ["reach"] if name == "plain" else []  # a softmax over one word is 1
    verdicts = check(member, OPTIONS[name], excused=excused)
    assert verdicts.hold, verdicts


@pytest.mark.parametrize("name", OPTIONS)
def test_the_past_is_remembered_as_far_as_said(name):
    """Which earlier steps the last one may depend on."""
    context, params = make(name)

    def last(xs: tuple[jax.Array, jax.Array]) -> jax.Array:
        seen = context.over_time(params, *xs)
        return jnp.concatenate([x[0, -1] for x in seen.values()])

    reach = [
        np.any(np.asarray(slope)[:, 0] != 0, axis=(0, 2)).tolist()
        for slope in jax.jit(jax.jacrev(last))(inputs())
    ]
    now, ever = [False] * (T - 1) + [True], [True] * T
    two = [False] * (T - 2) + [True] * 2
    three = [False] * (T - 3) + [True] * 3
    never = [False] * T
    assert (
        reach
        == {
            "previous_word": [now, now],
            "state_only": [now, never],
            "mean": [now, ever],
            "self_attentive": [now, ever],
            "self_attentive_rnn": [ever, now],
            "key_value_predict": [ever, now],
            "n_gram": [[False] + [True] * 4, now],
            "scope": [now, ever],
            "no-null": [now, [False] + [True] * (T - 1)],
            "scope-no-null": [now, [False] + [True] * (T - 1)],
            "plain": [two, now],
            "window": [three, never],
            "bigram": [two, never],
            "unigram": [now, now],
            "longer": [ever, now],
            "delta_memory": [ever, now],
            "slots": [ever, now],
            "channels": [ever, now],
            "sum": [ever, now],
            "abc": [ever, now],
        }[name]
    )


def test_a_slot_that_is_left_out_drowns_no_other():
    """However much larger its energy is: the softmax is of the others alone."""
    context, params = make("no-null")
    params = params.replace(v=1e3 * params.v)
    states, embedded = inputs()
    most = 100 * jnp.sign(params.v) @ jnp.linalg.inv(params.W.W[0])
    embedded = embedded.at[:, 0].set(most)
    energies = jnp.tanh(embedded @ params.W.W[0] + params.W.b) @ params.v
    assert float(jnp.min(energies[:, :1] - energies[:, 1:])) > 100
    want = context.over_time(params, states, embedded)["word"]
    got = unroll(context, SIZES, 0, params, states, embedded)["word"]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_streaming_equals_the_full_softmax(scale, x64):
    """Over long histories, and with energies that no exponential could bear."""
    context, params = make("self_attentive")
    params = jax.tree.map(lambda x: jnp.asarray(x, float), params)
    params = params.replace(v=scale * params.v)
    embedded = jax.random.normal(jax.random.key(3), (B, 300, 3), float)
    embedded = jnp.concatenate([embedded, embedded[:, :1] * 3], axis=1)
    states = jnp.zeros((*embedded.shape[:2], SIZES.state), float)
    energies = jnp.tanh(embedded @ params.W.W[0] + params.W.b) @ params.v
    assert scale == 1.0 or np.ptp(np.asarray(energies)) > 1e3
    want = context.over_time(params, states, embedded)["word"]
    got = unroll(context, SIZES, 0, params, states, embedded)["word"]
    assert np.isfinite(want).all()
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "options", [n_gram.Options(parts=5), key_value_predict.Options()], ids=str
)
def test_a_state_that_does_not_split(options):
    sizes = SIZES._replace(state=13)
    with pytest.raises(UserError, match="13"):
        CATALOGUE.build(options).init(jax.random.key(0), sizes, gaussian())
