# SPDX-License-Identifier: Apache-2.0
"""Bounded slots of the translation: the readout also reads earlier states from slots.

Equations and papers are in `kvnmt.layers.slot_memory`; `kvnmt.attention.slots` has the
source in the place of the earlier states.

=============  ==============================================================
parameters     W_q: D d_k; W_k, W_v, W of the gates: D (d_k + D + m)
state, carried keys [m, d_k], values [m, D]; for ``abc`` log z [m]
result         s_t, x_t, and o_t of D numbers beside them
=============  ==============================================================

::

    p = softmax(K q_t)      o_t = V^T p            q_t of s_t; o_1 = 0
    K <- Diag(a) K + f k^T      V <- Diag(a) V + f v^T      for s_t, from 0

The recurrence is untouched: in training all steps are read at once after the scan.
"""

from dataclasses import dataclass
from functools import partial
from typing import Annotated

import jax
import jax.numpy as jnp
from flax import struct

from kvnmt.fields import EXTENDS, WIDEST, at_least, between, idle_while
from kvnmt.initializers import Weights
from kvnmt.layers import precise
from kvnmt.layers.slot_memory import (
    Gate,
    Writer,
    choose,
    gates,
    init_writer,
    next_gates,
    rewrite,
)
from kvnmt.target_context import base
from kvnmt.typing import Array, DType, Float, Key, Sizes


@dataclass(frozen=True)
class Options(base.Options):
    """Static choices; the defaults are gated slot attention."""

    gate: Gate = "gsa"
    slots: Annotated[int, between(1, WIDEST), EXTENDS] = 8  # m
    # key width d_k; None: A
    key_size: Annotated[int | None, between(1, WIDEST), EXTENDS] = None
    # of gsa: how slowly slots fade
    tau: Annotated[float, at_least(1), idle_while(gate="abc")] = 8.0


@struct.dataclass
class Params:
    """One memory."""

    W_query: Float[Array, "D K"]
    writer: Writer


@struct.dataclass
class State:
    """Carried from step to step."""

    keys: Float[Array, "B M K"]
    values: Float[Array, "B M D"]
    log_total: Float[Array, "B M"] | None  # log z of abc


def init(
    options: Options, key: Key[Array, ""], sizes: Sizes, weights: Weights
) -> Params:
    """Makes queries and writer."""
    key_query, key_writer = jax.random.split(key)
    D, K = sizes.state, options.key_size or sizes.alignment
    return Params(
        W_query=weights.matrix(key_query, (D, K), jnp.float32),
        writer=init_writer(key_writer, D, K, D, options.slots, weights),
    )


def over_time(
    options: Options,
    params: Params,
    states: Float[Array, "B T D"],
    embedded: Float[Array, "B T E"],
) -> dict[str, Float[Array, "B T _"]]:
    """Reads before each step what the steps before it wrote."""
    writer, T = params.writer, states.shape[1]
    f, faded = gates(options.gate, writer, states, options.tau)  # [B, T, M]
    before = jnp.pad(faded[:, :-1], ((0, 0), (1, 0), (0, 0)))  # row 0 reads nothing
    apart = before[:, :, None] - faded[:, None]  # [B, T, T, M]
    earlier = jnp.tril(jnp.ones((T, T), bool), -1)[..., None]
    weights = f[:, None] * jnp.exp(jnp.where(earlier, apart, -jnp.inf))
    query, key = precise(states @ params.W_query), precise(states @ writer.W_key)
    products = jnp.einsum("btk,bik->bti", query, key)
    chosen = jax.nn.softmax(jnp.einsum("bti,btim->btm", products, weights))
    mixed = jnp.einsum("btm,btim->bti", chosen, weights)
    found = jnp.einsum("bti,bid->btd", mixed, precise(states @ writer.W_value))
    return base.summarised(states, embedded, found)


def initial_state(
    options: Options,
    params: Params,
    sizes: Sizes,
    rows: int,
    length: int,
    dtype: DType,
) -> State:
    """Empty slots."""
    m, dtype = options.slots, jnp.promote_types(dtype, jnp.float32)
    K = options.key_size or sizes.alignment
    log_total = None
    if options.gate == "abc":
        log_total = jnp.full((rows, m), -jnp.inf, dtype)
    return State(
        keys=jnp.zeros((rows, m, K), dtype),
        values=jnp.zeros((rows, m, sizes.state), dtype),
        log_total=log_total,
    )


def step(
    options: Options,
    params: Params,
    memory: State,
    state: Float[Array, "B D"],
    embedded: Float[Array, "B E"],
) -> tuple[State, dict[str, Float[Array, "B _"]]]:
    """Reads, then writes this state."""
    writer = params.writer
    chosen = choose(memory.keys, precise(state @ params.W_query))
    found = jnp.einsum("bm,bmd->bd", chosen, memory.values)
    f, log_a, log_total = next_gates(writer, state, options.tau, memory.log_total)
    memory = State(
        keys=rewrite(memory.keys, f, log_a, state @ writer.W_key),
        values=rewrite(memory.values, f, log_a, state @ writer.W_value),
        log_total=log_total,
    )
    return memory, base.summarised(state, embedded, found)


def build(options: Options) -> base.TargetContext:
    """Bounded slots under the contract."""
    return base.TargetContext(
        init=partial(init, options),
        widths=base.with_summary,
        over_time=partial(over_time, options),
        initial_state=partial(initial_state, options),
        step=partial(step, options),
    )
