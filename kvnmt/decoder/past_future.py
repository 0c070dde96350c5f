# SPDX-License-Identifier: Apache-2.0
"""PAST and FUTURE layers around the conditional decoder.

Z. Zheng, H. Zhou, S. Huang, L. Mou, X. Dai, J. Chen, Z. Tu (2018), "Modeling Past and
Future for Neural Machine Translation", TACL; equations as in the authors' code.

=============  ==============================================================
parameters     initial state, GRU1, GRU3; PAST, FUTURE; per round: attention,
               GRU2; with ``subtractive``: two small predictors
source         s_0; the attention's, one per round
state, carried s, PAST P and FUTURE F [B, D] each, the attention's State
result         state, context, alignments; P_t and F_t for the readout
=============  ==============================================================

::

    q'_t = GRU1(s_{t-1}, x_t)        q_t = GRU3(q'_t, [P_{t-1}; F_{t-1}])
    c_t  = read(q_t)                 s_t = GRU2(q_t, c_t)
    P_t  = GRU_P(P_{t-1}, c_t)       P_0 = 0
    F_t  = c_t taken out of F_{t-1}  F_0 = s_0; the cells are in future.py
    readout  also reads the updated P_t and F_t

With ``subtractive`` the change of each layer has to predict the word by itself::

    delta^P_t = tanh(W^P (W_1 P_t - W_2 P_{t-1}) + b)
    delta^F_t = tanh(W^F (W_3 F_{t-1} - W_4 F_t) + b)          in R^E

They feed no recurrence and are made after the scan. The loss is
``Objective.subtractive``; ``ModelConfig.average_auxiliary`` lets them vote when
decoding.

Departure: the paper adds P and F to the energy and to the state's GRU; the authors'
code reaches both through GRU3, as we do. P and F change once per word, with the
context of the last round.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

import jax
import jax.numpy as jnp
from flax import struct

from kvnmt.attention import Attention, Moment
from kvnmt.decoder import base, gru_pair, rounds
from kvnmt.decoder.future import Cell, Future, init_future, take_out
from kvnmt.decoder.gru_pair import Inputs
from kvnmt.decoder.rounds import Source, look
from kvnmt.decoder.start import init_start
from kvnmt.errors import OptionError
from kvnmt.fields import EXTENDS, idle_while
from kvnmt.initializers import Weights
from kvnmt.layers import (
    GRU,
    Linear,
    gru,
    init_gru,
    init_linear,
    linear,
    recurrent_inputs,
)
from kvnmt.typing import Array, Float, Key, Sizes


@dataclass(frozen=True)
class Options(gru_pair.QueryOptions):
    """Static choices; the defaults are the full system of the paper."""

    # No EXTENDS: with only FUTURE, the first matrix of GRU3 is FUTURE's, not PAST's.
    past: bool = True  # have the PAST layer
    future: Annotated[bool, EXTENDS] = True  # have the FUTURE layer
    cell: Annotated[Cell, idle_while(future=False)] = "inside"  # cell of FUTURE
    # have the predictors of the subtractive losses
    subtractive: Annotated[bool, EXTENDS] = True


@struct.dataclass
class Delta:
    """How the change of a layer becomes a predictor of the word."""

    W_new: Float[Array, "D D"]  # W_1 or W_4
    W_old: Float[Array, "D D"]  # W_2 or W_3
    squash: Linear  # W^P or W^F, b


@struct.dataclass
class Params(rounds.Params):
    """The decoder; None where a layer is absent."""

    adjust: GRU  # GRU3
    past: GRU | None
    future: Future | None
    deltas: dict[str, Delta]


@struct.dataclass
class State(rounds.State):
    """Carried from step to step."""

    layers: dict[str, Float[Array, "B D"]]  # P and F, those that exist


def names(options: Options) -> tuple[str, ...]:
    """The layers that exist, in the order of the paper."""
    both = {"past": options.past, "future": options.future}
    return tuple(name for name, there in both.items() if there)


def init(
    options: Options,
    attention: Attention,
    key: Key[Array, ""],
    sizes: Sizes,
    weights: Weights,
) -> Params:
    """Makes the parameters of the decoder and of its attention."""
    keys = iter(jax.random.split(key, 7))
    D, C = sizes.state, attention.context_size(sizes)
    layers = names(options)
    initial = init_start(next(keys), options.initial, attention, sizes, weights)
    query = init_gru(next(keys), [sizes.embedding], D, weights)
    adjust = init_gru(next(keys), [D] * len(layers), D, weights)
    all_rounds = rounds.init_rounds(options, attention, next(keys), sizes, weights)
    past = init_gru(next(keys), [C], D, weights) if options.past else None
    key_future, key_deltas = next(keys), next(keys)
    future = None
    if options.future:
        future = init_future(key_future, options.cell, C, D, weights)
    deltas = {
        name: _init_delta(jax.random.fold_in(key_deltas, n), sizes, weights)
        for n, name in enumerate(layers)
        if options.subtractive
    }
    return Params(
        initial=initial,
        query=query,
        rounds=all_rounds,
        adjust=adjust,
        past=past,
        future=future,
        deltas=deltas,
    )


def _init_delta(key: Key[Array, ""], sizes: Sizes, weights: Weights) -> Delta:
    key_new, key_old, key_squash = jax.random.split(key, 3)
    D = sizes.state
    return Delta(
        W_new=weights.matrix(key_new, (D, D), jnp.float32),
        W_old=weights.matrix(key_old, (D, D), jnp.float32),
        squash=init_linear(key_squash, [D], sizes.embedding, weights),
    )


def initial_state(
    options: Options,
    attention: Attention,
    params: Params,
    source: Source,
    length: int,
    key: Key[Array, "*B"] | None = None,
) -> State:
    """``s_0``; nothing is past, everything is future."""
    start = {"past": jnp.zeros_like(source.start), "future": source.start}
    common = rounds.initial_state(options, attention, params, source, length)
    layers = {name: start[name] for name in names(options)}
    return State(common.state, common.attention, layers)


def step(
    options: Options,
    attention: Attention,
    params: Params,
    source: Source,
    state: State,
    inputs: Inputs,
) -> tuple[State, base.Features]:
    """One target word: adjust the query, look, advance, update PAST and FUTURE."""
    query = gru(params.query, state.state, inputs.query)
    layers = [state.layers[name] for name in names(options)]
    query = gru(params.adjust, query, recurrent_inputs(params.adjust, *layers))
    moment = Moment(state.state, inputs.embedded, query)
    advance = gru_pair.from_query(options, query)
    new, features = look(
        options, attention, params, source, state.attention, moment, advance
    )
    assert features.context is not None
    updated = _update(options, params, state.layers, features.context)
    waiting = state.layers if options.subtractive else None
    features = replace(features, extras=updated, waiting=waiting)
    return State(new.state, new.attention, updated), features


def _update(
    options: Options,
    params: Params,
    layers: dict[str, Float[Array, "B D"]],
    context: Float[Array, "B _"],
) -> dict[str, Float[Array, "B D"]]:
    """P_t takes the context in, F_t loses it."""
    updated = {}
    if params.past is not None:
        read = recurrent_inputs(params.past, context)
        updated["past"] = gru(params.past, layers["past"], read)
    if params.future is not None:
        updated["future"] = take_out(
            options.cell, params.future, layers["future"], context
        )
    return updated


def attend(
    options: Options, params: Params, source: Source, features: base.Features
) -> base.Features:
    """Turns the layers before and after each word into predictors of it."""
    predictors = []
    for name in names(options):
        delta = params.deltas[name]
        before, after = features.waiting[name], features.extras[name]
        change = after @ delta.W_new - before @ delta.W_old
        sign = 1 if name == "past" else -1  # PAST grows by the word, FUTURE loses it
        predictors.append(jnp.tanh(linear(delta.squash, sign * change)))
    return replace(features, auxiliary=tuple(predictors), waiting=None)


def build(options: Options, attention: Attention) -> base.Decoder:
    """PAST and FUTURE around any attention, under the contract.

    Raises:
        OptionError: Neither layer is chosen.
    """
    layers = names(options)
    if not layers:
        raise OptionError(
            "the past_future decoder needs one of its layers; leave {0} or {1} on.",
            *("decoder.past", "decoder.future"),
            prefix="model.",
        )
    decoder = rounds.decoder(
        options,
        attention,
        init,
        gru_pair.inputs,
        step,
        initial_state=initial_state,
    )
    context = decoder.feature_sizes
    decoder = decoder._replace(
        feature_sizes=lambda sizes: (
            context(sizes) | {name: sizes.state for name in layers}
        )
    )
    if not options.subtractive:
        return decoder
    return decoder._replace(
        attend=partial(attend, options),
        auxiliary_sizes=lambda sizes: (sizes.embedding,) * len(layers),
    )
