# SPDX-License-Identifier: Apache-2.0
"""Key-value-predict attention over earlier decoder states.

M. Daniluk, T. Rocktäschel, J. Welbl, S. Riedel (2017), "Frustratingly Short Attention
Spans in Neural Language Modeling", section 2; for translation, the future work of
L. Miculicich Werlen et al. (2018).

=============  ==============================================================
parameters     W_Y, W_h, w, W_r, W_x: 4 k² + k numbers, k = D / parts
state, carried v and W_Y k of the last L states: [B, min(T, L), 2 k]
result         g_t of width k, and x_t unless ``word`` is off
=============  ==============================================================

::

    kvp    s_t = [k_t ; v_t ; p_t]
    kv     s_t = [k_t ; v_t], p_t = v_t
    plain  s_t = k_t = v_t = p_t
    a_t = softmax_i(w . tanh(W_Y k_i + W_h k_t))            i = t-L..t-1
    g_t = tanh(W_r sum_i a_{t,i} v_i + W_x p_t)             nothing earlier: 0 read

Slots before the beginning are masked. ``window`` is L, None for all earlier steps.
Language models read out g_t alone (``word = False``); in translation g_t takes the
place of s_t in the readout (our reading), while s_t itself recurs.
"""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
from flax import struct

from kvnmt.errors import OptionError
from kvnmt.fields import EXTENDS, WIDEST, between
from kvnmt.initializers import Weights
from kvnmt.layers import masked_softmax
from kvnmt.target_context import base
from kvnmt.target_context.history import (
    History,
    append,
    by_word,
    earlier,
    empty,
    energies,
    mix,
    present,
)
from kvnmt.typing import Array, DType, Float, Key, Sizes

PARTS = {"plain": 1, "kv": 2, "kvp": 3}


@dataclass(frozen=True)
class Options(base.Options):
    """Static choices of key-value-predict attention."""

    form: Literal["plain", "kv", "kvp"] = "kvp"
    window: Annotated[int | None, between(1, WIDEST), EXTENDS] = None  # L
    word: bool = True  # the readout also reads x_t


@struct.dataclass
class Params:
    """The attention; the paper prints no bias."""

    w: Float[Array, " N"]
    W_key: Float[Array, "N N"]  # W_Y
    W_query: Float[Array, "N N"]  # W_h
    W_read: Float[Array, "N N"]  # W_r
    W_predict: Float[Array, "N N"]  # W_x


def init(
    options: Options, key: Key[Array, ""], sizes: Sizes, weights: Weights
) -> Params:
    """Makes the attention.

    Raises:
        UserError: The state does not split into that many parts.
    """
    parts = PARTS[options.form]
    if beyond := sizes.state % parts:
        raise OptionError(
            f"key_value_predict in form '{options.form}' splits the decoder state in "
            f"{parts} parts, and {sizes.state} does not split evenly; set {{0}} to a "
            f"multiple of {parts}, such as {sizes.state - beyond + parts}.",
            "state",
            prefix="model.",
        )
    n = sizes.state // parts
    key_w, *keys = jax.random.split(key, 5)
    return Params(
        weights.energy(key_w, (n, 1), jnp.float32)[:, 0],
        *(weights.matrix(k, (n, n), jnp.float32) for k in keys),
    )


def widths(options: Options, sizes: Sizes) -> dict[str, int]:
    """Widths of g_t, and of x_t where it is read."""
    predict = {"predict": sizes.state // PARTS[options.form]}
    return predict | ({"word": sizes.embedding} if options.word else {})


def over_time(
    options: Options,
    params: Params,
    states: Float[Array, "B T D"],
    embedded: Float[Array, "B T E"],
) -> dict[str, Float[Array, "B T _"]]:
    """Attends to the states before each step."""
    _, values, predict = _split(options, states)
    weights = _weights(options, params, states)
    return _result(options, params, mix(weights, values), predict, embedded)


def initial_state(
    options: Options,
    params: Params,
    sizes: Sizes,
    rows: int,
    length: int,
    dtype: DType,
) -> History:
    """No earlier state."""
    if options.window is not None:
        length = min(length, options.window)
    return empty(rows, length, 2 * sizes.state // PARTS[options.form], dtype)


def step(
    options: Options,
    params: Params,
    memory: History,
    state: Float[Array, "B D"],
    embedded: Float[Array, "B E"],
) -> tuple[History, dict[str, Float[Array, "B _"]]]:
    """Attends to the states so far, then takes this one in."""
    values, projected = jnp.split(memory.rows, 2, axis=-1)
    query, value, predict = _split(options, state)
    scores = _energies(params, projected, query[:, None])
    weights = masked_softmax(scores, present(memory))  # of the last L, in any order
    read = mix(weights[:, None], values)[:, 0]
    row = jnp.concatenate([value, query @ params.W_key], axis=-1)
    return append(memory, row), _result(options, params, read, predict, embedded)


def self_attention(
    options: Options,
    params: Params,
    states: Float[Array, "B T D"],
    embedded: Float[Array, "B T E"],
) -> Float[Array, "B T T"]:
    """``a_t``, by the words that the states predicted."""
    return by_word(_weights(options, params, states))


def _weights(
    options: Options, params: Params, states: Float[Array, "B T D"]
) -> Float[Array, "B T T"]:
    keys, _, _ = _split(options, states)
    projected = keys @ params.W_key
    scores = _energies(params, projected[:, None], keys[:, :, None])
    mask = earlier(states.shape[1], itself=False, window=options.window)
    return masked_softmax(scores, jnp.broadcast_to(mask, scores.shape))


def _split(
    options: Options, states: Float[Array, "*N D"]
) -> tuple[Float[Array, "*N _"], Float[Array, "*N _"], Float[Array, "*N _"]]:
    """Key, value and predict slices."""
    parts = jnp.split(states, PARTS[options.form], axis=-1)
    return parts[0], parts[min(1, len(parts) - 1)], parts[-1]


def _energies(
    params: Params, projected: Float[Array, "*N K"], now: Float[Array, "*N K"]
) -> Float[Array, "..."]:
    """What a_t is a softmax of, by ``W_Y k_i`` and k_t."""
    return energies(projected, now @ params.W_query, params.w)


def _result(
    options: Options, params: Params, read: Array, predict: Array, embedded: Array
) -> dict[str, Array]:
    result = jnp.tanh(read @ params.W_read + predict @ params.W_predict)
    return {"predict": result} | ({"word": embedded} if options.word else {})


def build(options: Options) -> base.TargetContext:
    """Key-value-predict attention under the contract."""
    return base.TargetContext(
        init=partial(init, options),
        widths=partial(widths, options),
        over_time=partial(over_time, options),
        initial_state=partial(initial_state, options),
        step=partial(step, options),
        self_attention=partial(self_attention, options),
    )
