# SPDX-License-Identifier: Apache-2.0
"""The decoder with a single GRU: RNNencdec, RNNsearch, and RNNsearch* without GRU1.

D. Bahdanau, K. Cho, Y. Bengio (2015), sections 3.1 and A.2; with ``query = tanh``,
RNNsearch* of M. Wang, Z. Lu, H. Li, Q. Liu (2016), section 2.1.

=============  ==============================================================
parameters     initial state, query (tanh form), per round: attention and GRU
source         s_0; the attention's, one per round
state, carried decoder state [B, D], the attention's State
result         the state that the readout reads, context, alignments
=============  ==============================================================

::

    q_t = s_{t-1}                               ``query = previous``, Bahdanau
    q_t = tanh(W_q s_{t-1} + W_e x_t)           ``query = tanh``, Wang
    c_t = read(q_t)        s_t = GRU(s_{t-1}, [x_t; c_t])

Options by paper: Bahdanau et al. apply the reset gate before the recurrent product,
start from the backward encoder and read ``s_{t-1}`` out (the defaults); Wang et al.
are read as ``reset = after``, ``initial = mean`` and ``readout_state = current``.
"""

from dataclasses import dataclass
from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
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
from kvnmt.decoder.start import Initial, init_start
from kvnmt.encoder import Encoded
from kvnmt.initializers import Weights
from kvnmt.layers import GRU, Linear, Reset, gru
from kvnmt.typing import Array, Float, Key, PyTree, Sizes


@dataclass(frozen=True)
class Options(RoundOptions):
    """Static choices; the defaults are RNNsearch of Bahdanau et al. (2015)."""

    initial: Initial = "backward"
    query: Literal["previous", "tanh"] = "previous"
    reset: Reset = "before"
    readout_state: Literal["previous", "current"] = "previous"


@struct.dataclass
class Query:
    """The tanh form's matrices; its paper prints no bias."""

    W_state: Float[Array, "D D"]  # W_q
    W_word: Float[Array, "E D"]  # W_e


@struct.dataclass
class Params:
    """The decoder."""

    initial: Linear | None
    query: Query | None
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
    query: Float[Array, "*N D"] | None  # W_e x
    advance: tuple[Float[Array, "*N 3*D"], ...]  # W x + b of each round's GRU


def init(
    options: Options,
    attention: Attention,
    key: Key[Array, ""],
    sizes: Sizes,
    weights: Weights,
) -> Params:
    """Makes the parameters of the decoder and of its attention."""
    key_initial, key_state, key_word, key_rounds = jax.random.split(key, 4)
    D, E = sizes.state, sizes.embedding
    query = None
    if options.query == "tanh":
        query = Query(
            W_state=weights.matrix(key_state, (D, D), jnp.float32),
            W_word=weights.matrix(key_word, (E, D), jnp.float32),
        )
    return Params(
        initial=init_start(key_initial, options.initial, attention, sizes, weights),
        query=query,
        rounds=init_rounds(options, attention, key_rounds, sizes, weights, [E]),
    )


def prepare(
    options: Options, attention: Attention, params: Params, encoded: Encoded
) -> Source:
    """Prepares the attention of every round, and s_0."""
    embedding = params.rounds[0].advance.W[1].shape[0]
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
    """Projects the embedded previous words for the query and the GRU of each round."""
    query = None if params.query is None else embedded @ params.query.W_word
    advance = (embedded @ r.advance.W[1] + r.advance.b for r in params.rounds)
    return Inputs(embedded, query, tuple(advance))


def step(
    options: Options,
    attention: Attention,
    params: Params,
    source: Source,
    state: State,
    inputs: Inputs,
) -> tuple[State, base.Features]:
    """One target word: query, then R times read, advance, write."""
    query = previous = state.state
    if params.query is not None:
        assert inputs.query is not None
        query = jnp.tanh(previous @ params.query.W_state + inputs.query)

    def advance(cell: GRU, own: int, context: Array) -> Array:
        total = inputs.advance[own] + context @ cell.W[0]
        return gru(cell, previous, total, options.reset)

    looked = look(
        *(options, attention, params.rounds, source.rounds, state.attention),
        Moment(previous, inputs.embedded, query),
        advance,
    )
    shown = previous if options.readout_state == "previous" else looked.state
    features = base.Features(shown, looked.attended.context, looked.alignments)
    return State(looked.state, looked.memory), features


def build(options: Options, attention: Attention) -> base.Decoder:
    """The single-GRU decoder around any attention, under the contract."""
    return base.Decoder(
        init=partial(init, options, attention),
        prepare=partial(prepare, options, attention),
        initial_state=partial(initial_state, attention),
        inputs=inputs,
        step=partial(step, options, attention),
        feature_sizes=lambda sizes: {"context": attention.context_size(sizes)},
    )
