# SPDX-License-Identifier: Apache-2.0
"""The recurrent units: GRU and LSTM.

In training a unit may have a mask for each sentence, the same at every step, over what
the recurrent product sees of its state: the variational dropout of Y. Gal and Z.
Ghahramani (2016), "A Theoretically Grounded Application of Dropout in Recurrent Neural
Networks", equation 8.

Its products may be normalised before they are added (J. L. Ba, J. R. Kiros, G. E.
Hinton (2016), "Layer Normalization", equation 4 and the supplement)::

    W x + U h + b   becomes   gain_W * norm(W x) + gain_U * norm(U h) + b

Departures: the paper normalises all gates of a product together, and the sum of the
products of all inputs. Here each gate and each input is normalised by itself, so that
it does not matter which products are computed before a scan. The cell of an LSTM is not
normalised on its way out.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp
from flax import struct

from kvnmt.initializers import Weights
from kvnmt.layers.basic import Linear, dropout, linear, split_key, standardised
from kvnmt.typing import Array, Float, Key, PyTree, typed

# Where r meets U_n h: behind the product, before it, or behind product and bias.
Reset: TypeAlias = Literal["after", "before", "after_bias"]


@struct.dataclass
class Gains:
    """Of normalised products."""

    W: tuple[Float[Array, " G*D"], ...]  # of each input's
    U: Float[Array, " G*D"]


@struct.dataclass
class GRU:
    """A gated recurrent unit; gates packed in the order reset, update, candidate."""

    W: tuple[Float[Array, "_ 3*D"], ...]  # one matrix per input
    U: Float[Array, "D 3*D"]
    b: Float[Array, " 3*D"]
    gains: Gains | None = None  # None: products are as they are
    mask: Float[Array, "B D"] | None = None  # over h, in training alone


@struct.dataclass
class LSTM:
    """A long short-term memory; gates packed: input, forget, output, candidate."""

    W: tuple[Float[Array, "_ 4*D"], ...]  # one matrix per input
    U: Float[Array, "D 4*D"]
    b: Float[Array, " 4*D"]
    gains: Gains | None = None  # None: products are as they are
    mask: Float[Array, "B D"] | None = None  # over h, in training alone


def init_gru(
    key: Key[Array, ""], inputs: Sequence[int], size: int, weights: Weights
) -> GRU:
    """Makes a GRU of 3 (n m + n² + n) parameters; of gains, 3 n for each matrix."""
    return GRU(**_recurrent(key, inputs, size, 3, weights))


def init_lstm(
    key: Key[Array, ""], inputs: Sequence[int], size: int, weights: Weights
) -> LSTM:
    """Makes an LSTM of 4 (n m + n² + n) parameters, without peepholes."""
    made = LSTM(**_recurrent(key, inputs, size, 4, weights))
    return replace(made, b=made.b.at[size : 2 * size].set(weights.forget))


def recurrent_inputs(
    params: GRU | LSTM, *inputs: Float[Array, "..."]
) -> Float[Array, "..."]:
    """The part that needs no state, ``W x + b``: hoist it out of a scan."""
    if params.gains is None:
        return linear(Linear(W=params.W, b=params.b), *inputs)
    places = zip(range(len(params.W)), inputs, strict=True)
    return sum((input_product(params, n, x) for n, x in places), params.b)


def input_product(
    params: GRU | LSTM, place: int, x: Float[Array, "*N _"]
) -> Float[Array, "*N _"]:
    """``W x`` of the input at a place, to be added to those of others and to b."""
    product = x @ params.W[place]
    if params.gains is None:
        return product
    return _normalised(params, product, params.gains.W[place])


def with_masks(
    key: Key[Array, "*B"] | None, rate: float, params: PyTree, rows: int
) -> PyTree:
    """The same parameters, every unit among them with masks over its state.

    Args:
        key: One, or one for each row; without one nothing is masked.
        rate: How many entries of a state the recurrent product does not see.
        params: Any tree.
        rows: B.
    """
    if key is None or rate == 0.0:
        return params
    parts, tree = jax.tree.flatten(params, is_leaf=_is_unit)
    masked = [
        replace(p, mask=dropout(k, rate, jnp.ones((rows, len(p.U)), p.U.dtype)))
        if _is_unit(p)
        else p
        for k, p in zip(split_key(key, len(parts)), parts)
    ]
    return jax.tree.unflatten(tree, masked)


def has_units(params: PyTree, *kinds: type[GRU] | type[LSTM]) -> bool:
    """Whether there is a GRU or an LSTM among parameters, or one of these kinds."""
    units = jax.tree.leaves(params, is_leaf=_is_unit)
    return any(isinstance(unit, kinds or (GRU, LSTM)) for unit in units)


def recurrent_product(
    params: GRU | LSTM, state: Float[Array, "*N D"], columns: slice = slice(None)
) -> Float[Array, "*N _"]:
    """``h U``, or some of its columns, of what the mask leaves of h."""
    if params.mask is not None:
        between = (1,) * (state.ndim - 2)  # such as source positions
        state = state * params.mask.reshape(len(state), *between, -1)
    product = state.astype(params.U.dtype) @ params.U[:, columns]  # it may be precise
    if params.gains is None:
        return product
    return _normalised(params, product, params.gains.U[columns])


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
    # [*N, 3D], or [*N, 2D] where U_n has to wait for r
    at_once = slice(None) if reset != "before" else slice(2 * size)
    recurrent = recurrent_product(params, state, at_once)
    gates = inputs[..., : 2 * size] + recurrent[..., : 2 * size]
    gates = jax.nn.sigmoid(_as_fine(gates, state))
    r, u = gates[..., :size], gates[..., size:]
    if reset == "before":
        candidate = recurrent_product(params, r * state, slice(2 * size, None))
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
    total = _as_fine(inputs + recurrent_product(params, state), cell)  # [*N, 4D]
    gates = jax.nn.sigmoid(total[..., : 3 * size])
    i, f, o = (gates[..., n * size : (n + 1) * size] for n in range(3))
    cell = f * cell + i * jnp.tanh(total[..., 3 * size :])
    return (o * jnp.tanh(cell)).astype(state.dtype), cell


def _as_fine(x: Array, memory: Array) -> Array:
    """As many bits as a memory has, if that has more: gates near 1 forget a little."""
    return x.astype(jnp.promote_types(x.dtype, memory.dtype))


def _normalised(params: GRU | LSTM, product: Array, gain: Array) -> Array:
    """Gate by gate."""
    gates = product.reshape(*product.shape[:-1], -1, len(params.U))
    return standardised(gates).reshape(product.shape) * gain


def _is_unit(part: Any) -> bool:
    return isinstance(part, GRU | LSTM)


def _recurrent(
    key: Array, inputs: Sequence[int], size: int, gates: int, weights: Weights
) -> dict[str, Any]:
    key_W, *keys_U = jax.random.split(key, gates + 1)
    blocks = [weights.recurrent(k, (size, size), jnp.float32) for k in keys_U]
    shapes = [(width, gates, size) for width in inputs]
    keys_W = jax.random.split(key_W, len(shapes))
    W = [weights.inputs(k, s, jnp.float32) for k, s in zip(keys_W, shapes)]
    gains = None
    if weights.gain:
        *of_inputs, of_state = (
            jnp.full(gates * size, weights.gain, jnp.float32) for _ in [*W, None]
        )
        gains = Gains(W=tuple(of_inputs), U=of_state)
    return {
        "gains": gains,
        "W": tuple(block.reshape(len(block), gates * size) for block in W),
        "U": jnp.concatenate(blocks, axis=1),
        "b": jnp.zeros(gates * size, jnp.float32),
    }
