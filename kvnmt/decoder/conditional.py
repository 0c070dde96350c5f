# SPDX-License-Identifier: Apache-2.0
"""The conditional decoder: query, R rounds of read, advance and write.

RNNsearch* of Meng et al. (2018), section 2, and of Wang et al. (2016), known since
dl4mt as the conditional GRU; with several rounds, the decoder of KVMemAtt
(Meng et al. 2018, section 3.2).

=============  ==============================================================
parameters     initial state, GRU1 (query), per round: attention and GRU2
source         the attention's, one per round; mean annotation
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

Any attention can be run in several rounds. ``share_rounds`` gives all rounds the
same attention parameters and the same GRU2; the default, every parameter per round,
is what the superscripts and the parameter counts of the paper say.
"""

from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
from flax import struct

from kvnmt.attention import Attention, Moment
from kvnmt.decoder import base
from kvnmt.layers import (
    GRU,
    Linear,
    gru,
    gru_inputs,
    init_gru,
    init_linear,
    linear,
    masked_mean,
)
from kvnmt.typing import Array, Bool, Float, Key, PyTree, Sizes, Weights


@dataclass(frozen=True)
class Options(base.Options):
    """Static choices of the conditional decoder."""

    rounds: int = 1  # R
    share_rounds: bool = False


@struct.dataclass
class Round:
    """Parameters of one round."""

    attention: PyTree
    advance: GRU  # GRU2


@struct.dataclass
class Params:
    """The decoder; ``rounds`` has one member if they are shared."""

    initial: Linear  # W_init, b
    query: GRU  # GRU1
    rounds: tuple[Round, ...]


@struct.dataclass
class Source:
    """Constants of a sentence."""

    summary: Float[Array, "B C"]
    rounds: tuple[PyTree, ...]


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
    context = attention.context_size(sizes)

    def init_round(key: Key[Array, ""]) -> Round:
        key_attention, key_advance = jax.random.split(key)
        return Round(
            attention=attention.init(key_attention, sizes, weights),
            advance=init_gru(key_advance, [context], sizes.state, weights),
        )

    count = 1 if options.share_rounds else options.rounds
    return Params(
        initial=init_linear(key_initial, [sizes.annotation], sizes.state, weights),
        query=init_gru(key_query, [sizes.embedding], sizes.state, weights),
        rounds=tuple(init_round(k) for k in jax.random.split(key_rounds, count)),
    )


def prepare(
    attention: Attention,
    params: Params,
    annotations: Float[Array, "B S C"],
    mask: Bool[Array, "B S"],
) -> Source:
    """Prepares the attention of every round."""
    rounds = (attention.prepare(r.attention, annotations, mask) for r in params.rounds)
    return Source(masked_mean(annotations, mask), tuple(rounds))


def initial_state(attention: Attention, params: Params, source: Source) -> State:
    """``s_0`` from the mean annotation; the attention's State from the first round."""
    return State(
        state=jnp.tanh(linear(params.initial, source.summary)),
        attention=attention.initial_state(params.rounds[0].attention, source.rounds[0]),
    )


def inputs(params: Params, embedded: Float[Array, "*N E"]) -> Inputs:
    """Projects the embedded previous words for GRU1."""
    return Inputs(embedded, gru_inputs(params.query, embedded))


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
    before = Moment(previous_state=state.state, embedded=inputs.embedded, query=query)
    memory, alignments = state.attention, []
    for r in range(options.rounds):
        own = 0 if options.share_rounds else r
        theta, constants = params.rounds[own], source.rounds[own]
        attended = attention.read(theta.attention, constants, memory, before)  # (7, 8)
        new = gru(theta.advance, query, gru_inputs(theta.advance, attended.context))
        after = replace(before, decoder_state=new, attended=attended)
        memory = attention.write(theta.attention, constants, memory, after)
        if attended.alignment is not None:
            alignments.append(attended.alignment)
    features = base.Features(new, attended.context, tuple(alignments))
    return State(new, memory), features


def build(options: Options, attention: Attention) -> base.Decoder:
    """The conditional decoder around any attention, under the contract."""
    if options.rounds < 1:
        raise ValueError(f"a decoder needs at least one round, not {options.rounds}")
    return base.Decoder(
        init=partial(init, options, attention),
        prepare=partial(prepare, attention),
        initial_state=partial(initial_state, attention),
        inputs=inputs,
        step=partial(step, options, attention),
        attend=base.attended_inside,
        feature_sizes=lambda sizes: (attention.context_size(sizes),),
    )
