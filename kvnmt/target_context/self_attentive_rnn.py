# SPDX-License-Identifier: Apache-2.0
"""Self-attentive RNN: the readout also sees a mixture of earlier decoder states.

L. Miculicich Werlen, N. Pappas, D. Ram, A. Popescu-Belis (2018), section 5.2,
equations 18 to 21, after M. Daniluk, T. Rocktäschel, J. Welbl, S. Riedel (2017).

=============  ==============================================================
parameters     v, W_1, W_2, b: 2 D² + 2 D numbers
state, carried all earlier states [B, T, D], and W_1 s of them
result         s_t, x_t, and m_t beside them
=============  ==============================================================

::

    f_{t,i} = v . tanh(W_1 s_i + W_2 s_t + b)            i = 1..t-1
    m_t     = sum_i softmax(f_t)_i s_i                   m_1 = 0

The recurrence is untouched: in training all steps are mixed at once after the scan.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from flax import struct

from kvnmt.initializers import Weights
from kvnmt.layers import Linear, init_linear, masked_softmax
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


@dataclass(frozen=True)
class Options(base.Options):
    """The self-attentive RNN has no static choices."""


@struct.dataclass
class Params:
    """The score."""

    v: Float[Array, " D"]
    W: Linear  # W_1 (earlier state), W_2 (this state), b


def init(key: Key[Array, ""], sizes: Sizes, weights: Weights) -> Params:
    """Makes the score."""
    key_v, key_W = jax.random.split(key)
    D = sizes.state
    return Params(
        v=weights.energy(key_v, (D, 1), jnp.float32)[:, 0],
        W=init_linear(key_W, [D, D], D, weights),
    )


def over_time(
    params: Params,
    states: Float[Array, "B T D"],
    embedded: Float[Array, "B T E"],
) -> dict[str, Float[Array, "B T _"]]:
    """Mixes the states before each step."""
    weights = _weights(params, states)
    return base.summarised(states, embedded, mix(weights, states))


def initial_state(
    params: Params,
    sizes: Sizes,
    rows: int,
    length: int,
    dtype: DType,
) -> History:
    """No earlier state."""
    return empty(rows, length, 2 * sizes.state, dtype)


def step(
    params: Params,
    memory: History,
    state: Float[Array, "B D"],
    embedded: Float[Array, "B E"],
) -> tuple[History, dict[str, Float[Array, "B _"]]]:
    """Mixes the states so far, then takes this one in."""
    states, projected = jnp.split(memory.rows, 2, axis=-1)
    f = _energies(params, projected, state[:, None])
    weights = masked_softmax(f, present(memory))
    mixed = mix(weights[:, None], states)[:, 0]
    row = jnp.concatenate([state, state @ params.W.W[0]], axis=-1)
    return append(memory, row), base.summarised(state, embedded, mixed)


def self_attention(
    params: Params,
    states: Float[Array, "B T D"],
    embedded: Float[Array, "B T E"],
) -> Float[Array, "B T T"]:
    """``softmax(f_t)``, by the words that the states predicted."""
    return by_word(_weights(params, states))


def _weights(params: Params, states: Float[Array, "B T D"]) -> Float[Array, "B T T"]:
    projected = states @ params.W.W[0]
    f = _energies(params, projected[:, None], states[:, :, None])
    mask = earlier(states.shape[1], itself=False)
    return masked_softmax(f, jnp.broadcast_to(mask, f.shape))


def _energies(
    params: Params, projected: Float[Array, "*N D"], now: Float[Array, "*N D"]
) -> Float[Array, "..."]:
    """f_t of ``W_1 s_i`` and s_t."""
    return energies(projected, now @ params.W.W[1] + params.W.b, params.v)


def build(options: Options) -> base.TargetContext:
    """The self-attentive RNN under the contract."""
    return base.TargetContext(
        widths=base.with_summary,
        over_time=over_time,
        step=step,
        init=init,
        initial_state=initial_state,
        self_attention=self_attention,
    )
