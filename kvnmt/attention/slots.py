# SPDX-License-Identifier: Apache-2.0
"""Bounded slots of the source: gated slot attention and ABC.

The annotations are written into m slots, the query reads the slots: the cost of a word
does not grow with the sentence. Equations and papers are in
`kvnmt.layers.slot_memory`. The nearest relative is the decoder ``mem_dec``, whose slots
are written by content.

=============  ==============================================================
parameters     W_q: D d_k; W_k, W_v, W of the gates: C (d_k + C + m)
source         slots: keys [m, d_k], values [m, C]; weights c [m, S]
state, carried none
result         context of width C, alignment
=============  ==============================================================

::

    K = sum_j c_j k_j^T      V = sum_j c_j v_j^T      c_mj = f_mj prod_{i > j} a_mi
    p = softmax(K q)         c = V^T p
    a_j = w_j / sum_i w_i    shown; w_j = sum_m p_m c_mj is the exact weight of v_j

With ``abc`` each slot is an attention of its own, ``c_m = softmax_j(W h_j)``, whose
query is learnt; the w_j sum to 1. With ``gsa`` the last words count most, and the w_j
sum to less than 1.
"""

from dataclasses import dataclass
from functools import partial
from typing import Annotated

import jax
import jax.numpy as jnp
from flax import struct

from kvnmt.attention import base
from kvnmt.errors import WIDEST, at_least, between
from kvnmt.initializers import Weights
from kvnmt.layers import precise
from kvnmt.layers.slot_memory import Gate, Writer, choose, gates, init_writer
from kvnmt.typing import Array, Bool, Float, Key, Sizes


@dataclass(frozen=True)
class Options(base.Options):
    """Static choices; the defaults are gated slot attention."""

    gate: Gate = "gsa"
    slots: Annotated[int, between(1, WIDEST)] = 8  # m
    key_size: Annotated[int | None, between(1, WIDEST)] = None  # d_k; None: A
    tau: Annotated[float, at_least(1)] = 8.0  # of gsa: how slowly slots fade


@struct.dataclass
class Params:
    """One round."""

    W_query: Float[Array, "D K"]
    writer: Writer


@struct.dataclass
class Source:
    """Constants of a sentence."""

    keys: Float[Array, "B M K"]
    values: Float[Array, "B M C"]
    weights: Float[Array, "B M S"]  # c_mj


def init(
    options: Options, key: Key[Array, ""], sizes: Sizes, weights: Weights
) -> Params:
    """Makes the parameters of one round."""
    key_query, key_writer = jax.random.split(key)
    C, K = sizes.annotation, options.key_size or sizes.alignment
    return Params(
        W_query=weights.matrix(key_query, (sizes.state, K), jnp.float32),
        writer=init_writer(key_writer, C, K, C, options.slots, weights),
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
    )


def read(
    params: Params, source: Source, state: tuple[()], moment: base.Moment
) -> base.Attended:
    """Reads the slots; the alignment says whose words that were."""
    query = precise(moment.query @ params.W_query)
    chosen = choose(source.keys, query)  # [B, M]
    context = jnp.einsum("bm,bmc->bc", chosen, source.values)
    weights = jnp.einsum("bm,bms->bs", chosen, source.weights)
    total = jnp.sum(weights, axis=-1, keepdims=True)
    alignment = weights / jnp.where(total > 0, total, 1)
    dtype = moment.query.dtype
    return base.Attended(context.astype(dtype), alignment.astype(dtype))


def build(options: Options) -> base.Attention:
    """Bounded slots under the contract."""
    return base.Attention(
        init=partial(init, options),
        prepare=partial(prepare, options),
        read=read,
    )
