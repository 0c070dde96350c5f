# SPDX-License-Identifier: Apache-2.0
"""The Transformer decoder: no recurrence but that of a memory that is written.

A. Vaswani et al. (2017), section 3; with a key memory in the place of its attention to
the source, what F. Meng et al. (2018) leave to future work.

=============  ==============================================================
parameters     a projection where E is not D; per layer: self-attention, rounds
               (LayerNorm, attention, W_c), feed-forward; one LayerNorm
source         the attention's, one per layer and round
state, carried per layer: keys and values of earlier words [B, T, 2 D] and their
               number, the last h [B, D], the attention's State
result         LN(h_t); context and alignments of the last layer
=============  ==============================================================

::

    h_t = sqrt(D) P x_t + position_t                     P = 1 where E is D
    per layer:
        h_t = h_t + W_out attend(LN(h)_t, LN(h)_{1..t})
        h_t = look at the source (`kvnmt.decoder.source_look`)
        h_t = h_t + W_2 max(0, W_1 LN(h_t) + b_1) + b_2
    s_t = LN(h_t)

Any attention of the catalogue looks at the source in the ``last`` layer or in ``each``;
the other layers have multi-head attention. In training all words are computed at once;
if the attention of a layer writes, only its look is scanned. The gradient keeps the
weights of self-attention, [B, N, T, T] for each layer.

In a plain Transformer the readout gets only ``s_t``: target context ``state_only`` and
readout ``none``. Departure: the paper has six layers, the default here is two.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
from flax import struct

from kvnmt.attention import Attention, multi_head
from kvnmt.decoder import base, source_look
from kvnmt.decoder.source_look import Look, Looked, Now, Round
from kvnmt.encoder import Encoded
from kvnmt.fields import DEEPEST, EXTENDS, between, idle_while
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
from kvnmt.target_context.history import History, append, earlier, empty, present
from kvnmt.typing import Array, Bool, Float, Key, PyTree, Sizes


@dataclass(frozen=True)
class Options(base.Options, Blocks):
    """Static choices; lower layers also look at the source with so many heads."""

    layers: Annotated[int, between(1, DEEPEST), EXTENDS] = 2
    rounds: Annotated[int, between(1, DEEPEST), EXTENDS] = 1  # rounds of attention (R)
    # layers that have the attention; others: multi-head
    attention_in: Annotated[Literal["last", "each"], EXTENDS, idle_while(layers=1)] = (
        "last"
    )


@struct.dataclass
class Layer:
    """Parameters of one layer."""

    own: SelfAttention
    rounds: tuple[Round, ...]
    feed_forward: FeedForward


@struct.dataclass
class Params:
    """The decoder."""

    project: Float[Array, "E D"] | None  # P
    layers: tuple[Layer, ...]
    norm: LayerNorm


@struct.dataclass
class Source:
    """Constants of a sentence."""

    mask: Bool[Array, "B S"]
    layers: tuple[tuple[PyTree, ...], ...]  # the attention's Source, one per round


@struct.dataclass
class Carried:
    """What one layer carries from step to step."""

    history: History  # keys and values of self-attention
    before: Float[Array, "B D"]  # h_{t-1}, as it came to the look
    attention: PyTree  # the attention's State


@struct.dataclass
class Inputs:
    """What a step takes of the previous word."""

    embedded: Float[Array, "*N E"]
    entering: Float[Array, "*N D"]  # sqrt(D) P x


def init(
    options: Options,
    looks: Sequence[Look],
    key: Key[Array, ""],
    sizes: Sizes,
    weights: Weights,
) -> Params:
    """Makes the parameters of the decoder and of its attentions.

    Raises:
        OptionError: The heads do not share the state's width evenly.
    """
    D = sizes.state
    _heads(options, D)

    def init_layer(look: Look, key: Key[Array, ""]) -> Layer:
        key_own, key_look, key_feed = jax.random.split(key, 3)
        return Layer(
            own=init_self_attention(key_own, D, weights),
            rounds=source_look.init_rounds(look, key_look, sizes, weights),
            feed_forward=init_feed_forward(key_feed, D, options.feed_forward, weights),
        )

    key_entry, *keys = jax.random.split(key, 1 + options.layers)
    return Params(
        project=init_entry(key_entry, sizes.embedding, D, weights),
        layers=tuple(init_layer(look, k) for look, k in zip(looks, keys, strict=True)),
        norm=init_layer_norm(D),
    )


def prepare(looks: Sequence[Look], params: Params, encoded: Encoded) -> Source:
    """Prepares the attention of every layer and round."""
    parts = zip(looks, params.layers, strict=True)
    constants = (source_look.prepare(k, layer.rounds, encoded) for k, layer in parts)
    return Source(encoded.mask, tuple(constants))


def initial_state(
    looks: Sequence[Look],
    params: Params,
    source: Source,
    length: int,
    key: Key[Array, "*B"] | None = None,
) -> tuple[Carried, ...]:
    """No word yet, and every attention's State from its first round."""
    rows, gain = source.mask.shape[0], params.norm.gain
    D, dtype = gain.shape[0], gain.dtype

    def start(look: Look, layer: Layer, constants: tuple[PyTree, ...]) -> Carried:
        first = layer.rounds[0].attention
        return Carried(
            history=empty(rows, length, 2 * D, dtype),
            before=jnp.zeros((rows, D), dtype),
            attention=look.attention.initial_state(first, constants[0]),
        )

    return tuple(map(start, looks, params.layers, source.layers))


def inputs(params: Params, embedded: Float[Array, "*N E"]) -> Inputs:
    """Brings the embedded previous words to the width of the stack."""
    width = params.norm.gain.shape[0]
    return Inputs(embedded, enter(params.project, embedded, width))


def step(
    options: Options,
    looks: Sequence[Look],
    params: Params,
    source: Source,
    state: tuple[Carried, ...],
    inputs: Inputs,
) -> tuple[tuple[Carried, ...], base.Features]:
    """One target word, layer upon layer."""
    heads, h = _heads(options, inputs.entering.shape[-1]), inputs.entering
    h = h + positions(state[0].history.count, h.shape[-1], h.dtype)
    following = []
    parts = zip(looks, params.layers, source.layers, state, strict=True)
    for look, layer, constants, carried in parts:
        query, row = queries_and_rows(layer.own, h)
        history = append(carried.history, row)
        there = present(history)[:, None]
        past, values = jnp.split(history.rows, 2, axis=-1)
        read, own = attend(heads, query[:, None], past, values, there)
        h = h + read[:, 0] @ layer.own.W_out
        now = Now(h, carried.before, inputs.embedded, (None,) * look.rounds)
        memory, looked = source_look.look_at(
            look, layer.rounds, constants, carried.attention, now
        )
        following.append(Carried(history, h, memory))
        h = feed_forward(layer.feed_forward, looked.h)
    return tuple(following), _features(params, h, looked, own[:, 0])


def over_time(
    options: Options,
    looks: Sequence[Look],
    params: Params,
    source: Source,
    state: tuple[Carried, ...],
    inputs: Inputs,
    key: Key[Array, "*B"] | None = None,
    scanning: Scanning = Scanning(),
) -> base.Features:
    """All target words at once, layer upon layer, but for what is written."""
    _, T, D = inputs.entering.shape
    heads, rate = _heads(options, D), options.dropout
    key_entry, *keys = split_key(key, 1 + options.layers)
    h = inputs.entering + positions(jnp.arange(T), D, inputs.entering.dtype)
    h, mask = dropout(key_entry, rate, h), earlier(T, itself=True)[None]
    parts = zip(looks, params.layers, source.layers, state, keys, strict=True)
    for look, layer, constants, carried, k in parts:
        key_weights, key_own, key_look, key_feed = split_key(k, 4)
        query, rows = queries_and_rows(layer.own, h)
        past, values = jnp.split(rows, 2, axis=-1)
        read, own = attend(heads, query, past, values, mask, key_weights, rate)
        h = h + dropout(key_own, rate, read @ layer.own.W_out)
        looked = source_look.look_over_time(
            *(look, layer.rounds, constants, carried.attention),
            *(h, inputs.embedded, rate, key_look, scanning),
        )
        h = feed_forward(layer.feed_forward, looked.h, key_feed, rate)
    return _features(params, h, looked, own)


def _features(params: Params, h: Array, looked: Looked, own: Array) -> base.Features:
    return base.Features(
        state=layer_norm(params.norm, h),
        context=looked.context,
        alignments=looked.alignments,
        self_attention=own,
    )


def _heads(options: Options, width: int) -> int:
    return count_heads(options.heads, width, "decoder.heads")


def _looks(options: Options, attention: Attention) -> list[Look]:
    """How every layer looks at the source, from the lowest to the last."""
    own = {"last": 1, "each": options.layers}[options.attention_in]
    plain = multi_head.build(multi_head.Options(heads=options.heads))
    others = [Look(plain, 1)] * (options.layers - own)
    return [*others, *[Look(attention, options.rounds)] * own]


def build(options: Options, attention: Attention) -> base.Decoder:
    """The Transformer decoder around any attention, under the contract."""
    looks = _looks(options, attention)
    return base.Decoder(
        init=partial(init, options, looks),
        prepare=partial(prepare, looks),
        initial_state=partial(initial_state, looks),
        inputs=inputs,
        step=partial(step, options, looks),
        feature_sizes=lambda sizes: {"context": attention.context_size(sizes)},
        gain=lambda sizes: entry_gain(sizes.state),
        over_time=partial(over_time, options, looks),
        looks_itself=options.attention_in == "last" and options.layers > 1,
    )
