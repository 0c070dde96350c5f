# SPDX-License-Identifier: Apache-2.0
"""Affine maps, embeddings, dropout, and what knows of padding.

A token id below zero stands for no word: it embeds to the zero vector. Padding
and the place before the first target word are both no word, so neither has a row
in an embedding table and neither is ever predicted.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from kvnmt.initializers import Weights
from kvnmt.layers.scan import keep
from kvnmt.typing import Array, Bool, Float, Int, Key, typed

SMALLEST = 1e-6  # variance that is added where numbers are divided by its root


@struct.dataclass
class Linear:
    """An affine map of one or several inputs, a matrix each and one bias."""

    W: tuple[Float[Array, "_ O"], ...]
    b: Float[Array, " O"]


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
    # In float32, so that the gradient of a word is summed so over a batch.
    rows = precise(table)[jnp.maximum(tokens, 0)].astype(table.dtype)
    return jnp.where((tokens >= 0)[..., None], rows, 0)


def precise(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """The array, in float32 if it has fewer bits: for sums, softmax and memories."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def row_keys(key: Key[Array, ""], rows: Int[Array, " B"]) -> Key[Array, " B"]:
    """A key for each row by its number, whichever rows share a batch with it."""
    return jax.vmap(lambda row: jax.random.fold_in(key, row))(rows)


def split_key(key: Key[Array, "*B"] | None, count: int) -> list[Array | None]:
    """Splits a key into several of its kind: None, one for all, or one per row."""
    if key is None:
        return [None] * count
    if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):  # of jax.random.PRNGKey
        return split_key(jax.random.wrap_key_data(key), count)
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


def embedding_dropout(
    key: Key[Array, "*B"] | None, rate: float, whole: float, x: Float[Array, "B T E"]
) -> Float[Array, "B T E"]:
    """Drops entries as `dropout` does, and whole vectors in the same way."""
    if key is None or whole == 0.0:
        return dropout(key, rate, x)
    key, other = split_key(key, 2)
    return dropout(key, rate, x) * dropout(other, whole, jnp.ones_like(x[..., :1]))


@typed
def standardised(x: Float[Array, "*N D"]) -> Float[Array, "*N D"]:
    """``(x - mean) / sqrt(variance)`` over the last axis; of equal numbers, zeros."""
    fine = precise(x)
    fine = fine - jnp.mean(fine, axis=-1, keepdims=True)
    variance = jnp.mean(fine**2, axis=-1, keepdims=True)
    return (fine * jax.lax.rsqrt(variance + SMALLEST)).astype(x.dtype)


@typed
def masked_softmax(
    energies: Float[Array, "*N S"], mask: Bool[Array, "*N S"]
) -> Float[Array, "*N S"]:
    """Softmax over the last axis where the mask is true; exactly 0 elsewhere.

    A row without a single true entry gives zeros, with zero gradient, never NaN.
    Energies of fewer bits are worked with in float32.
    """
    weights: Any = _softmax(precise(energies), mask)
    return weights.astype(energies.dtype)


@jax.custom_vjp
def _softmax(energies: Array, mask: Array) -> Array:
    energies = jnp.where(mask, energies, jnp.finfo(energies.dtype).min)
    peak = jnp.max(energies, axis=-1, keepdims=True)
    weights = jnp.where(mask, jnp.exp(energies - peak), 0)
    total = jnp.sum(weights, axis=-1, keepdims=True)
    return weights / jnp.where(total > 0, total, 1)


def _softmax_kept(energies: Array, mask: Array) -> tuple[Array, Array]:
    """The gradient needs the weights alone: energies are not computed again for it."""
    weights = keep(_softmax(energies, mask))
    return weights, weights


def _softmax_gradient(weights: Array, above: Array) -> tuple[Array, None]:
    slope = weights * above
    return slope - weights * jnp.sum(slope, axis=-1, keepdims=True), None


_softmax.defvjp(_softmax_kept, _softmax_gradient)


@typed
def masked_mean(
    vectors: Float[Array, "B S C"], mask: Bool[Array, "B S"]
) -> Float[Array, "B C"]:
    """Mean over the real positions; the zero vector for a row without any."""
    count = jnp.sum(mask, axis=1, keepdims=True).astype(vectors.dtype)
    total = jnp.sum(jnp.where(mask[..., None], vectors, 0), axis=1)
    return total / jnp.maximum(count, 1)


@typed
def shares(weights: Float[Array, "*N S"]) -> Float[Array, "*N S"]:
    """Weights from 0 on as shares of their sum; all zero where hardly any is left.

    The weights are divided by the largest first, which changes no share: the derivative
    of a quotient divides by a square, which is 0 in float32 for weights of what a
    memory has nearly forgotten.
    """
    peak = jax.lax.stop_gradient(jnp.max(weights, axis=-1, keepdims=True))
    some = peak > 2**24 * jnp.finfo(weights.dtype).tiny
    scaled = jnp.where(some, weights / jnp.where(some, peak, 1), 0)
    total = jnp.sum(scaled, axis=-1, keepdims=True)
    return scaled / jnp.where(some, total, 1)


@typed
def last_annotation(
    vectors: Float[Array, "B S C"], mask: Bool[Array, "B S"]
) -> Float[Array, "B C"]:
    """The vector at the last real position; zero for a row without any."""
    last = jnp.maximum(jnp.sum(mask, axis=1) - 1, 0)
    rows = jnp.take_along_axis(vectors, last[:, None, None], axis=1)[:, 0]
    return jnp.where(jnp.any(mask, axis=1, keepdims=True), rows, 0)
