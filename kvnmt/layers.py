# SPDX-License-Identifier: Apache-2.0
"""Layers as pairs of functions: ``init_*`` makes the arrays, the other applies them.

A token id below zero stands for no word: it embeds to the zero vector. Padding
and the place before the first target word are both no word, so neither has a row
in an embedding table and neither is ever predicted.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp
from flax import struct

from kvnmt.initializers import Weights
from kvnmt.typing import Array, Bool, Float, Int, Key, PyTree, typed

# Where r meets U_n h: behind the product, before it, or behind product and bias.
Reset: TypeAlias = Literal["after", "before", "after_bias"]


@struct.dataclass
class Linear:
    """An affine map of one or several inputs, a matrix each and one bias."""

    W: tuple[Float[Array, "_ O"], ...]
    b: Float[Array, " O"]


@struct.dataclass
class GRU:
    """A gated recurrent unit; gates packed in the order reset, update, candidate."""

    W: tuple[Float[Array, "_ 3*D"], ...]  # one matrix per input
    U: Float[Array, "D 3*D"]
    b: Float[Array, " 3*D"]


@struct.dataclass
class LSTM:
    """A long short-term memory; gates packed: input, forget, output, candidate."""

    W: tuple[Float[Array, "_ 4*D"], ...]  # one matrix per input
    U: Float[Array, "D 4*D"]
    b: Float[Array, " 4*D"]


def init_linear(
    key: Key[Array, ""], inputs: Sequence[int], output: int, weights: Weights
) -> Linear:
    """Makes the matrices for inputs of the given widths; the bias starts at zero."""
    keys = jax.random.split(key, len(inputs))
    W = tuple(weights.matrix(k, (n, output), jnp.float32) for k, n in zip(keys, inputs))
    return Linear(W=W, b=jnp.zeros(output, jnp.float32))


def linear(params: Linear, *inputs: Float[Array, "..."]) -> Float[Array, "..."]:
    """Returns the sum of ``x @ W`` over the inputs, plus the bias."""
    total = params.b
    for x, W in zip(inputs, params.W, strict=True):
        total = total + x @ W
    return total


@typed
def embed(table: Float[Array, "V E"], tokens: Int[Array, "*N"]) -> Float[Array, "*N E"]:
    """Looks token ids up; an id below zero gives the zero vector."""
    rows = table[jnp.maximum(tokens, 0)]
    return jnp.where((tokens >= 0)[..., None], rows, 0)


def precise(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """The same in float32, if it had fewer bits: for sums, softmax and memories."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def row_keys(key: Key[Array, ""], rows: Int[Array, " B"]) -> Key[Array, " B"]:
    """A key for each row by its number, whichever rows share a batch with it."""
    return jax.vmap(lambda row: jax.random.fold_in(key, row))(rows)


def split_key(key: Key[Array, "*B"] | None, count: int) -> list[Array | None]:
    """As many keys of the same kind: None, one for all, or one for each row."""
    if key is None:
        return [None] * count
    if key.ndim == 0:
        return list(jax.random.split(key, count))
    rows = jax.vmap(lambda row: jax.random.split(row, count), out_axes=1)
    return list(rows(key))


def draw(
    key: Key[Array, "*B"],
    sample: Callable[[Key[Array, ""], tuple[int, ...]], Array],
    shape: tuple[int, ...],
) -> Array:
    """Random numbers of a shape whose first axis is rows, each from its own key."""
    if key.ndim == 0:
        return sample(key, shape)
    return jax.vmap(lambda row: sample(row, shape[1:]))(key)


def dropout(
    key: Key[Array, "*B"] | None, rate: float, x: Float[Array, "*N"]
) -> Float[Array, "*N"]:
    """Drops entries with probability ``rate``, scaling the rest; no key, no change.

    Args:
        key: One, or one for each row (`row_keys`).
        rate: How many.
        x: Rows first.
    """
    if key is None or rate == 0.0:
        return x
    kept = draw(
        key, lambda k, shape: jax.random.bernoulli(k, 1.0 - rate, shape), x.shape
    )
    return jnp.where(kept, x / (1.0 - rate), 0)


@typed
def masked_softmax(
    energies: Float[Array, "*N S"], mask: Bool[Array, "*N S"]
) -> Float[Array, "*N S"]:
    """Softmax over the last axis where the mask is true; exactly 0 elsewhere.

    A row without a single true entry gives zeros, with zero gradient, never NaN.
    Energies of fewer bits are worked with in float32.
    """
    dtype = energies.dtype
    energies = precise(energies)
    energies = jnp.where(mask, energies, jnp.finfo(energies.dtype).min)
    peak = jax.lax.stop_gradient(jnp.max(energies, axis=-1, keepdims=True))
    weights = jnp.where(mask, jnp.exp(energies - peak), 0)
    total = jnp.sum(weights, axis=-1, keepdims=True)
    return (weights / jnp.where(total > 0, total, 1)).astype(dtype)


@typed
def masked_mean(
    vectors: Float[Array, "B S C"], mask: Bool[Array, "B S"]
) -> Float[Array, "B C"]:
    """Mean over the real positions; the zero vector for a row without any."""
    count = jnp.sum(mask, axis=1, keepdims=True).astype(vectors.dtype)
    total = jnp.sum(jnp.where(mask[..., None], vectors, 0), axis=1)
    return total / jnp.maximum(count, 1)


@typed
def last_annotation(
    vectors: Float[Array, "B S C"], mask: Bool[Array, "B S"]
) -> Float[Array, "B C"]:
    """The vector at the last real position; zero for a row without any."""
    last = jnp.maximum(jnp.sum(mask, axis=1) - 1, 0)
    rows = jnp.take_along_axis(vectors, last[:, None, None], axis=1)[:, 0]
    return jnp.where(jnp.any(mask, axis=1, keepdims=True), rows, 0)


def init_gru(
    key: Key[Array, ""], inputs: Sequence[int], size: int, weights: Weights
) -> GRU:
    """Makes a GRU of 3 (n m + n² + n) parameters."""
    return GRU(**_recurrent(key, inputs, size, 3, weights))


def init_lstm(
    key: Key[Array, ""], inputs: Sequence[int], size: int, weights: Weights
) -> LSTM:
    """Makes an LSTM of 4 (n m + n² + n) parameters, without peepholes."""
    return LSTM(**_recurrent(key, inputs, size, 4, weights))


def recurrent_inputs(
    params: GRU | LSTM, *inputs: Float[Array, "..."]
) -> Float[Array, "..."]:
    """The part that needs no state, ``W x + b``: hoist it out of a scan."""
    return linear(Linear(W=params.W, b=params.b), *inputs)


@typed
def gru(
    params: GRU,
    state: Float[Array, "*N D"],
    inputs: Float[Array, "*N 3*D"],
    reset: Reset = "after",
) -> Float[Array, "*N D"]:
    """One step of the GRU.

    ::

        r = sig(W_r x + U_r h + b_r)
        u = sig(W_u x + U_u h + b_u)
        n = tanh(W_n x + r * (U_n h) + b_n)       after: dl4mt, but for its GRU2
        n = tanh(W_n x + U_n (r * h) + b_n)       before: Bahdanau et al. 2015
        n = tanh(W_n x + r * (U_n h + b_n))       after_bias: that GRU2
        h' = u * h + (1 - u) * n

    Args:
        params: The unit.
        state: Previous state h.
        inputs: What `recurrent_inputs` made of x.
        reset: Where r meets the recurrent product.
    """
    size = state.shape[-1]
    U = params.U if reset != "before" else params.U[:, : 2 * size]
    recurrent = state @ U  # [*N, 3D], or [*N, 2D] where U_n has to wait for r
    gates = jax.nn.sigmoid(inputs[..., : 2 * size] + recurrent[..., : 2 * size])
    r, u = gates[..., :size], gates[..., size:]
    if reset == "before":
        candidate = (r * state) @ params.U[:, 2 * size :]
    else:
        candidate = r * recurrent[..., 2 * size :]
    if reset == "after_bias":  # the inputs hold b_n already, whole
        candidate = candidate - (1 - r) * params.b[2 * size :]
    candidate = jnp.tanh(inputs[..., 2 * size :] + candidate)
    return u * state + (1 - u) * candidate


@typed
def lstm(
    params: LSTM,
    state: Float[Array, "*N D"],
    cell: Float[Array, "*N D"],
    inputs: Float[Array, "*N 4*D"],
) -> tuple[Float[Array, "*N D"], Float[Array, "*N D"]]:
    """One step of the LSTM; returns the next state h and cell c.

    ::

        i, f, o = sig(W x + U h + b)      g = tanh(W_g x + U_g h + b_g)
        c' = f * c + i * g                h' = o * tanh(c')
    """
    size = state.shape[-1]
    total = inputs + state @ params.U  # [*N, 4D]
    gates = jax.nn.sigmoid(total[..., : 3 * size])
    i, f, o = (gates[..., n * size : (n + 1) * size] for n in range(3))
    cell = f * cell + i * jnp.tanh(total[..., 3 * size :])
    return o * jnp.tanh(cell), cell


def scan(
    step: Callable[[PyTree, PyTree], tuple[PyTree, PyTree]],
    state: PyTree,
    inputs: PyTree,
    chunk: int = 0,
) -> PyTree:
    """Runs a step over time and returns what every step gives.

    Args:
        step: ``(state, inputs of a step) -> (state, what it gives)``.
        state: Before the first step.
        inputs: Arrays with time as their first axis.
        chunk: For the gradient only the state before every ``chunk`` steps is kept,
            and the steps between are computed again; 0: everything is kept.
    """

    def run(state: PyTree, inputs: PyTree) -> tuple[PyTree, PyTree]:
        return jax.lax.scan(step, state, inputs)

    if not chunk:
        return run(state, inputs)[1]
    length = jax.tree.leaves(inputs)[0].shape[0]
    whole = length // chunk * chunk

    def split(x: Array) -> Array:
        return x[:whole].reshape(-1, chunk, *x.shape[1:])

    def join(x: Array, rest: Array) -> Array:
        return jnp.concatenate([x.reshape(whole, *rest.shape[1:]), rest])

    # A scan keeps XLA from merging both computations; outside of one it must be told.
    inside = jax.checkpoint(run, prevent_cse=False)
    state, results = jax.lax.scan(inside, state, jax.tree.map(split, inputs))
    rest = jax.tree.map(lambda x: x[whole:], inputs)
    return jax.tree.map(join, results, jax.checkpoint(run)(state, rest)[1])


def _recurrent(
    key: Array, inputs: Sequence[int], size: int, gates: int, weights: Weights
) -> dict[str, Any]:
    key_W, *keys_U = jax.random.split(key, gates + 1)
    blocks = [weights.recurrent(k, (size, size), jnp.float32) for k in keys_U]
    shapes = [(width, gates, size) for width in inputs]
    keys_W = jax.random.split(key_W, len(shapes))
    W = [weights.inputs(k, s, jnp.float32) for k, s in zip(keys_W, shapes)]
    return {
        "W": tuple(block.reshape(len(block), gates * size) for block in W),
        "U": jnp.concatenate(blocks, axis=1),
        "b": jnp.zeros(gates * size, jnp.float32),
    }
