# SPDX-License-Identifier: Apache-2.0
"""The parts of Transformer layers, and how a stack of them begins.

A. Vaswani, N. Shazeer, N. Parmar, J. Uszkoreit, L. Jones, A. Gomez, L. Kaiser,
I. Polosukhin (2017), "Attention Is All You Need", sections 3.1 to 3.5.

::

    each of N heads   softmax_i(q . k_i / sqrt(D / N)), which mixes the v_i     (1)
    feed-forward      W_2 max(0, W_1 x + b_1) + b_2                             (2)
    position t        sin(t / 10000^(2i / D)) at 2i, cos at 2i + 1, t from 0

Departure: a LayerNorm stands before each part and one behind the last layer, where the
paper has one behind each part. Stacks then learn without a warm-up, as R. Xiong et al.
(2020) found, but here better with one (docs/catalogue.md). As in the paper, projections
of an attention have no bias.
"""

from dataclasses import dataclass
from typing import Annotated

import jax
import jax.numpy as jnp
from flax import struct

from kvnmt.errors import OptionError
from kvnmt.fields import EXTENDS, WIDEST, between
from kvnmt.initializers import Weights
from kvnmt.layers.basic import (
    Linear,
    dropout,
    init_linear,
    linear,
    masked_softmax,
    standardised,
)
from kvnmt.typing import Array, Bool, DType, Float, Int, Key, typed

HEAD = 64  # units of a head, at least, where the number of heads is not given


@dataclass(frozen=True)
class Blocks:
    """Static choices of Transformer layers."""

    # heads of self-attention (N); default: as many as are 64 wide or wider
    heads: Annotated[int | None, between(1, WIDEST)] = None
    # width of the layer between (F); default: 4 times that of the states
    feed_forward: Annotated[int | None, between(1, WIDEST), EXTENDS] = None
    # dropout of what a part adds, of weights of self-attention, and of embedded words
    # with their positions
    dropout: Annotated[float, between(0, 0.99), EXTENDS] = 0.0


@struct.dataclass
class LayerNorm:
    """Gain and bias of a normalised vector."""

    gain: Float[Array, " D"]
    b: Float[Array, " D"]


@struct.dataclass
class SelfAttention:
    """Of one layer."""

    norm: LayerNorm
    W: Float[Array, "D 3*D"]  # to queries, keys and values
    W_out: Float[Array, "D D"]


@struct.dataclass
class FeedForward:
    """Of one layer."""

    norm: LayerNorm
    inner: Linear  # W_1, b_1
    outer: Linear  # W_2, b_2


def count_heads(heads: int | None, width: int, field: str) -> int:
    """Returns N: what is given, or the most that divide the width and are 64 wide.

    Args:
        heads: What is given.
        width: D.
        field: Of the config of a model, that gives it.

    Raises:
        OptionError: So many heads do not share the width evenly.
    """
    if heads is None:
        most = max(1, width // HEAD)
        return max(n for n in range(1, most + 1) if width % n == 0)
    if width % heads:
        raise OptionError(
            f"{heads} heads cannot share a width of {width} evenly; give {{0}} a "
            "number that divides it.",
            field,
            prefix="model.",
        )
    return heads


def init_layer_norm(width: int) -> LayerNorm:
    """Makes a LayerNorm that changes nothing but the scale."""
    return LayerNorm(jnp.ones(width, jnp.float32), jnp.zeros(width, jnp.float32))


@typed
def layer_norm(params: LayerNorm, x: Float[Array, "*N D"]) -> Float[Array, "*N D"]:
    """``(x - mean) / sqrt(variance) * gain + b``."""
    return standardised(x) * params.gain + params.b


def init_self_attention(
    key: Key[Array, ""], width: int, weights: Weights
) -> SelfAttention:
    """Makes 4 D² + 2 D numbers."""
    kinds = (weights.address, weights.address, weights.matrix, weights.matrix)
    shape, keys = (width, width), jax.random.split(key, len(kinds))
    *read, out = (kind(k, shape, jnp.float32) for kind, k in zip(kinds, keys))
    return SelfAttention(init_layer_norm(width), jnp.concatenate(read, axis=1), out)


@typed
def queries_and_rows(
    params: SelfAttention, x: Float[Array, "*N D"]
) -> tuple[Float[Array, "*N D"], Float[Array, "*N 2*D"]]:
    """The query of each position, and its key and value in one row."""
    both = layer_norm(params.norm, x) @ params.W
    width = x.shape[-1]
    return both[..., :width], both[..., width:]


@typed
def attend(
    heads: int,
    query: Float[Array, "B T D"],
    keys: Float[Array, "B I D"],
    values: Float[Array, "B I D"],
    mask: Bool[Array, "#B #T I"],
    key: Key[Array, "*_"] | None = None,
    rate: float = 0.0,
) -> tuple[Float[Array, "B T D"], Float[Array, "B T I"]]:
    """What all heads read, side by side, and the mean of their weights (1).

    Args:
        heads: N.
        query: Of every head, side by side, like keys and values.
        keys: Those that are compared with it.
        values: Those that are mixed.
        mask: At which i position t may look; nowhere: zeros are read.
        key: Of dropout, or one for each row.
        rate: Of the weights that are dropped.
    """
    query, keys, values = (
        x.reshape(*x.shape[:2], heads, -1) for x in (query, keys, values)
    )
    query = query * query.shape[-1] ** -0.5
    energies = jnp.einsum("btnd,bind->bnti", query, keys)
    mask = jnp.broadcast_to(mask[:, None], energies.shape)
    weights = masked_softmax(energies, mask)
    read = jnp.einsum("bnti,bind->btnd", dropout(key, rate, weights), values)
    return read.reshape(*read.shape[:2], -1), jnp.mean(weights, axis=1)


def init_feed_forward(
    key: Key[Array, ""], width: int, inner: int | None, weights: Weights
) -> FeedForward:
    """Makes 2 D F + F + 3 D numbers; F is 4 D if it is not given."""
    inner = 4 * width if inner is None else inner
    key_inner, key_outer = jax.random.split(key)
    return FeedForward(
        norm=init_layer_norm(width),
        inner=init_linear(key_inner, [width], inner, weights),
        outer=init_linear(key_outer, [inner], width, weights),
    )


@typed
def feed_forward(
    params: FeedForward,
    x: Float[Array, "*N D"],
    key: Key[Array, "*_"] | None = None,
    rate: float = 0.0,
) -> Float[Array, "*N D"]:
    """What the part adds (2), added."""
    inner = jax.nn.relu(linear(params.inner, layer_norm(params.norm, x)))
    return x + dropout(key, rate, linear(params.outer, inner))


def init_entry(
    key: Key[Array, ""], below: int, width: int, weights: Weights
) -> Float[Array, "_ D"] | None:
    """Makes a projection into a stack of another width; None: it has the width."""
    return None if below == width else weights.matrix(key, (below, width), jnp.float32)


def entry_gain(size: int) -> float:
    """What a stack of so many units multiplies embedded words by."""
    return size**0.5


@typed
def enter(
    project: Float[Array, "_ D"] | None, embedded: Float[Array, "*N _"], width: int
) -> Float[Array, "*N _"]:
    """Embedded words as a stack takes them: times sqrt(D), without their positions."""
    projected = embedded if project is None else embedded @ project
    return projected * entry_gain(width)


@typed
def positions(at: Int[Array, "*N"], width: int, dtype: DType) -> Float[Array, "*N _"]:
    """The vectors of positions t, computed in float32 at least."""
    kind = jnp.promote_types(dtype, jnp.float32)
    places = jnp.arange(width)
    rates = 10000.0 ** -((places - places % 2).astype(kind) / width)
    angles = at[..., None].astype(kind) * rates
    return jnp.where(places % 2 == 0, jnp.sin(angles), jnp.cos(angles)).astype(dtype)
