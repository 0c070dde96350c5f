# SPDX-License-Identifier: Apache-2.0
"""The conditional decoder: query, R rounds of read, advance and write.

RNNsearch* of Meng et al. (2018), section 2, known since dl4mt as the conditional GRU;
with several rounds, the decoder of KVMemAtt (Meng et al. 2018, section 3).

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

import jax

from kvnmt.attention import Attention, Moment
from kvnmt.decoder import base, rounds
from kvnmt.decoder.gru_pair import Inputs, QueryOptions, from_query, inputs
from kvnmt.decoder.rounds import Params, Source, State, look
from kvnmt.decoder.start import init_start
from kvnmt.initializers import Weights
from kvnmt.layers import gru, init_gru
from kvnmt.typing import Array, Key, Sizes


@dataclass(frozen=True)
class Options(QueryOptions):
    """Static choices of the conditional decoder."""


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
        rounds=rounds.init_rounds(options, attention, key_rounds, sizes, weights),
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
    query = gru(params.query, state.state, inputs.query)  # (6)
    moment = Moment(state.state, inputs.embedded, query)
    advance = from_query(options, query)
    return look(options, attention, params, source, state.attention, moment, advance)


def build(options: Options, attention: Attention) -> base.Decoder:
    """The conditional decoder around any attention, under the contract."""
    return rounds.decoder(options, attention, init, inputs, step)
