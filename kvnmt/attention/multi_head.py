# SPDX-License-Identifier: Apache-2.0
"""Multi-head dot attention: A. Vaswani et al. (2017), section 3.2.

Each of N heads compares its part of the query with its part of the keys. The
attention of a plain Transformer, for any decoder.

=============  ==============================================================
parameters     W_query, W_key, W_value               D² + 2 C D numbers
source         keys and values of all heads, mask
state, carried none
result         what all heads read, side by side; the mean of their alignments
=============  ==============================================================

::

    q = W_query q_t      k_j = W_key h_j      v_j = W_value h_j
    a^n = softmax_j(q^n . k^n_j / sqrt(D / N))                                (1)
    c   = [sum_j a^1_j v^1_j; ...; sum_j a^N_j v^N_j]       a = mean_n a^n

The matrix W^O of the paper, which mixes what the heads read, belongs to the decoder:
every decoder has a matrix that takes the context.
"""

from dataclasses import dataclass
from functools import partial
from typing import Annotated

import jax
import jax.numpy as jnp
from flax import struct

from kvnmt.attention import base
from kvnmt.attention.address import KeysAndValues
from kvnmt.fields import WIDEST, between
from kvnmt.initializers import Weights
from kvnmt.layers import attend, count_heads
from kvnmt.typing import Array, Bool, Float, Key, Sizes


@dataclass(frozen=True)
class Options(base.Options):
    """Static choices of multi-head attention."""

    # heads (N); default: as many as are 64 wide or wider
    heads: Annotated[int | None, between(1, WIDEST)] = None


@struct.dataclass
class Params:
    """The projections of all heads, side by side."""

    W_query: Float[Array, "D D"]
    W_key: Float[Array, "C D"]
    W_value: Float[Array, "C D"]


def init(
    options: Options, key: Key[Array, ""], sizes: Sizes, weights: Weights
) -> Params:
    """Makes the projections.

    Raises:
        UserError: The heads do not share the state's width evenly.
    """
    C, D = sizes.annotation, sizes.state
    _heads(options, D)
    key_query, key_key, key_value = jax.random.split(key, 3)
    return Params(
        W_query=weights.address(key_query, (D, D), jnp.float32),
        W_key=weights.address(key_key, (C, D), jnp.float32),
        W_value=weights.matrix(key_value, (C, D), jnp.float32),
    )


def prepare(
    params: Params, annotations: Float[Array, "B S C"], mask: Bool[Array, "B S"]
) -> KeysAndValues:
    """Projects the annotations once for all target steps."""
    keys, values = annotations @ params.W_key, annotations @ params.W_value
    return KeysAndValues(keys, values, mask)


def read(
    options: Options,
    params: Params,
    source: KeysAndValues,
    state: tuple[()],
    moment: base.Moment,
) -> base.Attended:
    """Every head compares and reads (1)."""
    query = (moment.query @ params.W_query)[:, None]
    heads = _heads(options, query.shape[-1])
    mask = source.mask[:, None]
    context, alignment = attend(heads, query, source.keys, source.values, mask)
    return base.Attended(context[:, 0], alignment[:, 0])


def _heads(options: Options, width: int) -> int:
    return count_heads(options.heads, width, "attention.heads")


def build(options: Options) -> base.Attention:
    """Multi-head attention under the contract."""
    return base.Attention(
        init=partial(init, options),
        prepare=prepare,
        read=partial(read, options),
        context_size=lambda sizes: sizes.state,
    )
