# SPDX-License-Identifier: Apache-2.0
"""The conditional decoder: query, R rounds of read, advance and write.

RNNsearch* of Meng et al. (2018), section 2, and of Wang et al. (2016), known since
dl4mt as the conditional GRU; with several rounds, the decoder of KVMemAtt
(Meng et al. 2018, section 3.2).

=============  ==============================================================
parameters     initial state, GRU1 (query), per round: attention and GRU2
source         s_0; the attention's, one per round
state, carried decoder state [B, D], the attention's State
result         state, context and every round's alignment
=============  ==============================================================

::

    s_0 = tanh(W_init mean_j(h_j) + b)
    q_t = GRU1(s_{t-1}, x_t)                                        (6)
    for r = 1..R:
        c^r, a^r = read(q_t)                                        (7, 8)
        s^r      = GRU2^r(q_t, c^r)          always from q_t        (9)
        write(s^r)                                                  (14 to 16)
    s_t, c_t, a_t = s^R, c^R, a^R
"""

from dataclasses import dataclass
from functools import partial

import jax
from flax import struct

from kvnmt.attention import Attention, Moment
from kvnmt.decoder import base
from kvnmt.decoder.rounds import (
    Round,
    RoundOptions,
    Source,
    init_rounds,
    look,
    prepare_rounds,
)
from kvnmt.decoder.start import init_start
from kvnmt.encoder import Encoded
from kvnmt.initializers import Weights
from kvnmt.layers import GRU, Linear, gru, init_gru, recurrent_inputs
from kvnmt.typing import Array, Float, Key, PyTree, Sizes


@dataclass(frozen=True)
class Options(RoundOptions):
    """Static choices of the conditional decoder."""


@struct.dataclass
class Params:
    """The decoder; ``rounds`` has one member if they are shared."""

    initial: Linear | None  # W_init, b
    query: GRU  # GRU1
    rounds: tuple[Round, ...]


@struct.dataclass
class State:
    """Carried from step to step."""

    state: Float[Array, "B D"]
    attention: PyTree


@struct.dataclass
class Inputs:
    """What a step takes of the previous word."""

    embedded: Float[Array, "*N E"]
    query: Float[Array, "*N 3*D"]  # W x + b of GRU1


def init(
    options: Options,
    attention: Attention,
    key: Key[Array, ""],
    sizes: Sizes,
    weights: Weights,
) -> Params:
    """Makes the parameters of the decoder and of its attention."""
    key_initial, key_query, key_rounds = jax.random.split(key, 3)
    return Params(
        initial=init_start(key_initial, options.initial, attention, sizes, weights),
        query=init_gru(key_query, [sizes.embedding], sizes.state, weights),
        rounds=init_rounds(options, attention, key_rounds, sizes, weights),
    )


def prepare(
    options: Options, attention: Attention, params: Params, encoded: Encoded
) -> Source:
    """Prepares the attention of every round, and s_0."""
    embedding = params.query.W[0].shape[0]
    return prepare_rounds(
        options, attention, params.initial, params.rounds, embedding, encoded
    )


def initial_state(
    attention: Attention,
    params: Params,
    source: Source,
    length: int,
    key: Key[Array, "*B"] | None = None,
) -> State:
    """``s_0``, and the attention's State from the first round."""
    memory = attention.initial_state(params.rounds[0].attention, source.rounds[0])
    return State(source.start, memory)


def inputs(params: Params, embedded: Float[Array, "*N E"]) -> Inputs:
    """Projects the embedded previous words for GRU1."""
    return Inputs(embedded, recurrent_inputs(params.query, embedded))


def step(
    options: Options,
    attention: Attention,
    params: Params,
    source: Source,
    state: State,
    inputs: Inputs,
) -> tuple[State, base.Features]:
    """One target word: query, then R times read, advance, write."""
    query = gru(params.query, state.state, inputs.query)  # (6)

    def advance(cell: GRU, own: int, context: Array) -> Array:
        return gru(cell, query, recurrent_inputs(cell, context))  # (9)

    looked = look(
        *(options, attention, params.rounds, source.rounds, state.attention),
        Moment(state.state, inputs.embedded, query),
        advance,
    )
    context = looked.attended.context
    features = base.Features(looked.state, context, looked.alignments)
    return State(looked.state, looked.memory), features


def build(options: Options, attention: Attention) -> base.Decoder:
    """The conditional decoder around any attention, under the contract."""
    return base.Decoder(
        init=partial(init, options, attention),
        prepare=partial(prepare, options, attention),
        initial_state=partial(initial_state, attention),
        inputs=inputs,
        step=partial(step, options, attention),
        feature_sizes=lambda sizes: {"context": attention.context_size(sizes)},
    )
