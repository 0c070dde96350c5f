# SPDX-License-Identifier: Apache-2.0
"""What writes do to a memory, against the memory before and after them."""

import dataclasses
from functools import cache, partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvnmt import decoder as decoders
from kvnmt.attention import CATALOGUE, Moment, kv_memory
from kvnmt.decoder import conditional
from kvnmt.errors import UserError
from kvnmt.inference.recording import has_memory, memory_changes, recording, taken
from kvnmt.initializers import gaussian
from kvnmt.model import assembly
from kvnmt.model.config import ModelConfig
from kvnmt.systems.named import system
from kvnmt.typing import Sizes

SIZES = Sizes(embedding=3, encoder=4, annotation=8, state=5, alignment=6)
BASE = ModelConfig(embedding=4, encoder=4, state=4, initializer="unit")
SOURCE, TARGET = [[3, 4, 5], [6], []], [[3, 4], [5, 6, 7, 3], [2]]


@cache
def make(config: ModelConfig):
    model = assembly.build(config, 9, 8)
    return model, model.init(jax.random.key(3))


@pytest.mark.parametrize(
    "options",
    [kv_memory.Options(), kv_memory.Options(add="tanh", share_addresses=True)],
    ids=str,
)
def test_a_write_is_taken_apart(options, key, x64):
    """Forgotten and added are what the keys lost and got, by equations 14 and 16."""
    attention = kv_memory.build(options)
    params = attention.init(key, SIZES, gaussian(1.0))
    params = jax.tree.map(lambda x: jnp.asarray(x, float), params)
    mask = jnp.array([[1, 1, 1, 1], [1, 1, 0, 0]], bool)
    source = attention.prepare(params, jax.random.normal(key, (2, 4, 8)), mask)
    state = attention.initial_state(params, source)
    query = jax.random.normal(jax.random.fold_in(key, 1), (2, 5))
    given = source, state, Moment(query, query[:, :3], query, decoder_state=query)
    told = attention.explain(params, *given)
    change = attention.write(params, *given).keys - state.keys
    norm = np.linalg.norm
    np.testing.assert_allclose(told.changed, norm(change, axis=-1), rtol=1e-9)
    # Without an add gate's output only forgetting is left, and the other way round.
    low = {"sigmoid": -1e9, "tanh": 0.0}[options.add]
    still = dataclasses.replace(
        params.add, W=jax.tree.map(jnp.zeros_like, params.add.W), b=params.add.b + low
    )
    still = still if options.add == "sigmoid" else still.replace(b=still.b * 0)
    only = params.replace(add=still)
    lost = attention.write(only, *given).keys - state.keys
    np.testing.assert_allclose(told.forgotten, norm(lost, axis=-1), atol=1e-12)
    np.testing.assert_allclose(told.added, norm(change - lost, axis=-1), atol=1e-12)
    assert np.all(np.asarray(told.changed)[1, 2:] == 0)  # padding
    assert np.all(np.asarray(told.added)[:, :2] > 0)


def test_which_mechanisms_tell():
    telling = {
        name
        for name, member in CATALOGUE.items()
        if has_memory(dataclasses.replace(BASE, attention=member.Options()))
    }
    assert telling == {"kv_memory"}
    of_nothing = dataclasses.replace(BASE, attention=kv_memory.Options(), merge="none")
    assert not has_memory(of_nothing)  # of which no model is built


def test_writes_are_kept_in_their_order(key):
    attention = kv_memory.build(kv_memory.Options())
    watched, params = (
        recording("explain")(attention),
        attention.init(key, SIZES, gaussian(1.0)),
    )
    annotations = jax.random.normal(key, (2, 4, 8))
    source = watched.prepare(params, annotations, jnp.ones((2, 4), bool))
    state, told = watched.initial_state(params, source), []
    for n in range(3):
        query = jax.random.normal(jax.random.fold_in(key, n), (2, 5))
        moment = Moment(query, query[:, :3], query, decoder_state=query)
        told.append(attention.explain(params, source.inner, state.inner, moment))
        state = watched.write(params, source, state, moment)
    emptied, noted = taken(state)
    for kind in ("changed", "forgotten", "added"):
        for place, change in enumerate(told):
            kept = getattr(noted, kind)[:, place]
            np.testing.assert_allclose(kept, getattr(change, kind), rtol=1e-6)
        assert getattr(emptied.told, kind).shape == (2, 0, 4)


def test_what_is_not_added_is_not_told():
    config = system("kvmematt-r1").model(dataclasses.replace(BASE, merge="sum"))
    _, params = make(config)
    (one,) = params.decoder.rounds
    still = dataclasses.replace(one.attention.add, b=one.attention.add.b - 1e9)
    quiet = one.replace(attention=one.attention.replace(add=still))
    params = params.replace(decoder=params.decoder.replace(rounds=(quiet,)))
    (found,) = memory_changes(config, params, SOURCE[:1], TARGET[:1])
    assert np.all(found.added[0] == 0) and np.all(found.forgotten[0] > 0)
    np.testing.assert_allclose(found.changed[0], found.forgotten[0], rtol=1e-6)


@pytest.mark.parametrize("name", decoders.CATALOGUE)
def test_any_decoder_carries_the_record(name):
    """The recorded model decodes as the plain one; every round has its writes."""
    options = decoders.CATALOGUE[name].Options()
    if "rounds" in vars(options):
        options = dataclasses.replace(options, rounds=2)
    base = dataclasses.replace(BASE, merge="sum")
    config = dataclasses.replace(base, attention=kv_memory.Options(), decoder=options)
    model, params = make(config)
    found = memory_changes(config, params, SOURCE, TARGET)
    rounds = vars(options).get("rounds", 1)
    watched = assembly.build(config, 9, 8, recording("explain"))
    np.testing.assert_allclose(
        _logits(model, params), _logits(watched, params), rtol=1e-5, atol=1e-7
    )
    for one, x, y in zip(found, SOURCE, TARGET):
        for kind in one:
            assert [m.shape for m in kind] == [(len(y) + 1, len(x) + 1)] * rounds
        changed, forgotten, added = (np.stack(kind) for kind in one)
        assert np.all(changed > 0)
        assert np.all(changed <= forgotten + added + 1e-6)


@dataclasses.dataclass(frozen=True)
class Losing(conditional.Options):
    """Of a decoder that keeps its laws, and cannot carry notes."""

    way: str = "gates"


def loses(options, attention):
    decoder = conditional.build(conditional.Options(), attention)

    def steps(params, source, state, inputs):
        if options.way == "drops":
            state = decoder.initial_state(params, source, 1).replace(state=state)
        new, features = decoder.step(params, source, state, inputs)
        if options.way == "gates":
            new = jax.tree.map(lambda old, now: 0.5 * old + 0.5 * now, state, new)
        if options.way == "never writes":
            new = new.replace(attention=state.attention)
        return new.state if options.way == "drops" else new, features

    def scans(params, source, state, inputs):
        once = jax.tree.map(lambda x: x[None], inputs)
        following = partial(decoder.step, params, source)
        state, features = jax.lax.scan(following, state, once)
        return state, jax.tree.map(lambda x: x[0], features)

    def begin(params, source, length, key=None):
        state = decoder.initial_state(params, source, length)
        return state.state if options.way == "drops" else state

    step = scans if options.way == "scans" else steps
    return decoder._replace(initial_state=begin, step=step)


@pytest.mark.parametrize("way", ["gates", "scans", "drops", "never writes"])
def test_a_decoder_that_loses_the_record_is_told(way):
    decoders.CATALOGUE.add("losing", SimpleNamespace(Options=Losing, build=loses))
    base = dataclasses.replace(BASE, merge="sum", attention=kv_memory.Options())
    config = dataclasses.replace(base, decoder=Losing(way=way))
    try:
        params = assembly.build(config, 9, 8).init(jax.random.key(3))
        with pytest.raises(UserError, match="attends to cannot be told .*carry"):
            memory_changes(config, params, SOURCE, TARGET)
    finally:
        decoders.CATALOGUE.remove("losing")


def _logits(model, params):
    """Of two words, in steps."""
    source, step = model.encode(params, np.array([[3, 4, 5, 0]])), jax.jit(model.step)
    state, logits = model.initial_state(params, source, 2), []
    for token in (-1, 3):
        state, prediction = step(params, source, state, jnp.array([token]))
        logits.append(prediction.logits)
    return np.stack(logits)


def test_rows_are_the_writes_after_each_word():
    """Against a step by hand: the keys before and after the second word's step."""
    config = system("kvmematt-r2").model(dataclasses.replace(BASE, merge="sum"))
    model, params = make(config)
    (found,) = memory_changes(config, params, [SOURCE[0]], [TARGET[0]])
    source = model.encode(params, np.array([[3, 4, 5, 0]]))
    state, keys = model.initial_state(params, source, 3), []
    for token in ([-1], [3], [4]):
        keys.append(state.decoder.attention.keys)
        state, _ = model.step(params, source, state, jnp.array(token))
    keys.append(state.decoder.attention.keys)
    for t in range(3):
        whole = np.linalg.norm(keys[t + 1] - keys[t], axis=-1)[0]
        first, second = found.changed[0][t], found.changed[1][t]
        assert np.all(whole <= first + second + 1e-6)
        assert np.all(whole >= abs(first - second) - 1e-6)
    one = system("kvmematt-r1").model(dataclasses.replace(BASE, merge="sum"))
    model, params = make(one)
    (found,) = memory_changes(one, params, [SOURCE[0]], [TARGET[0]])
    source = model.encode(params, np.array([[3, 4, 5, 0]]))
    state = model.initial_state(params, source, 3)
    for t, token in enumerate(([-1], [3], [4])):
        before = state.decoder.attention.keys
        state, _ = model.step(params, source, state, jnp.array(token))
        change = np.linalg.norm(state.decoder.attention.keys - before, axis=-1)[0]
        np.testing.assert_allclose(found.changed[0][t], change, rtol=1e-4)
