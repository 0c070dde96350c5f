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

from dataclasses import dataclass, replace
from typing import Literal

import jax
import jax.numpy as jnp

from kvnmt.attention import Attention, Moment
from kvnmt.decoder import base, rounds
from kvnmt.decoder.rounds import Params, RoundOptions, Source, State, look
from kvnmt.decoder.start import Initial, init_start
from kvnmt.decoder.word_gru import Inputs, Query, from_state, inputs, tanh_query
from kvnmt.initializers import Weights
from kvnmt.layers import Reset
from kvnmt.typing import Array, Key, Sizes


@dataclass(frozen=True)
class Options(RoundOptions):
    """Static choices; the defaults are RNNsearch of Bahdanau et al. (2015)."""

    initial: Initial = "backward"  # what the first state is made from (s_0)
    query: Literal["previous", "tanh"] = "previous"
    reset: Reset = "before"
    readout_state: Literal["previous", "current"] = "previous"


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
        rounds=rounds.init_rounds(options, attention, key_rounds, sizes, weights, [E]),
    )


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
        query = tanh_query(params.query, previous, inputs)
    moment = Moment(previous, inputs.embedded, query)
    advance = from_state(previous, inputs.advance, options.reset)
    new, features = look(
        options, attention, params, source, state.attention, moment, advance
    )
    if options.readout_state == "previous":
        features = replace(features, state=previous)
    return new, features


def build(options: Options, attention: Attention) -> base.Decoder:
    """The single-GRU decoder around any attention, under the contract."""
    decoder = rounds.decoder(options, attention, init, inputs, step)
    return decoder._replace(state_reads=options.readout_state == "current")
