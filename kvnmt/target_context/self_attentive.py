# SPDX-License-Identifier: Apache-2.0
"""Self-attentive residual: the readout sees a learnt mixture of all earlier words.

L. Miculicich Werlen, N. Pappas, D. Ram, A. Popescu-Belis (2018), "Self-Attentive
Residual Decoder for Neural Machine Translation", section 4.2, equations 10 to 13.

=============  ==============================================================
parameters     v, W_y, b: E² + 2E numbers; with ``scope`` W_z: D E
state, carried content: peak m [B], total Z [B], sum N [B, E] of a streaming
               softmax; with ``scope``: all earlier words [B, T, E], and
               W_y x + b of them
result         s_t, and d_t in the seat of x_t
=============  ==============================================================

::

    f_i     = v . tanh(W_y x_i + b)                      content
    f_{t,i} = v . tanh(W_y x_i + W_z s_t + b)            content and scope
    d_t     = sum_{i=1}^{t} softmax(f)_i x_i             x_1 = 0, x_i = x(y_{i-1})

In training all steps are mixed at once after the scan.

Readings of the paper: equation 10 prints the sum from the first word, the text and
the authors' code start at y_0, the zero vector, a null slot that shrinks d_t and
defines d_1 (without ``null_slot``, d_1 = 0). The text calls the content score "based on
hidden states"; equations 12 and 13 and the code take embeddings.
"""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from flax import struct

from kvnmt.initializers import Weights
from kvnmt.layers import Linear, init_linear, linear, masked_softmax, precise
from kvnmt.target_context import base
from kvnmt.target_context.history import (
    History,
    append,
    earlier,
    empty,
    energies,
    mix,
    present,
)
from kvnmt.typing import Array, DType, Float, Key, Sizes


@dataclass(frozen=True)
class Options(base.Options):
    """Static choices; the default is the content score, the paper's better one."""

    scope: bool = False
    null_slot: bool = True  # the mixture includes x_1 = 0


@struct.dataclass
class Params:
    """The score."""

    v: Float[Array, " E"]
    W: Linear  # W_y and, with scope, W_z; b


@struct.dataclass
class Streaming:
    """A softmax over a growing past, exact at every step."""

    peak: Float[Array, " B"]  # m
    total: Float[Array, " B"]  # Z
    mixture: Float[Array, "B E"]  # N


def init(
    options: Options, key: Key[Array, ""], sizes: Sizes, weights: Weights
) -> Params:
    """Makes the score."""
    key_v, key_W = jax.random.split(key)
    E = sizes.embedding
    inputs = [E, sizes.state] if options.scope else [E]
    return Params(
        v=weights.energy(key_v, (E, 1), jnp.float32)[:, 0],
        W=init_linear(key_W, inputs, E, weights),
    )


def over_time(
    options: Options,
    params: Params,
    states: Float[Array, "B T D"],
    embedded: Float[Array, "B T E"],
) -> dict[str, Float[Array, "B T _"]]:
    """Mixes the words up to each step."""
    weights = self_attention(options, params, states, embedded)
    return {"state": states, "word": mix(weights, embedded)}


def self_attention(
    options: Options,
    params: Params,
    states: Float[Array, "B T D"],
    embedded: Float[Array, "B T E"],
) -> Float[Array, "B T T"]:
    """``softmax(f_t)``; column 0 is the null slot x_1."""
    mask = earlier(embedded.shape[1], itself=True)
    if not options.null_slot:
        mask = mask.at[:, 0].set(False)
    if options.scope:
        scope = (states @ params.W.W[1])[:, :, None]  # [B, T, 1, E]
        f = energies(_content(params, embedded)[:, None], scope, params.v)
    else:
        f = (jnp.tanh(_content(params, embedded)) @ params.v)[:, None]
    shape = (embedded.shape[0], *mask.shape)
    return masked_softmax(jnp.broadcast_to(f, shape), jnp.broadcast_to(mask, shape))


def initial_state(
    options: Options,
    params: Params,
    sizes: Sizes,
    rows: int,
    length: int,
    dtype: DType,
) -> History | Streaming:
    """Nothing was read."""
    if options.scope:
        return empty(rows, length, 2 * sizes.embedding, dtype)
    nothing = precise(jnp.zeros(rows, dtype))
    return Streaming(
        peak=nothing - jnp.inf,
        total=nothing,
        mixture=precise(jnp.zeros((rows, sizes.embedding), dtype)),
    )


def step(
    options: Options,
    params: Params,
    memory: History | Streaming,
    state: Float[Array, "B D"],
    embedded: Float[Array, "B E"],
) -> tuple[History | Streaming, dict[str, Float[Array, "B _"]]]:
    """Takes the previous word in and mixes."""
    if isinstance(memory, Streaming):
        energy = precise(jnp.tanh(_content(params, embedded)) @ params.v)
        memory = _stream(options, memory, energy, precise(embedded))
        total = jnp.where(memory.total > 0, memory.total, 1)[:, None]
        mixed = (memory.mixture / total).astype(embedded.dtype)
        return memory, {"state": state, "word": mixed}
    row = jnp.concatenate([embedded, _content(params, embedded)], axis=-1)
    memory = append(memory, row)
    words, content = jnp.split(memory.rows, 2, axis=-1)
    scope = (state @ params.W.W[1])[:, None]
    there = present(memory)
    if not options.null_slot:
        there = there.at[:, 0].set(False)
    weights = masked_softmax(energies(content, scope, params.v), there)
    mixed = mix(weights[:, None], words)[:, 0]
    return memory, {"state": state, "word": mixed}


def _content(params: Params, embedded: Float[Array, "*N E"]) -> Float[Array, "*N E"]:
    """``W_y x + b``."""
    return linear(Linear(params.W.W[:1], params.W.b), embedded)


def _stream(
    options: Options,
    old: Streaming,
    energy: Float[Array, " B"],
    row: Float[Array, "B E"],
) -> Streaming:
    """Adds one row to a softmax without looking at the others again."""
    peak = jnp.maximum(old.peak, energy)
    gap = energy - peak
    if not options.null_slot:  # the first row counts for nothing, nor does its energy
        first = jnp.isneginf(old.peak)
        peak = jnp.where(first, jnp.finfo(peak.dtype).min, peak)
        gap = jnp.where(first, -jnp.inf, gap)
    fade, now = jnp.exp(old.peak - peak), jnp.exp(gap)
    return Streaming(
        peak=peak,
        total=old.total * fade + now,
        mixture=old.mixture * fade[:, None] + now[:, None] * row,
    )


def build(options: Options) -> base.TargetContext:
    """The self-attentive residual under the contract."""
    return base.TargetContext(
        init=partial(init, options),
        widths=base.state_and_word,
        over_time=partial(over_time, options),
        initial_state=partial(initial_state, options),
        step=partial(step, options),
        self_attention=partial(self_attention, options),
    )
