# SPDX-License-Identifier: Apache-2.0
"""Where a decoder starts: the choices that the papers make for s_0.

============  ===============================================================
``mean``      ``tanh(W mean_j(h_j) + b)``: dl4mt and all after it
``backward``  ``tanh(W b_1 + b)``, b_1 where the backward encoder ends:
              Bahdanau et al. 2015, section A.2.2
``last``      ``tanh(W h_S + b)``, the last annotation
``read``      ``tanh(W c + b)``, c what the attention gives to a query of zeros:
              with a fixed context, the start of RNNencdec. A linear memory
              gives nothing to such a query: there it is ``tanh(b)``, with steep
              gradients behind layer normalisation; take another
``zero``      0, without parameters: language models
============  ===============================================================

A stack of LSTMs starts without the tanh.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

import jax.numpy as jnp

from kvnmt.attention import Attention, Moment
from kvnmt.encoder import Encoded
from kvnmt.errors import OptionError
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


class _Start(NamedTuple):
    """What the affine map takes, and how wide that is."""

    width: Callable[[Attention, Sizes], int]
    see: Callable[[Encoded, Callable[[], Array]], Array]  # (source, first read)


def _backward(encoded: Encoded, read: Callable[[], Array]) -> Array:
    if encoded.backward_first is None:
        raise OptionError(
            "a decoder cannot start from the backward encoder where there is none; "
            "choose another {0} or another {1}.",
            *("decoder.initial", "merge"),
            prefix="model.",
        )
    return encoded.backward_first


STARTS: dict[Initial, _Start] = {  # all but ``zero``, which has no map
    "mean": _Start(
        lambda _, sizes: sizes.annotation,
        lambda encoded, read: masked_mean(encoded.annotations, encoded.mask),
    ),
    "backward": _Start(lambda _, sizes: sizes.encoder, _backward),
    "last": _Start(
        lambda _, sizes: sizes.annotation,
        lambda encoded, read: last_annotation(encoded.annotations, encoded.mask),
    ),
    "read": _Start(
        lambda attention, sizes: attention.context_size(sizes),
        lambda encoded, read: read(),
    ),
}


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
    width = STARTS[initial].width(attention, sizes)
    return init_linear(key, [width], sizes.state, weights)


def affine_start(
    params: Linear | None,
    initial: Initial,
    encoded: Encoded,
    attention: Attention,
    theta: PyTree,
    constants: PyTree,
) -> Float[Array, "B D"]:
    """The affine map of what the start is made from; the caller squashes it.

    Args:
        params: What `init_start` made.
        initial: The choice.
        encoded: The source.
        attention: The mechanism, with its first round's ``theta`` and ``constants``.
        theta: Its parameters.
        constants: Its Source.

    Raises:
        OptionError: ``backward`` of an encoder that does not read backward.
    """
    rows, dtype = encoded.mask.shape[0], encoded.annotations.dtype
    zeros = jnp.zeros((rows, encoded.sizes.state), dtype)
    if params is None:
        return zeros

    def read() -> Float[Array, "B _"]:
        moment = Moment(
            previous_state=zeros,
            embedded=jnp.zeros((rows, encoded.sizes.embedding), dtype),
            query=zeros,
        )
        memory = attention.initial_state(theta, constants)
        return attention.read(theta, constants, memory, moment).context

    return linear(params, STARTS[initial].see(encoded, read))
