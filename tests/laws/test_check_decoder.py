# SPDX-License-Identifier: Apache-2.0
"""`kvnmt.check` of a decoder: a sound one passes, each law catches something."""

from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest

import kvnmt
from kvnmt.attention import additive
from kvnmt.decoder import conditional, scanned, single, stacked_lstm
from kvnmt.laws.decoder import LAWS
from tests.laws import cases

NAMES = [law.name for law in LAWS]
SOUND = single.build(single.Options(), additive.build(additive.Options()))


def giving(change):
    """The decoder whose step gives other features."""

    def step(params, source, state, inputs):
        state, features = SOUND.step(params, source, state, inputs)
        return state, change(features)

    return SOUND._replace(step=step)


def carrying(start, follow):
    """The decoder, which carries something else beside its state."""

    def initial_state(params, source, length, key=None):
        return SOUND.initial_state(params, source, length), start(source.start)

    def step(params, source, state, inputs):
        own, features = SOUND.step(params, source, state[0], inputs)
        return (own, follow(state[1])), features

    return SOUND._replace(initial_state=initial_state, step=step)


def at_once(change):
    """The decoder, of whose inputs training makes something else."""

    def over_time(params, source, state, inputs, key=None, scanning=None):
        return scanned(
            lambda state, now: SOUND.step(params, source, state, now),
            state,
            jax.tree.map(change, inputs),
        )

    return SOUND._replace(over_time=over_time)


def turned():
    """The decoder, whose State has the rows in the other order."""

    def back(state):
        return jax.tree.map(lambda leaf: leaf[::-1], state)

    def initial_state(params, source, length, key=None):
        return back(SOUND.initial_state(params, source, length))

    def step(params, source, state, inputs):
        state, features = SOUND.step(params, source, back(state), inputs)
        return back(state), features

    return SOUND._replace(initial_state=initial_state, step=step)


def stays_where_it_began():
    """The decoder, whose State is always the first one."""

    def step(params, source, state, inputs):
        _, features = SOUND.step(params, source, state, inputs)
        return state, features

    return SOUND._replace(step=step)


def starts_from_all_columns(params, encoded):
    """s_0 from a mean over all columns, padding too."""
    source = SOUND.prepare(params, encoded)
    mean = encoded.annotations.mean(axis=1).mean(axis=1, keepdims=True)
    return source.replace(start=source.start + mean)


def keeps_a_matrix(params, encoded):
    return SOUND.prepare(params, encoded), params.rounds[0].attention.address.v_energy


def prepared(prepare, unpack=lambda source: source):
    """The decoder with another Source."""

    def initial_state(params, source, length, key=None):
        return SOUND.initial_state(params, unpack(source), length)

    def step(params, source, state, inputs):
        return SOUND.step(params, unpack(source), state, inputs)

    return SOUND._replace(prepare=prepare, initial_state=initial_state, step=step)


def takes_no_key():
    """The decoder, whose start takes no key."""

    def initial_state(params, source, length, key=None):
        assert key is None
        return SOUND.initial_state(params, source, length)

    return SOUND._replace(initial_state=initial_state)


def overflows(features):
    most = jnp.exp(jnp.abs(features.context))
    return replace(features, context=features.context * most / (1 + most))


def looks_at_nothing(features):
    return replace(features, self_attention=features.state[:, :4] ** 2 - 7)


def looks_ahead(x):
    return x + x.mean(axis=1, keepdims=True)


def mixes_rows(features):
    return replace(features, state=features.state + features.state.mean(axis=0))


def looks_everywhere(features):
    (alignment,) = features.alignments
    return replace(features, alignments=(alignment + 0.1,))


def looks_at_one_column(features):
    (alignment,) = features.alignments
    return replace(features, alignments=(alignment[:, :1],))


def names_something_more(features):
    return replace(features, extras={"more": features.state})


def gives_no_context(features):
    return replace(features, context=None)


def calls_back(features):
    same = jax.ShapeDtypeStruct(features.state.shape, features.state.dtype)
    told = jax.pure_callback(lambda x: x, same, jax.lax.stop_gradient(features.state))
    return replace(features, state=features.state + 0 * told)


def is_coarse(features):
    return replace(features, context=features.context.astype(jnp.float32))


def heeds_no_context(features):
    return replace(
        features,
        context=jax.lax.stop_gradient(features.context),
        state=jax.lax.stop_gradient(features.state),
    )


def from_one_key(key, sizes, weights):
    return SOUND.init(jax.random.key(0), sizes, weights)


def draws_by_the_batch():
    """The decoder, whose start is drawn with the key of the first row for all."""

    def initial_state(params, source, length, key=None):
        start = SOUND.initial_state(params, source, length)
        if key is None:
            return start
        return jax.tree.map(lambda x: jax.random.normal(key[0], x.shape), start)

    return SOUND._replace(initial_state=initial_state)


PAIR = conditional.build(conditional.Options(), additive.build(additive.Options()))
LATE = stacked_lstm.build(stacked_lstm.Options(), additive.build(additive.Options()))


def multiplies_by_itself(params, embedded):
    """A product that `layer_norm` would normalise, had `recurrent_inputs` made it."""
    inputs = PAIR.inputs(params, embedded)
    return replace(inputs, query=embedded @ params.query.W[0] + params.query.b)


WRONG = {
    "key": (SOUND._replace(init=from_one_key), {"init"}),
    "matrix": (prepared(keeps_a_matrix, lambda source: source[0]), {"source"}),
    "columns": (prepared(starts_from_all_columns), {"wider"}),
    "names": (giving(names_something_more), {"widths"}),
    "no-context": (
        giving(gives_no_context)._replace(feature_sizes=lambda sizes: {}),
        {"widths"},
    ),
    "one-column": (giving(looks_at_one_column), {"widths"}),
    "everywhere": (giving(looks_everywhere), {"padding"}),
    "scaled": (at_once(lambda x: 0.9 * x), {"steps"}),
    "ahead": (
        at_once(looks_ahead),
        {"steps", "earlier"},
    ),
    "rows": (giving(mixes_rows), {"rows", "state"}),
    "turned": (turned(), {"state"}),
    "scalar": (
        carrying(lambda start: jnp.zeros(()), lambda n: n + 1),
        {"state", "hypotheses"},
    ),
    "callback": (giving(calls_back), {"hypotheses"}),
    "no-key": (takes_no_key(), {"keys"}),
    "one-draw": (draws_by_the_batch(), {"keys"}),
    "not-handed-on": (LATE._replace(state_reads=True), {"handed-on"}),
    "overflow": (giving(overflows), {"large"}),
    "looks": (giving(looks_at_nothing), {"attended"}),
    "coarse": (giving(is_coarse), {"precision"}),
    "dead": (giving(heeds_no_context), {"reach"}),
    "plain": (PAIR._replace(inputs=multiplies_by_itself), {"reach"}),
    "still": (stays_where_it_began(), {"state"}),
}


def test_a_module_is_built_before_it_is_tried(monkeypatch):
    """The laws of decoders themselves are in test_decoder."""
    cases.try_few(monkeypatch, LAWS, set(), set(NAMES))
    assert kvnmt.check(single).hold


def test_an_attention_is_given_all_that_it_may_ask_for(monkeypatch):
    """Though this decoder's own rounds would not, a coverage or a memory asks."""
    cases.try_few(monkeypatch, LAWS, set(), set(NAMES))

    def built(**nothing):
        def build(options, attention):
            def read(params, source, state, moment):
                return attention.read(params, source, state, moment.replace(**nothing))

            return single.build(options, attention._replace(read=read))

        return SimpleNamespace(Options=single.Options, build=build)

    assert kvnmt.check(built()).hold
    for name in ("previous_state", "embedded"):
        assert kvnmt.check(built(**{name: None})).failed == ["runs"]


# Programs of their own: tried where they are to be broken.
COSTLY = {"keys", "steps", "wider", "rows", "state", "hypotheses", "reach"}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_decoder_is_caught(name, monkeypatch):
    decoder, broken = WRONG[name]
    cases.try_few(monkeypatch, LAWS, broken, COSTLY)
    verdicts = kvnmt.check(decoder)
    assert set(verdicts.failed) == broken, verdicts


def test_every_law_catches_something():
    assert set().union(*(broken for _, broken in WRONG.values())) == set(NAMES)
