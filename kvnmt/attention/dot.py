# SPDX-License-Identifier: Apache-2.0
"""Dot-product attention: M. Luong, H. Pham, C. Manning (2015), section 3.

The ``attn`` of H. Mino, M. Utiyama, E. Sumita, T. Tokunaga (2017), section 3.1.

=============  ==============================================================
parameters     none; W of ``general``; v, W, U, b of ``concat``
source         annotations h, mask, keys
state, carried none
result         context ``sum_j a_j h_j``, alignment a
=============  ==============================================================

::

    a = softmax_j(score(q, h_j))        c = sum_j a_j h_j
    score: dot      q . h_j                        the query is as wide as h_j
           general  q . (W h_j)
           concat   v . tanh(W q + U h_j + b)      as in additive attention
"""

from dataclasses import dataclass
from functools import partial
from typing import Literal

import jax.numpy as jnp
from flax import struct

from kvnmt.attention import base
from kvnmt.attention.address import (
    Address,
    KeysAndValues,
    address,
    init_address,
    project_keys,
    read_dot,
    read_values,
)
from kvnmt.errors import OptionError
from kvnmt.initializers import Weights
from kvnmt.typing import Array, Bool, Float, Key, Sizes


@dataclass(frozen=True)
class Options(base.Options):
    """Static choices of dot-product attention."""

    score: Literal["dot", "general", "concat"] = "dot"


@struct.dataclass
class Params:
    """What the score needs."""

    W: Float[Array, "C D"] | None  # general
    address: Address | None  # concat


def init(
    options: Options, key: Key[Array, ""], sizes: Sizes, weights: Weights
) -> Params:
    """Makes the parameters of the score.

    Raises:
        OptionError: ``dot`` of a query and annotations of different widths.
    """
    C, D = sizes.annotation, sizes.state
    if options.score == "dot" and C != D:
        raise OptionError(
            f"dot attention needs annotations as wide as the decoder state, but they "
            f"have {C} and {D}; change {{0}}, {{1}} or {{2}}, or set {{3}} general.",
            *("encoder", "merge", "state", "attention.score"),
            prefix="model.",
        )
    W = theta = None
    if options.score == "general":
        W = weights.address(key, (C, D), jnp.float32)
    if options.score == "concat":
        theta = init_address(key, D, C, sizes.alignment, weights)
    return Params(W, theta)


def prepare(
    params: Params, annotations: Float[Array, "B S C"], mask: Bool[Array, "B S"]
) -> KeysAndValues:
    """Projects the annotations once for all target steps, where the score does."""
    keys = annotations
    if params.W is not None:
        keys = annotations @ params.W
    if params.address is not None:
        keys = project_keys(params.address, annotations)
    return KeysAndValues(keys, annotations, mask)


def read(
    params: Params, source: KeysAndValues, state: tuple[()], moment: base.Moment
) -> base.Attended:
    """Scores the annotations by the query and reads them."""
    if params.address is None:
        return read_dot(source, moment.query)
    alignment = address(params.address, moment.query, source.keys, source.mask)
    return base.Attended(read_values(alignment, source.values), alignment)


def build(options: Options) -> base.Attention:
    """Dot-product attention under the contract."""
    return base.Attention(
        init=partial(init, options),
        prepare=prepare,
        read=read,
    )
