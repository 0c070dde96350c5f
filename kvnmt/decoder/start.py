# SPDX-License-Identifier: Apache-2.0
"""Where a decoder starts: the choices that the papers make for s_0.

============  ===============================================================
``mean``      ``tanh(W mean_j(h_j) + b)``: dl4mt and all after it
``backward``  ``tanh(W b_1 + b)``, b_1 where the backward encoder ends:
              Bahdanau et al. 2015, section A.2.2
``last``      ``tanh(W h_S + b)``, the last annotation
``read``      ``tanh(W c + b)``, c what the attention gives to a query of zeros:
              with a fixed context, the start of RNNencdec
``zero``      0, without parameters: language models
============  ===============================================================
"""

from typing import Literal, TypeAlias

import jax.numpy as jnp

from kvnmt.attention import Attention, Moment
from kvnmt.encoder import Encoded
from kvnmt.initializers import Weights
from kvnmt.layers import (
    Linear,
    init_linear,
    last_annotation,
    linear,
    masked_mean,
)
from kvnmt.typing import Array, Float, Key, PyTree, Sizes

Initial: TypeAlias = Literal["mean", "backward", "last", "read", "zero"]


def init_start(
    key: Key[Array, ""],
    initial: Initial,
    attention: Attention,
    sizes: Sizes,
    weights: Weights,
) -> Linear | None:
    """Makes the affine map, where there is one."""
    if initial == "zero":
        return None
    width = {"backward": sizes.encoder, "read": attention.context_size(sizes)}
    inputs = [width.get(initial, sizes.annotation)]
    return init_linear(key, inputs, sizes.state, weights)


def affine_start(
    params: Linear | None,
    initial: Initial,
    encoded: Encoded,
    attention: Attention,
    theta: PyTree,
    constants: PyTree,
    widths: tuple[int, int],
) -> Float[Array, "B D"]:
    """The affine map of what the start is made from; the caller squashes it.

    Args:
        params: What `init_start` made.
        initial: The choice.
        encoded: The source.
        attention: The mechanism, with its first round's ``theta`` and ``constants``.
        theta: Its parameters.
        constants: Its Source.
        widths: D and E.
    """
    rows, dtype = encoded.mask.shape[0], encoded.annotations.dtype
    D, E = widths
    zeros = jnp.zeros((rows, D), dtype)
    if params is None:
        return zeros
    if initial == "backward":
        seen = encoded.backward_first
    elif initial == "last":
        seen = last_annotation(encoded.annotations, encoded.mask)
    elif initial == "read":
        moment = Moment(zeros, jnp.zeros((rows, E), dtype), zeros)
        memory = attention.initial_state(theta, constants)
        seen = attention.read(theta, constants, memory, moment).context
    else:
        seen = masked_mean(encoded.annotations, encoded.mask)
    return linear(params, seen)
