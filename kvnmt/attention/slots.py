# SPDX-License-Identifier: Apache-2.0
"""Bounded slots of the source: gated slot attention and ABC.

The annotations are written into m slots, the query reads the slots: the cost of a word
does not grow with the sentence. Equations and papers are in
`kvnmt.layers.slot_memory`. The nearest relative is the decoder ``mem_dec``, whose slots
are written by content.

=============  ==============================================================
parameters     W_q: D d_k; W_k, W_v, W of the gates: C (d_k + C + m), for the
               decoder's writes D (d_k + C + m) more
source         slots: keys [m, d_k], values [m, C]; weights c [m, S]; of abc log z
state, carried with ``write = decoder``: what the decoder has written, keys [m, d_k]
               and values [m, C]; of gsa what is left of the source [m], of abc log z
               of what was written
result         context of width C, alignment
=============  ==============================================================

::

    K = sum_j c_j k_j^T      V = sum_j c_j v_j^T      c_mj = f_mj prod_{i > j} a_mi
    p = softmax(K q)         c = V^T p
    a_j = w_j / sum_i w_i    shown; w_j = sum_m p_m c_mj is the exact weight of v_j
    K <- Diag(a) K + f k^T,  V alike      for s_t, with ``write = decoder``

With ``abc`` each slot is an attention of its own, ``c_m = softmax_j(W h_j)``, whose
query is learnt; the w_j sum to 1. With ``gsa`` the last words count most, and the w_j
sum to less than 1: the rest has faded. The alignment cannot say how much; the weights
of `weigh` can.

Our choice: ``write = decoder`` works as in `kvnmt.attention.delta_memory`. The decoder
has its own writer. What it writes fades the source's slots; `weigh` tells its share.
Its slots are kept apart from the source's, so that no hypothesis needs a copy of those.
With ``abc`` each of the two is normalised by itself, and the query reads
``(z K + z' K') / (z + z')`` of both. With several rounds each round fills its own slots
of the source; what the decoder writes is common to all rounds.
"""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from kvnmt.attention import base
from kvnmt.fields import EXTENDS, WIDEST, at_least, between, idle_while
from kvnmt.initializers import Weights
from kvnmt.layers import precise, shares
from kvnmt.layers.slot_memory import (
    Gate,
    Writer,
    choose,
    gates,
    init_writer,
    next_gates,
    rewrite,
)
from kvnmt.typing import Array, Bool, Float, Key, Sizes


@dataclass(frozen=True)
class Options(base.Options):
    """Static choices; the defaults are gated slot attention."""

    gate: Gate = "gsa"
    slots: Annotated[int, between(1, WIDEST), EXTENDS] = 8  # m
    # key width d_k; None: A
    key_size: Annotated[int | None, between(1, WIDEST), EXTENDS] = None
    # of gsa: how slowly slots fade
    tau: Annotated[float, at_least(1), idle_while(gate="abc")] = 8.0
    # decoder: each new decoder state is written, too
    write: Annotated[Literal["none", "decoder"], EXTENDS] = "none"


@struct.dataclass
class Params:
    """One round."""

    W_query: Float[Array, "D K"]
    writer: Writer
    decoder: Writer | None  # None: nothing is written while a sentence is translated


@struct.dataclass
class Source:
    """Constants of a sentence."""

    keys: Float[Array, "B M K"]
    values: Float[Array, "B M C"]
    weights: Float[Array, "B M S"]  # c_mj
    log_total: Float[Array, "B M"] | None  # log z of abc


@struct.dataclass
class State:
    """What the decoder has written, and how much it counts against the source."""

    keys: Float[Array, "B M K"]
    values: Float[Array, "B M C"]
    log_left: Float[Array, "B M"] | None  # of gsa, of the source's slots, from 0
    log_total: Float[Array, "B M"] | None  # log z of abc, of the decoder alone


def init(
    options: Options, key: Key[Array, ""], sizes: Sizes, weights: Weights
) -> Params:
    """Makes the parameters of one round."""
    key_query, key_writer, key_decoder = jax.random.split(key, 3)
    C, K, m = sizes.annotation, options.key_size or sizes.alignment, options.slots
    decoder = None
    if options.write == "decoder":
        decoder = init_writer(key_decoder, sizes.state, K, C, m, weights)
    return Params(
        W_query=weights.matrix(key_query, (sizes.state, K), jnp.float32),
        writer=init_writer(key_writer, C, K, C, m, weights),
        decoder=decoder,
    )


def prepare(
    options: Options,
    params: Params,
    annotations: Float[Array, "B S C"],
    mask: Bool[Array, "B S"],
) -> Source:
    """Fills the slots, all words at once."""
    writer = params.writer
    f, faded = gates(options.gate, writer, annotations, options.tau, mask)
    weights = jnp.swapaxes(f * jnp.exp(faded[:, -1:] - faded), 1, 2)  # [B, M, S]
    keys, values = annotations @ writer.W_key, annotations @ writer.W_value
    return Source(
        keys=jnp.einsum("bms,bsk->bmk", weights, precise(keys)),
        values=jnp.einsum("bms,bsc->bmc", weights, precise(values)),
        weights=weights,
        log_total=-faded[:, -1] if options.gate == "abc" else None,
    )


def initial_state(
    options: Options, params: Params, source: Source
) -> State | tuple[()]:
    """Nothing is written and nothing faded yet."""
    if options.write == "none":
        return ()
    nothing = jnp.zeros_like(source.values[..., 0])
    least = jnp.finfo(nothing.dtype).min  # whose exponential is 0
    return State(
        keys=jnp.zeros_like(source.keys),
        values=jnp.zeros_like(source.values),
        log_left=nothing if options.gate == "gsa" else None,
        log_total=nothing + least if options.gate == "abc" else None,
    )


def read(
    params: Params, source: Source, state: State | tuple[()], moment: base.Moment
) -> base.Attended:
    """Reads the slots; the alignment says whose words that were."""
    looked = _look(params, source, state, moment)
    alignment = shares(looked.weights)
    dtype, context = moment.query.dtype, looked.theirs + looked.own
    return base.Attended(context.astype(dtype), alignment.astype(dtype))


def write(
    options: Options, params: Params, source: Source, state: State, moment: base.Moment
) -> State:
    """Writes the new decoder state; what is there fades, the source's too."""
    assert moment.decoder_state is not None, base.NO_STATE
    assert params.decoder is not None
    writer, new = params.decoder, moment.decoder_state
    f, log_a, log_total = next_gates(writer, new, options.tau, state.log_total)
    return State(
        keys=rewrite(state.keys, f, log_a, new @ writer.W_key),
        values=rewrite(state.values, f, log_a, new @ writer.W_value),
        log_left=None if state.log_left is None else state.log_left + log_a,
        log_total=log_total,
    )


def weigh(
    params: Params, source: Source, state: State | tuple[()], moment: base.Moment
) -> base.Weighed:
    """The weights as they are, and how much the decoder wrote itself."""
    looked = _look(params, source, state, moment)
    theirs, own = (jnp.linalg.norm(x, axis=-1) for x in (looked.theirs, looked.own))
    total = theirs + own
    signed = looked.weights[:, None]
    return base.Weighed(signed, own / jnp.where(total > 0, total, 1))


class _Look(NamedTuple):
    """What is read of the source's slots and of the decoder's own."""

    theirs: Float[Array, "B C"]
    own: Float[Array, "B C"]
    weights: Float[Array, "B S"]  # those that make ``theirs``


def _look(
    params: Params, source: Source, state: State | tuple[()], moment: base.Moment
) -> _Look:
    query = precise(moment.query @ params.W_query)
    if isinstance(state, tuple):
        chosen = of_source = choose(source.keys, query)  # [B, M]
        own = jnp.zeros_like(source.values[:, 0])
    else:
        left, added = _parts(source, state)
        keys = left[..., None] * source.keys + added[..., None] * state.keys
        chosen = choose(keys, query)
        of_source = chosen * left
        own = jnp.einsum("bm,bmc->bc", chosen * added, state.values)
    theirs = jnp.einsum("bm,bmc->bc", of_source, source.values)
    return _Look(theirs, own, jnp.einsum("bm,bms->bs", of_source, source.weights))


def _parts(
    source: Source, state: State
) -> tuple[Float[Array, "B M"], Float[Array, "B M"]]:
    """What counts of the source's slots, and of the decoder's."""
    if state.log_left is not None:
        left = jnp.exp(state.log_left)
        return left, jnp.ones_like(left)
    assert source.log_total is not None and state.log_total is not None
    more = source.log_total - state.log_total
    return jax.nn.sigmoid(more), jax.nn.sigmoid(-more)


def build(options: Options) -> base.Attention:
    """Bounded slots under the contract."""
    return base.Attention(
        init=partial(init, options),
        prepare=partial(prepare, options),
        read=read,
        initial_state=partial(initial_state, options),
        write=partial(write, options) if options.write == "decoder" else None,
        weigh=weigh,
    )
