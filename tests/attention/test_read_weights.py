# SPDX-License-Identifier: Apache-2.0
"""Weights of linear memories and of slots tell what was read from where."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvnmt.attention import Moment, delta_memory, slots
from kvnmt.catalogue import Mechanism
from kvnmt.initializers import gaussian
from kvnmt.layers.linear_memory import Writes, in_order, queries, writes
from kvnmt.typing import Sizes
from tests.attention.memories import (
    MASK,
    OFF,
    UPDATES,
    B,
    T,
    close,
    draw,
    without_decay,
)
from tests.references import memories

SIZES = Sizes(embedding=3, encoder=4, annotation=8, state=5, alignment=6)


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
    N, K = made.source.weights.shape[1:3]
    small = {"sum": (), "decay": (B, N, 1), "gated": (B, N, K)}
    assert np.shape(made.states[0].change) == small.get(update, (B, N, K, K))
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
