# SPDX-License-Identifier: Apache-2.0
"""A stack of Transformer layers: A. Vaswani et al. (2017), section 3.

Every position looks at all of the sentence, so one stack is a whole encoder.

=============  ==============================================================
parameters     per layer: self-attention, feed-forward, a LayerNorm before each;
               one LayerNorm behind them; a projection where E is not H
dropped        embedded words with their positions, what each part adds, weights
               of self-attention
=============  ==============================================================

::

    x_j = sqrt(H) P e_j + position_j                     P = 1 where E is H
    x_j = x_j + W_out attend(LN(x)_j, LN(x))             layer upon layer
    x_j = x_j + W_2 max(0, W_1 LN(x_j) + b_1) + b_2
    h_j = LN(x_j)
"""

import jax
import jax.numpy as jnp
from flax import struct

from kvnmt.encoder.base import Choices, Stack
from kvnmt.initializers import Weights
from kvnmt.layers import (
    Blocks,
    FeedForward,
    LayerNorm,
    Scanning,
    SelfAttention,
    attend,
    count_heads,
    dropout,
    enter,
    entry_gain,
    feed_forward,
    init_entry,
    init_feed_forward,
    init_layer_norm,
    init_self_attention,
    layer_norm,
    positions,
    queries_and_rows,
    split_key,
)
from kvnmt.typing import Array, Bool, Float, Key


@struct.dataclass
class Layer:
    """One layer."""

    own: SelfAttention
    feed_forward: FeedForward


@struct.dataclass
class Params:
    """The stack."""

    project: Float[Array, "_ H"] | None  # P
    layers: tuple[Layer, ...]
    norm: LayerNorm


def init(
    key: Key[Array, ""],
    below: int,
    size: int,
    choices: Choices,
    weights: Weights,
) -> Params:
    """Makes every layer.

    Raises:
        OptionError: The heads do not share the units evenly.
    """
    blocks = choices.blocks
    _heads(blocks, size)

    def init_layer(key: Key[Array, ""]) -> Layer:
        key_own, key_feed = jax.random.split(key)
        return Layer(
            init_self_attention(key_own, size, weights),
            init_feed_forward(key_feed, size, blocks.feed_forward, weights),
        )

    key_entry, *keys = jax.random.split(key, 1 + choices.layers)
    return Params(
        project=init_entry(key_entry, below, size, weights),
        layers=tuple(init_layer(k) for k in keys),
        norm=init_layer_norm(size),
    )


def run(
    params: Params,
    x: Float[Array, "B S _"],
    mask: Bool[Array, "B S"],
    choices: Choices,
    *,
    reverse: bool,
    scanning: Scanning,
    key: Key[Array, "*B"] | None,
) -> Float[Array, "B S H"]:
    """Runs the stack, layer by layer; it has no direction and scans nothing."""
    size, blocks = params.norm.gain.shape[0], choices.blocks
    key_entry, *keys = split_key(key, 1 + len(params.layers))
    places = positions(jnp.arange(x.shape[1]), size, x.dtype)
    x = dropout(key_entry, blocks.dropout, enter(params.project, x, size) + places)
    for layer, k in zip(params.layers, keys):
        x = _run_layer(layer, _heads(blocks, size), x, mask, blocks.dropout, k)
    return layer_norm(params.norm, x)


def _run_layer(
    params: Layer,
    heads: int,
    x: Float[Array, "B S H"],
    mask: Bool[Array, "B S"],
    rate: float,
    key: Key[Array, "*B"] | None,
) -> Float[Array, "B S H"]:
    key_weights, key_own, key_feed = split_key(key, 3)
    query, rows = queries_and_rows(params.own, x)
    keys, values = jnp.split(rows, 2, axis=-1)
    read, _ = attend(heads, query, keys, values, mask[:, None], key_weights, rate)
    x = x + dropout(key_own, rate, read @ params.own.W_out)
    return feed_forward(params.feed_forward, x, key_feed, rate)


def _heads(blocks: Blocks, size: int) -> int:
    return count_heads(blocks.heads, size, "blocks.heads")


STACK = Stack(
    *(init, run),
    directed=False,
    gain=entry_gain,
    recurs=False,
    reads_blocks=True,
)
