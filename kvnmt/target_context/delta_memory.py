# SPDX-License-Identifier: Apache-2.0
"""Linear memories of the translation: the readout also reads earlier states.

The updates, their papers and what is common to all of them are in
`kvnmt.layers.linear_memory`; `kvnmt.attention.delta_memory` has the source in the place
of the earlier states.

=============  ==============================================================
parameters     W_q: D N d_k; a writer of width D, as counted there
state, carried memory [N, d_k, d_v]
result         s_t, x_t, and o_t of D = N d_v numbers beside them
=============  ==============================================================

::

    o_t = M^T q_t                                 q_t of s_t; o_1 = 0
    M <- D M - k (b * k)^T D M + k (w * v)^T      for s_t, from M = 0

The recurrence is untouched: in training all steps are read at once after the scan.
"""

from dataclasses import dataclass
from functools import partial
from typing import Annotated

import jax
import jax.numpy as jnp
from flax import struct

from kvnmt.fields import EXTENDS, WIDEST, between
from kvnmt.initializers import Weights
from kvnmt.layers.linear_memory import (
    Shape,
    Update,
    Writer,
    in_order,
    init_writer,
    memory_shape,
    queries,
    read,
    rewrite,
    writes,
)
from kvnmt.layers.write_chunks import reads
from kvnmt.target_context import base
from kvnmt.typing import Array, DType, Float, Key, Sizes


@dataclass(frozen=True)
class Options(base.Options):
    """Static choices; the default is the delta rule."""

    update: Update = "delta"
    heads: Annotated[int, between(1, WIDEST)] = 1  # N
    # key width N d_k; None: A
    key_size: Annotated[int | None, between(1, WIDEST), EXTENDS] = None

    def shape(self, sizes: Sizes) -> Shape:
        """The heads, and the widths of one."""
        key = self.key_size or sizes.alignment
        return memory_shape(self.heads, key, sizes.state, "target_context")


@struct.dataclass
class Params:
    """One memory."""

    W_query: Float[Array, "D N*K"]
    writer: Writer


def init(
    options: Options, key: Key[Array, ""], sizes: Sizes, weights: Weights
) -> Params:
    """Makes queries and writer.

    Raises:
        OptionError: Keys or values do not split among the heads.
    """
    key_query, key_writer = jax.random.split(key)
    shape, D = options.shape(sizes), sizes.state
    return Params(
        W_query=weights.matrix(key_query, (D, shape.heads * shape.key), jnp.float32),
        writer=init_writer(options.update, key_writer, D, shape, weights),
    )


def over_time(
    options: Options,
    params: Params,
    states: Float[Array, "B T D"],
    embedded: Float[Array, "B T E"],
) -> dict[str, Float[Array, "B T _"]]:
    """Reads before each step what the steps before it wrote."""
    made = in_order(writes(params.writer, states, options.heads))
    asked = queries(options.update, params.W_query, states, options.heads)
    found = reads(made, jnp.swapaxes(asked, 1, 2))  # [B, N, T, V]
    found = jnp.swapaxes(found, 1, 2).reshape(states.shape)
    return base.summarised(states, embedded, found)


def initial_state(
    options: Options,
    params: Params,
    sizes: Sizes,
    rows: int,
    length: int,
    dtype: DType,
) -> Float[Array, "B N K V"]:
    """An empty memory."""
    N, K, V = options.shape(sizes)
    return jnp.zeros((rows, N, K, V), jnp.promote_types(dtype, jnp.float32))


def step(
    options: Options,
    params: Params,
    memory: Float[Array, "B N K V"],
    state: Float[Array, "B D"],
    embedded: Float[Array, "B E"],
) -> tuple[Float[Array, "B N K V"], dict[str, Float[Array, "B _"]]]:
    """Reads, then writes this state."""
    asked = queries(options.update, params.W_query, state, options.heads)
    found = read(memory, asked).reshape(state.shape)
    made = writes(params.writer, state, options.heads)
    return rewrite(memory, made), base.summarised(state, embedded, found)


def build(options: Options) -> base.TargetContext:
    """A linear memory under the contract."""
    return base.TargetContext(
        init=partial(init, options),
        widths=base.with_summary,
        over_time=partial(over_time, options),
        initial_state=partial(initial_state, options),
        step=partial(step, options),
    )
