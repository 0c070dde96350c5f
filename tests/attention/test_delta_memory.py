# SPDX-License-Identifier: Apache-2.0
"""Linear memories and slots: what becomes what, and what was read from where."""

import dataclasses
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvnmt.initializers import gaussian
from kvnmt.layers import Linear
from kvnmt.layers.linear_memory import (
    Update,
    Writer,
    Writes,
    in_order,
    init_writer,
    read,
    rewrite,
    writes,
)
from kvnmt.layers.write_chunks import fill, reads, source_weights
from tests.attention.memories import (
    MASK,
    OFF,
    SHAPE,
    UPDATES,
    WIDTH,
    B,
    T,
    close,
    draw,
    filled,
    without_decay,
)


def writer_of(update: Update) -> Writer:
    shapes = jax.eval_shape(
        lambda key: init_writer(update, key, WIDTH, SHAPE, gaussian()),
        jax.random.key(0),
    )
    numbers = np.random.default_rng(3)
    return jax.tree.map(lambda x: jax.device_put(numbers.normal(size=x.shape)), shapes)


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
