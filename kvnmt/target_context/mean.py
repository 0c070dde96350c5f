# SPDX-License-Identifier: Apache-2.0
"""Mean residual: the readout sees the mean of all earlier words.

L. Miculicich Werlen, N. Pappas, D. Ram, A. Popescu-Belis (2018), section 4.1,
equation 9.

=============  ==============================================================
parameters     none
state, carried sum of the embeddings [B, E], their number [B]
result         s_t, and d_t in the seat of x_t
=============  ==============================================================

::

    d_t = 1/(t-1) sum_{i=1}^{t-1} x(y_i)            d_1 = 0

Reading of the paper: its formula divides by zero at t = 1; nothing precedes the first
word, so d_1 is the zero vector, as x_1 is.
"""

from dataclasses import dataclass

import jax.numpy as jnp
from flax import struct

from kvnmt.layers import precise
from kvnmt.target_context import base
from kvnmt.typing import Array, DType, Float, Int, Sizes


@dataclass(frozen=True)
class Options(base.Options):
    """The mean has no static choices."""


@struct.dataclass
class State:
    """Carried from step to step."""

    total: Float[Array, "B E"]
    count: Int[Array, " B"]  # words read


def over_time(
    params: tuple[()], states: Float[Array, "B T D"], embedded: Float[Array, "B T E"]
) -> dict[str, Float[Array, "B T _"]]:
    """Running means; x_1 is zero and counts for no word."""
    total = jnp.cumsum(precise(embedded), axis=1)
    count = jnp.maximum(jnp.arange(embedded.shape[1]), 1).astype(total.dtype)
    mean = (total / count[:, None]).astype(embedded.dtype)
    return {"state": states, "word": mean}


def initial_state(
    params: tuple[()],
    sizes: Sizes,
    rows: int,
    length: int,
    dtype: DType,
) -> State:
    """Nothing was read."""
    total = precise(jnp.zeros((rows, sizes.embedding), dtype))
    return State(total, jnp.zeros(rows, jnp.int32))


def step(
    params: tuple[()],
    memory: State,
    state: Float[Array, "B D"],
    embedded: Float[Array, "B E"],
) -> tuple[State, dict[str, Float[Array, "B _"]]]:
    """Adds the previous word and divides."""
    total = memory.total + precise(embedded)
    count = jnp.maximum(memory.count, 1).astype(total.dtype)
    mean = (total / count[:, None]).astype(embedded.dtype)
    return State(total, memory.count + 1), {"state": state, "word": mean}


def build(options: Options) -> base.TargetContext:
    """The mean residual under the contract."""
    return base.TargetContext(
        widths=base.state_and_word,
        over_time=over_time,
        step=step,
        initial_state=initial_state,
    )
