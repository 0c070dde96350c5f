# SPDX-License-Identifier: Apache-2.0
"""Memory RNN: the decoder attends to its own earlier states.

L. Miculicich Werlen, N. Pappas, D. Ram, A. Popescu-Belis (2018), section 5.1,
equations 14 to 17, after J. Cheng, L. Dong, M. Lapata (2016).

=============  ==============================================================
parameters     initial state, GRU1, v, W_1, W_2, W_3, b; per round: attention,
               GRU2
source         s_0; the attention's, one per round
state, carried s and its summary [B, D], all earlier states and their
               projections [B, T, D], their number, the attention's State
result         state, context and every round's alignment
=============  ==============================================================

::

    f_{t,i} = v . tanh(W_1 s_i + W_2 x_t + W_3 m_{t-1} + b)     i = 0..t-1
    m_t     = sum_i softmax(f_t)_i s_i                          m_0 = 0
    s_t     = conditional GRU(m_t, x_t)         m_t takes the seat of s_{t-1}

The summary feeds the recurrence, so this attention runs inside the scan; under
gradient it keeps T x T states and as many projections.

Readings of the paper: equation 17 prints h_i, a left-over of Cheng et al., who call
the reader's own states so; we read s_i. Equation 15 sums from s_1: here s_0 is among
them, which defines m_1 = s_0.
"""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
from flax import struct

from kvnmt.attention import Attention, Moment
from kvnmt.decoder import base, gru_pair, rounds
from kvnmt.decoder.rounds import Source, look
from kvnmt.decoder.start import init_start
from kvnmt.initializers import Weights
from kvnmt.layers import (
    Linear,
    gru,
    init_gru,
    init_linear,
    linear,
    masked_softmax,
)
from kvnmt.target_context.history import (
    History,
    append,
    empty,
    energies,
    mix,
    present,
)
from kvnmt.typing import Array, Float, Key, Sizes


@dataclass(frozen=True)
class Options(gru_pair.QueryOptions):
    """Memory RNN has no further static choices."""


@struct.dataclass
class SelfAttention:
    """The attention to earlier states."""

    v: Float[Array, " D"]
    W: Linear  # W_1 (earlier state), W_2 (word), W_3 (summary before), b


@struct.dataclass
class Params(rounds.Params):
    """The decoder."""

    own: SelfAttention


@struct.dataclass
class State(rounds.State):
    """Carried from step to step."""

    summary: Float[Array, "B D"]  # m_{t-1}
    states: History  # s_0, s_1, ...
    projected: History  # W_1 of them


@struct.dataclass
class Inputs(gru_pair.Inputs):
    """What a step takes of the previous word."""

    energy: Float[Array, "*N D"]  # W_2 x + b


def init(
    options: Options,
    attention: Attention,
    key: Key[Array, ""],
    sizes: Sizes,
    weights: Weights,
) -> Params:
    """Makes the parameters of the decoder and of its attention."""
    key_initial, key_query, key_rounds, key_v, key_own = jax.random.split(key, 5)
    D, E = sizes.state, sizes.embedding
    return Params(
        initial=init_start(key_initial, options.initial, attention, sizes, weights),
        query=init_gru(key_query, [E], D, weights),
        rounds=rounds.init_rounds(options, attention, key_rounds, sizes, weights),
        own=SelfAttention(
            v=weights.energy(key_v, (D, 1), jnp.float32)[:, 0],
            W=init_linear(key_own, [D, E, D], D, weights),
        ),
    )


def initial_state(
    options: Options,
    attention: Attention,
    params: Params,
    source: Source,
    length: int,
    key: Key[Array, "*B"] | None = None,
) -> State:
    """A history that holds s_0 alone."""
    common = rounds.initial_state(options, attention, params, source, length)
    start = common.state
    rows, D = start.shape
    nothing = empty(rows, length + 1, D, start.dtype)
    return State(
        state=start,
        attention=common.attention,
        summary=jnp.zeros_like(start),
        states=append(nothing, start),
        projected=append(nothing, start @ params.own.W.W[0]),
    )


def inputs(params: Params, embedded: Float[Array, "*N E"]) -> Inputs:
    """Projects the embedded previous words for GRU1 and for the energies."""
    _, W_2, _ = params.own.W.W
    common = gru_pair.inputs(params, embedded)
    energy = linear(Linear((W_2,), params.own.W.b), embedded)
    return Inputs(common.embedded, common.query, energy)


def step(
    options: Options,
    attention: Attention,
    params: Params,
    source: Source,
    state: State,
    inputs: Inputs,
) -> tuple[State, base.Features]:
    """One target word: sum the past up, then the conditional step from there."""
    weights, summary = _summarise(params.own, state, inputs)
    query = gru(params.query, summary, inputs.query)
    moment = Moment(summary, inputs.embedded, query)
    advance = gru_pair.from_query(options, query)
    new, features = look(
        options, attention, params, source, state.attention, moment, advance
    )
    following = State(
        state=new.state,
        attention=new.attention,
        summary=summary,
        states=append(state.states, new.state),
        projected=append(state.projected, new.state @ params.own.W.W[0]),
    )
    return following, replace(features, self_attention=weights)


def _summarise(
    params: SelfAttention, state: State, inputs: Inputs
) -> tuple[Float[Array, "B T"], Float[Array, "B D"]]:
    """The attention to the states so far, and m_t (15 to 17)."""
    now = inputs.energy + state.summary @ params.W.W[2]
    f = energies(state.projected.rows, now[:, None], params.v)
    weights = masked_softmax(f, present(state.states))
    return weights, mix(weights[:, None], state.states.rows)[:, 0]


def build(options: Options, attention: Attention) -> base.Decoder:
    """Memory RNN around any attention, under the contract."""
    return rounds.decoder(
        options, attention, init, inputs, step, initial_state=initial_state
    )
