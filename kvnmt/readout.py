# SPDX-License-Identifier: Apache-2.0
"""The readout: from what a step knows to the vector that the output layer reads.

===========  ================================================================
``tanh``     ``o = tanh(sum_i W_i z_i + b)`` in R^l (dl4mt and all after it)
``maxout``   ``o_i = max(tt_{2i-1}, tt_{2i})``, ``tt = sum_i W_i z_i + b`` in
             R^{2l} (Bahdanau et al. 2015, section A.2.2; adjacent pairs)
``none``     the first input as it is: language models without a residual, and
             decoders that make their own attentional vector (Luong et al. 2015)
             or whose state has read the source (Transformers)
===========  ================================================================

The inputs z_i have names (state, word, context, ...), a matrix each. ``low_rank``
adds a linear layer without bias behind o, as the code of Bahdanau et al. has it.
"""

from typing import Literal, TypeAlias

import jax
import jax.numpy as jnp
from flax import struct

from kvnmt.initializers import Weights
from kvnmt.layers import init_linear
from kvnmt.typing import Array, Float, Key

FAR = 1000  # of a key, behind those of all inputs
Readout: TypeAlias = Literal["tanh", "maxout", "none"]


@struct.dataclass
class Params:
    """Matrices by the name of their input."""

    W: dict[str, Float[Array, "_ L"]]
    b: Float[Array, " L"] | None
    low_rank: Float[Array, "L _"] | None


def output_size(
    readout: Readout, inputs: dict[str, int], size: int, low_rank: int | None
) -> int:
    """Returns the width that the output layer reads."""
    if low_rank is not None:
        return low_rank
    return next(iter(inputs.values())) if readout == "none" else size


def init(
    key: Key[Array, ""],
    readout: Readout,
    inputs: dict[str, int],
    size: int,
    low_rank: int | None,
    unread: int,
    weights: Weights,
) -> Params:
    """Makes the readout.

    Args:
        key: Random key.
        readout: Which.
        inputs: Widths by name.
        size: Width l of o.
        low_rank: Width of the layer behind it, if there is one.
        unread: How many leading columns of the context start with zero weight.
        weights: Initialisers.
    """
    behind = None
    if low_rank is not None:
        below = output_size(readout, inputs, size, None)
        key_rank = jax.random.fold_in(key, FAR)
        behind = weights.readout(key_rank, (below, low_rank), jnp.float32)
    if readout == "none":
        return Params({}, None, behind)
    width = {"tanh": size, "maxout": 2 * size}[readout]
    kind = weights._replace(matrix=weights.readout)
    layer = init_linear(key, list(inputs.values()), width, kind)
    W = dict(zip(inputs, layer.W))
    W["context"] = W["context"].at[:unread].set(0)
    return Params(W, layer.b, behind)


def apply(
    readout: Readout, params: Params, inputs: dict[str, Float[Array, "*N _"]]
) -> Float[Array, "*N _"]:
    """Returns o_t."""
    if readout == "none":
        o = next(iter(inputs.values()))
    else:
        assert params.b is not None
        total = params.b
        for name, z in inputs.items():
            total = total + z @ params.W[name]
        o = jnp.tanh(total) if readout == "tanh" else _maxout(total)
    return o if params.low_rank is None else o @ params.low_rank


def _maxout(total: Float[Array, "*N L2"]) -> Float[Array, "*N L"]:
    pairs = total.reshape(*total.shape[:-1], -1, 2)
    return jnp.max(pairs, axis=-1)
