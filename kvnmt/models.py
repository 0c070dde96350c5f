# SPDX-License-Identifier: Apache-2.0
"""The encoder-decoder, assembled from a config into pure functions.

::

    annotations = encode(source)
    for t = 1..T: features_t = decoder step on the embedded y_{t-1}     (scan)
    o_t = tanh(W_s s_t + W_y x_t + W_c c_t + b);   logits_t = W_v o_t + b_v

The last line runs after the scan, over all steps at once. The word before the first
is no word: its embedding is the zero vector.
"""

from dataclasses import dataclass, field
from functools import cache, partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from kvnmt import attention as attentions
from kvnmt import decoder as decoders
from kvnmt import encoder as encoders
from kvnmt import target_context as target_contexts
from kvnmt.attention import additive
from kvnmt.decoder import conditional
from kvnmt.layers import Linear, dropout, embed, gaussian, init_linear, linear
from kvnmt.target_context import previous_word
from kvnmt.typing import Array, Float, Int, Key, PyTree, Sizes, Weights


@dataclass(frozen=True)
class Dropout:
    """Rates; the papers drop out the readout vector alone."""

    embedding: float = 0.0  # of source and previous target words
    annotations: float = 0.0
    output: float = 0.5  # of o_t, before the output layer


@dataclass(frozen=True)
class ModelConfig:
    """The three choices that make a system, and the sizes they share."""

    attention: attentions.Options = field(default_factory=additive.Options)
    decoder: decoders.Options = field(default_factory=conditional.Options)
    target_context: target_contexts.Options = field(
        default_factory=previous_word.Options
    )
    embedding: int = 256  # E
    encoder: int = 256  # H, in each direction
    state: int = 256  # D
    alignment: int | None = None  # A; none given: as wide as the state
    merge: encoders.Merge = "concat"
    initializer: Literal["gaussian", "glorot"] = "gaussian"  # gaussian: the papers'
    dropout: Dropout = field(default_factory=Dropout)

    @property
    def sizes(self) -> Sizes:
        """The widths that the parts agree on."""
        return Sizes(
            embedding=self.embedding,
            encoder=self.encoder,
            annotation=encoders.annotation_size(self.merge, self.encoder),
            state=self.state,
            alignment=self.state if self.alignment is None else self.alignment,
        )


@struct.dataclass
class Params:
    """All that is trained."""

    source_embedding: Float[Array, "V E"]
    target_embedding: Float[Array, "V E"]
    encoder: encoders.Params
    decoder: PyTree
    target_context: PyTree
    readout: Linear  # W_s, W_y, W_c, b
    output: Linear  # W_v, b_v


@struct.dataclass
class State:
    """What a search carries for one hypothesis."""

    decoder: PyTree
    target_context: PyTree


@struct.dataclass
class Prediction:
    """Logits of the next word and the features they were made from."""

    logits: Float[Array, "*N V"]
    features: decoders.Features


class Model(NamedTuple):
    """An encoder-decoder: pure functions over Params, Source and State.

    Token arrays hold ids, below zero where there is no word; ``source`` and
    ``target`` end every sentence with EOS.
    """

    config: ModelConfig
    init: "partial[Params]"  # (key) -> Params
    encode: "partial[PyTree]"  # (params, source [B, S], key=None) -> Source
    initial_state: "partial[State]"  # (params, source, length) -> State
    step: "partial[tuple[State, Prediction]]"  # (params, source, state, tokens [B])
    forward: "partial[Prediction]"  # (params, source, target, key=None)


class _Parts(NamedTuple):
    decoder: decoders.Decoder
    target_context: target_contexts.TargetContext


@cache
def build(config: ModelConfig, source_words: int, target_words: int) -> Model:
    """Assembles a model; the same arguments give the same functions.

    Args:
        config: The choices and sizes.
        source_words: Rows of the source vocabulary.
        target_words: Rows of the target vocabulary.
    """
    attend = attentions.CATALOGUE.build(config.attention)
    parts = _Parts(
        decoders.CATALOGUE.build(config.decoder, attend),
        target_contexts.CATALOGUE.build(config.target_context),
    )
    return Model(
        config=config,
        init=partial(_init, config, parts, source_words, target_words),
        encode=partial(_encode, config, parts),
        initial_state=partial(_initial_state, parts),
        step=partial(_step, parts),
        forward=partial(_forward, config, parts),
    )


def count_parameters(params: PyTree) -> int:
    """Returns how many numbers are trained."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def _weights(config: ModelConfig) -> Weights:
    if config.initializer == "gaussian":
        return gaussian()
    return jax.nn.initializers.glorot_uniform()


def _init(
    config: ModelConfig, parts: _Parts, source_words: int, target_words: int, key: Array
) -> Params:
    sizes, weights = config.sizes, _weights(config)
    keys = jax.random.split(key, 7)
    E = sizes.embedding
    table = gaussian(0.1) if config.initializer == "glorot" else weights
    inputs = parts.target_context.widths(sizes) + parts.decoder.feature_sizes(sizes)
    return Params(
        source_embedding=table(keys[0], (source_words, E), jnp.float32),
        target_embedding=table(keys[1], (target_words, E), jnp.float32),
        encoder=encoders.init(keys[2], sizes, config.merge, weights),
        decoder=parts.decoder.init(keys[3], sizes, weights),
        target_context=parts.target_context.init(keys[4], sizes, weights),
        readout=init_linear(keys[5], inputs, E, weights),
        output=init_linear(keys[6], [E], target_words, weights),
    )


def _encode(
    config: ModelConfig,
    parts: _Parts,
    params: Params,
    source: Int[Array, "B S"],
    key: Key[Array, ""] | None = None,
) -> PyTree:
    key_embedding, key_annotations = _split(key, 2)
    source = jnp.asarray(source)
    mask = source >= 0
    embedded = embed(params.source_embedding, source)  # [B, S, E]
    embedded = dropout(key_embedding, config.dropout.embedding, embedded)
    annotations = encoders.encode(params.encoder, config.merge, embedded, mask)
    annotations = dropout(key_annotations, config.dropout.annotations, annotations)
    return parts.decoder.prepare(params.decoder, annotations, mask)


def _initial_state(parts: _Parts, params: Params, source: PyTree, length: int) -> State:
    state = parts.decoder.initial_state(params.decoder, source)
    first = jax.tree.leaves(state)[0]  # s_0
    memory = parts.target_context.initial_state(params.target_context, first, length)
    return State(state, memory)


def _step(
    parts: _Parts,
    params: Params,
    source: PyTree,
    state: State,
    tokens: Int[Array, " B"],
) -> tuple[State, Prediction]:
    embedded = embed(params.target_embedding, jnp.asarray(tokens))  # [B, E]
    inputs = parts.decoder.inputs(params.decoder, embedded)
    new, features = parts.decoder.step(params.decoder, source, state.decoder, inputs)
    alone = jax.tree.map(lambda x: x[:, None], features)  # a time axis of one step
    features = parts.decoder.attend(params.decoder, source, alone)
    features = jax.tree.map(lambda x: x[:, 0], features)
    memory, context = parts.target_context.step(
        params.target_context, state.target_context, features.state, embedded
    )
    logits = linear(params.output, _readout(params, context, features))
    return State(new, memory), Prediction(logits, features)


def _forward(
    config: ModelConfig,
    parts: _Parts,
    params: Params,
    source: Int[Array, "B S"],
    target: Int[Array, "B T"],
    key: Key[Array, ""] | None = None,
) -> Prediction:
    key_source, key_embedding, key_output = _split(key, 3)
    constants = _encode(config, parts, params, source, key_source)
    previous = jnp.pad(
        jnp.asarray(target)[:, :-1], ((0, 0), (1, 0)), constant_values=-1
    )
    embedded = embed(params.target_embedding, previous)  # [B, T, E]
    embedded = dropout(key_embedding, config.dropout.embedding, embedded)
    inputs = parts.decoder.inputs(params.decoder, embedded)
    _, features = jax.lax.scan(
        partial(parts.decoder.step, params.decoder, constants),
        parts.decoder.initial_state(params.decoder, constants),
        _swap_time(inputs),
    )
    features = parts.decoder.attend(params.decoder, constants, _swap_time(features))
    context = parts.target_context.over_time(
        params.target_context, features.state, embedded
    )
    readout = _readout(params, context, features)
    readout = dropout(key_output, config.dropout.output, readout)
    return Prediction(linear(params.output, readout), features)


def _readout(
    params: Params, context: tuple[Array, ...], features: decoders.Features
) -> Float[Array, "*N E"]:
    inputs = (*context, features.context, *features.extras)
    return jnp.tanh(linear(params.readout, *inputs))


def _swap_time(tree: PyTree) -> PyTree:
    return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), tree)


def _split(key: Key[Array, ""] | None, count: int) -> list[Array | None]:
    return [None] * count if key is None else list(jax.random.split(key, count))
