# SPDX-License-Identifier: Apache-2.0
"""Linear memories and slots: what becomes what, and what was read from where."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvnmt.attention import Moment, delta_memory, slots
from kvnmt.catalogue import Mechanism
from kvnmt.initializers import gaussian
from kvnmt.layers import Linear
from kvnmt.layers.linear_memory import (
    Shape,
    Update,
    Writer,
    Writes,
    in_order,
    init_writer,
    queries,
    read,
    rewrite,
    writes,
)
from kvnmt.layers.write_chunks import fill, reads, source_weights
from kvnmt.typing import Sizes
from tests.references import memories

SIZES = Sizes(embedding=3, encoder=4, annotation=8, state=5, alignment=6)
UPDATES = get_args(Update)
B, T, WIDTH, SHAPE = 2, 11, 7, Shape(heads=2, key=3, value=4)
MASK = np.arange(T) < np.array([[T], [6]])
OFF = 1e9  # of a bias that shuts a gate, or opens it
close = {"rtol": 1e-10, "atol": 1e-10}


def draw(seed: int, *shape: int) -> jax.Array:
    return jax.device_put(np.random.default_rng(seed).normal(size=shape))


def writer_of(update: Update) -> Writer:
    shapes = jax.eval_shape(
        lambda key: init_writer(update, key, WIDTH, SHAPE, gaussian()),
        jax.random.key(0),
    )
    numbers = np.random.default_rng(3)
    return jax.tree.map(lambda x: jax.device_put(numbers.normal(size=x.shape)), shapes)


# Compiled: one by one, their operations would be a program each.
filled = jax.jit(fill)


@partial(jax.jit, static_argnums=0)
def made_by(update: Update, writer: Writer) -> Writes:
    return in_order(writes(writer, draw(1, B, T, WIDTH), 2), jnp.asarray(MASK))


def steps(made: Writes, asked: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The memory after all writes and what was read before each, one by one."""
    memory, found = jnp.zeros((B, *SHAPE)), []
    for t in range(T):
        found.append(read(memory, asked[:, :, t]))
        one = jax.tree.map(lambda x, t=t: x[:, :, t], made)
        memory = rewrite(memory, one)
    return memory, jnp.stack(found, axis=2)


@pytest.mark.parametrize("update", UPDATES)
def test_writes_at_once_are_writes_one_by_one(update, x64):
    """In chunks that divide the time or not, with padding; so are reads and weights."""
    made = made_by(update, writer_of(update))
    asked = draw(2, B, 2, T, SHAPE.key)
    memory, found = jax.jit(steps)(made, asked)

    @partial(jax.jit, static_argnums=0)
    def at_once(chunk: int) -> tuple[jax.Array, ...]:
        filled, weights = fill(made, chunk), source_weights(made, chunk)
        return filled, reads(made, asked, chunk), weights

    for chunk in (1, 4, 16):
        filled, between, weights = at_once(chunk)
        np.testing.assert_allclose(filled, memory, **close)
        np.testing.assert_allclose(between, found, **close)
        mixed = jnp.einsum("bnks,bnsv->bnkv", weights, made.value)
        np.testing.assert_allclose(mixed, memory, **close)
        assert np.all(np.asarray(weights)[1, :, :, 6:] == 0)  # padding


def test_a_strong_forgetting_rounds_nothing_behind_it():
    """In float32; the decay of one word is far from those of all others."""
    decay = jnp.full((12, 1), -0.05).at[5].set(-1.0123e7)
    ones = jnp.ones((12, 1))
    made = Writes(key=ones, value=ones, erase=None, log_decay=decay)
    memory, found = jnp.zeros((1, 1)), []
    for t in range(12):
        found.append(read(memory, jnp.ones(1)))
        memory = rewrite(memory, jax.tree.map(lambda x, t=t: x[t], made))
    np.testing.assert_allclose(reads(made, ones), jnp.stack(found), rtol=1e-5)


def test_gradients_at_once_are_gradients_one_by_one(x64):
    """Of what is left and of what was read between, by all that a writer has."""
    asked = draw(2, B, 2, T, SHAPE.key)

    def total(which: Callable[..., tuple], writer: Writer) -> jax.Array:
        return sum(jnp.sum(jnp.sin(x)) for x in which(made_by("kda", writer), asked))

    def at_once(made: Writes, asked: jax.Array) -> tuple[jax.Array, jax.Array]:
        return fill(made, 4), reads(made, asked, 4)

    of_chunks, of_steps = (
        jax.jit(jax.grad(partial(total, which)))(writer_of("kda"))
        for which in (at_once, steps)
    )
    for leaf, other in zip(jax.tree.leaves(of_chunks), jax.tree.leaves(of_steps)):
        np.testing.assert_allclose(leaf, other, **close)
        assert np.all(np.asarray(leaf) != 0)


def spread(gate: Linear, times: int) -> Linear:
    """The gate of a head as the gates of its channels."""
    (W,) = gate.W
    return Linear((jnp.repeat(W, times, axis=1),), jnp.repeat(gate.b, times))


def without_decay(writer: Writer) -> Writer:
    assert writer.decay is not None
    none = writer.decay.replace(A=jnp.full(SHAPE.heads, -np.inf))
    return writer.replace(decay=none)


def by_channels(writer: Writer) -> Writer:
    assert writer.decay is not None
    gate = spread(writer.decay.gate, SHAPE.key)
    return writer.replace(decay=writer.decay.replace(gate=gate))


def same_memory(update: Update, writer: Writer, other: Update, its: Writer) -> None:
    want = filled(made_by(other, its))
    np.testing.assert_allclose(filled(made_by(update, writer)), want, **close)


def test_every_update_becomes_a_simpler_one(x64):
    kda = writer_of("kda")
    both = kda.replace(
        erase=spread(kda.erase, SHAPE.key), write=spread(kda.erase, SHAPE.value)
    )
    same_memory("gated_delta_2", both, "kda", kda)
    gated = writer_of("gated_delta")
    same_memory("kda", by_channels(gated), "gated_delta", gated)
    plain = gated.replace(decay=None)
    same_memory("gated_delta", without_decay(gated), "delta", plain)
    decay = writer_of("decay")
    same_memory("gated", by_channels(decay), "decay", decay)
    same_memory("decay", without_decay(decay), "sum", decay.replace(decay=None))


def test_a_decay_that_sees_no_input_is_a_fixed_one(x64):
    """RetNet's: what was written n steps ago has faded n times."""
    base = writer_of("decay")
    (W,) = base.decay.gate.W
    gate = Linear((0 * W,), base.decay.gate.b)
    made = made_by("decay", base.replace(decay=base.decay.replace(gate=gate)))
    fades = jnp.exp(-jnp.exp(base.decay.A) * jax.nn.softplus(gate.b))  # [N]
    ago = jnp.maximum(MASK.sum(axis=1)[:, None] - 1 - np.arange(T), 0)  # [B, T]
    left = fades[:, None] ** ago[:, None]
    want = jnp.einsum("bnt,bntk,bntv->bnkv", left, made.key, made.value)
    np.testing.assert_allclose(filled(made), want, **close)


@pytest.mark.parametrize("by", ["channels", "scalar", "none"])
def test_without_erasing_a_delta_rule_is_a_sum(by, x64):
    """b = 0 and w = 1: the sum of the values at the keys, decayed or not."""
    base = writer_of("gated_delta_2")
    shut = dataclasses.replace(base.erase, b=base.erase.b - OFF)
    opened = dataclasses.replace(base.write, b=base.write.b + OFF)
    writer = base.replace(erase=shut, write=opened)
    if by == "scalar":
        (W,) = base.decay.gate.W
        gate = Linear((W[:, :: SHAPE.key],), base.decay.gate.b[:: SHAPE.key])
        decay = base.decay.replace(gate=spread(gate, SHAPE.key))
        writer = writer.replace(decay=decay)
    writer = without_decay(writer) if by == "none" else writer
    made = made_by("gated_delta_2", writer)
    values = jnp.swapaxes((draw(1, B, T, WIDTH) @ base.W_value), 1, 2)
    values = values.reshape(B, 2, SHAPE.value, T).swapaxes(2, 3)
    np.testing.assert_allclose(made.value, values, **close)
    later = jnp.cumsum(made.log_decay[:, :, ::-1], axis=2)[:, :, ::-1] - made.log_decay
    want = jnp.einsum("bntk,bntv->bnkv", made.key * jnp.exp(later), values)
    np.testing.assert_allclose(filled(made), want, **close)
    assert (by == "none") == bool(np.all(made.log_decay == 0))


class Course:
    """An attention over one sentence, written by a decoder three times."""

    def __init__(self, module: Mechanism = delta_memory, **options: Any):
        self.attention = module.build(module.Options(**options))
        shapes = jax.eval_shape(
            lambda key: self.attention.init(key, SIZES, gaussian()), jax.random.key(0)
        )
        numbers = np.random.default_rng(5)
        self.params = jax.tree.map(
            lambda x: jax.device_put(numbers.normal(size=x.shape)), shapes
        )
        self.annotations = draw(6, B, T, SIZES.annotation)
        given = self.params, self.annotations, jnp.asarray(MASK)
        self.source = jax.jit(self.attention.prepare)(*given)
        self.states = [jax.jit(self.attention.initial_state)(self.params, self.source)]
        self.moments = []
        for n in range(3):
            q, s = draw(10 + n, B, SIZES.state), draw(20 + n, B, SIZES.state)
            self.moments.append(Moment(q, q[:, :3], q, decoder_state=s))

    def write_all(self, params: Any = None) -> None:
        write = jax.jit(self.attention.write)
        for moment in self.moments:
            given = params or self.params, self.source, self.states[-1], moment
            self.states.append(write(*given))

    def reads(self) -> list[tuple[Any, Any]]:
        """What was read at each state, and what it consisted of; in NumPy."""
        given = [
            (self.params, self.source, state, moment)
            for state, moment in zip(self.states, self.moments)
        ]
        read, weigh = jax.jit(self.attention.read), jax.jit(self.attention.weigh)
        return [jax.device_get((read(*g), weigh(*g))) for g in given]


BOTH = {"heads": 2, "direction": "both"}  # four heads


@pytest.mark.parametrize(
    ("update", "options"), [*((update, BOTH) for update in UPDATES), ("kda", {})]
)
def test_weights_tell_what_was_read(update, options, x64):
    """The source's values with the signed weights, and what the decoder wrote."""
    made = Course(update=update, write="decoder", **options)
    made.write_all()
    N = made.attention.weighed_heads
    written = jax.jit(writes, static_argnums=2)
    ask = jax.jit(queries, static_argnums=(0, 3))
    words = written(made.params.source, made.annotations, N)
    words = jax.device_get(jax.jit(in_order)(words))
    own: list[tuple[np.ndarray, np.ndarray]] = []  # p and value of every own write
    for (attended, weighed), moment in zip(made.reads(), made.moments):
        q = np.asarray(ask(update, made.params.W_query, moment.query, N))
        theirs = np.einsum("bns,bnsv->bnv", weighed.signed, words.value)
        mine = sum((np.sum(q * p, -1)[..., None] * v for p, v in own), 0 * theirs)
        context = (theirs + mine).reshape(B, -1)
        np.testing.assert_allclose(attended.context, context, **close)
        size = [np.linalg.norm(x.reshape(B, -1), axis=-1) for x in (mine, theirs)]
        np.testing.assert_allclose(weighed.own, size[0] / sum(size), **close)
        write = written(made.params.decoder, moment.decoder_state, N)
        write = jax.device_get(write)
        own = [(_transit(p, write), v) for p, v in own]
        own.append((write.key, write.value))
    signed = np.asarray(weighed.signed)
    assert np.any(signed < 0) and np.all(signed[1, :, 6:] == 0)


def _transit(p: np.ndarray, write: Writes) -> np.ndarray:
    p = np.exp(write.log_decay) * p
    if write.erase is None:
        return p
    return p - write.key * np.sum(write.erase * p, -1, keepdims=True)


@pytest.mark.parametrize("update", ["gated_delta", "gated_delta_2"])
def test_a_decoder_that_writes_nothing_leaves_the_memory(update, x64):
    made = Course(update=update, write="decoder")
    own = made.params.decoder
    shut = without_decay(own).replace(
        erase=dataclasses.replace(own.erase, b=own.erase.b - OFF)
    )
    if own.write is not None:
        write = dataclasses.replace(own.write, b=own.write.b - OFF)
        shut = shut.replace(write=write)
    shut = shut.replace(decay=own.decay.replace(A=jnp.full(1, -np.inf)))
    made.write_all(made.params.replace(decoder=shut))
    for leaf, first in zip(
        jax.tree.leaves(made.states[-1]), jax.tree.leaves(made.states[0])
    ):
        np.testing.assert_array_equal(leaf, first)
    quiet = Course(update=update)
    quiet.params = made.params.replace(decoder=None)
    quiet.source, quiet.states = made.source, [()] * 3
    for (one, told), (other, _) in zip(made.reads(), quiet.reads()):
        np.testing.assert_array_equal(one.context, other.context)
        assert np.all(told.own == 0)


def test_the_second_direction_begins_at_the_end(x64):
    """Both directions: the second half of the context is read from the end."""
    both = Course(update="delta", direction="both")
    (attended, _), *_ = [*both.reads(), None]
    turned = both.annotations[:, ::-1]
    mask = jnp.asarray(MASK[:, ::-1])
    source = jax.jit(both.attention.prepare)(both.params, turned, mask)
    half = slice(1, 2), slice(0, 1)
    assert source.memory.shape[1] == 2 and attended.context.shape == (B, 16)
    alone = Course(update="delta")
    parts = jax.tree.map(lambda x: x[..., x.shape[-1] // 2 :], both.params)
    found = jax.jit(alone.attention.prepare)(parts, turned, mask)
    np.testing.assert_allclose(both.source.memory[:, half[0]], found.memory, **close)
    weights = both.source.weights[:, half[0], :, ::-1]
    np.testing.assert_allclose(weights, found.weights, **close)


@pytest.mark.parametrize("gate", ["gsa", "abc"])
def test_weights_of_slots_tell_what_was_read(gate, x64):
    """Beside slots that are filled one write after another, the decoder's last."""
    made = Course(slots, gate=gate, slots=3, tau=2.0, write="decoder")
    made.write_all()
    params, annotations = jax.device_get((made.params, made.annotations))
    source, own = (
        {"W_k": w.W_key.T, "W_v": w.W_value.T, "W_m": w.W_gate.T}
        for w in (params.writer, params.decoder)
    )
    reads, moments = made.reads(), jax.device_get(made.moments)
    options = {"gate": gate, "tau": 2.0}
    for row, words in enumerate(MASK.sum(axis=1)):
        filled = memories.empty_slots(3, SIZES.alignment, SIZES.annotation)
        for h in annotations[row, :words]:
            filled = memories.filled_slot(source, options, filled, h)
        values = list(annotations[row, :words] @ params.writer.W_value)
        for (attended, weighed), moment in zip(reads, moments):
            q = params.W_query.T @ moment.query[row]
            read, weights = memories.read_slots(filled, q)
            signed = np.asarray(weighed.signed)[row, 0]
            np.testing.assert_allclose(signed[:words], weights[:words], **close)
            assert np.all(signed[words:] == 0)
            theirs = signed[:words] @ np.stack(values[:words])
            mine = sum(w * v for w, v in list(zip(weights, values))[words:])
            np.testing.assert_allclose(attended.context[row], read, **close)
            np.testing.assert_allclose(theirs + mine, read, **close)
            size = np.linalg.norm(mine), np.linalg.norm(theirs)
            np.testing.assert_allclose(weighed.own[row], size[0] / sum(size), **close)
            assert (sum(weights) < 1 - 1e-6) == (gate == "gsa")  # some has faded
            filled = memories.filled_slot(
                own, options, filled, moment.decoder_state[row]
            )
            values.append(own["W_v"] @ moment.decoder_state[row])
