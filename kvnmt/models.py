# SPDX-License-Identifier: Apache-2.0
"""The encoder-decoder, assembled from a config into pure functions.

::

    annotations = encode(source)
    for t = 1..T: features_t = decoder step on the embedded y_{t-1}     (scan)
    o_t = readout of s_t, x_t, c_t (or what stands in their place)
    logits_t = W_v o_t + b_v

The last two lines run after the scan, over all steps at once. The word before the
first is no word: its embedding is the zero vector.

A language model is a model whose encoder is ``none``: it ignores its source.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from kvnmt import attention as attentions
from kvnmt import decoder as decoders
from kvnmt import encoder as encoders
from kvnmt import readout as readouts
from kvnmt import target_context as target_contexts
from kvnmt.initializers import weights
from kvnmt.layers import Linear, dropout, embed, init_linear, linear, precise, scan
from kvnmt.model_config import ModelConfig
from kvnmt.typing import Array, Float, Int, Key, PyTree

SCAN = "decoder_scan"  # what the scan over target words is called in a traced program


@struct.dataclass
class Params:
    """All that is trained."""

    source_embedding: Float[Array, "V E"] | None  # None: no source is read
    target_embedding: Float[Array, "V E"]
    encoder: encoders.Params
    decoder: PyTree
    target_context: PyTree
    readout: readouts.Params  # W_s, W_y, W_c, b
    output: Linear  # W_v, b_v
    auxiliary: tuple[Linear, ...]  # an output layer for each auxiliary predictor


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
    auxiliary: tuple[Float[Array, "*N V"], ...]  # of the auxiliary predictors
    self_attention: tuple[Float[Array, "B T T"], ...] = ()  # out of ``forward`` only:
    # of every mechanism that looks at earlier words, as in `target_context.base`


class Model(NamedTuple):
    """An encoder-decoder: pure functions over Params, Source and State.

    Token arrays hold ids, below zero where there is no word; ``source`` and
    ``target`` end every sentence with EOS. A key, or one for each row, is given in
    training. For the gradient of ``forward`` what
    happened within a ``chunk`` of target steps is computed anew; 0 keeps everything.
    """

    config: ModelConfig
    init: "partial[Params]"  # (key) -> Params
    encode: "partial[PyTree]"  # (params, source [B, S], key=None) -> Source
    initial_state: "partial[State]"  # (params, source, length) -> State
    step: "partial[tuple[State, Prediction]]"  # (params, source, state, tokens [B])
    forward: "partial[Prediction]"  # (params, source, target, key=None, chunk=0)


class _Parts(NamedTuple):
    attention: attentions.Attention
    decoder: decoders.Decoder
    target_context: target_contexts.TargetContext


@cache
def build(
    config: ModelConfig,
    source_words: int,
    target_words: int,
    around: Callable[[attentions.Attention], attentions.Attention] = lambda own: own,
) -> Model:
    """Assembles a model; the same arguments give the same functions.

    Args:
        config: The choices and sizes.
        source_words: Rows of the source vocabulary.
        target_words: Rows of the target vocabulary.
        around: Makes of the mechanism one with the same parameters that does more,
            such as write down what happens.
    """
    attend = around(attentions.CATALOGUE.build(config.attention))
    parts = _Parts(
        attend,
        decoders.CATALOGUE.build(config.decoder, attend),
        target_contexts.CATALOGUE.build(config.target_context),
    )
    return Model(
        config=config,
        init=partial(_init, config, parts, source_words, target_words),
        encode=partial(_encode, config, parts),
        initial_state=partial(_initial_state, parts),
        step=partial(_step, config, parts),
        forward=partial(_forward, config, parts),
    )


def count_parameters(params: PyTree) -> int:
    """Returns how many numbers are trained."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def _init(
    config: ModelConfig, parts: _Parts, source_words: int, target_words: int, key: Array
) -> Params:
    sizes, scheme = config.sizes, weights(config.initializer)
    keys = jax.random.split(key, 7)
    E = sizes.embedding
    given = parts.target_context.widths(sizes) | parts.decoder.feature_sizes(sizes)
    read = (config.readout, given, config.readout_size or E)
    width = readouts.output_size(*read, config.low_rank)
    source = None
    if config.merge != "none":
        source = scheme.table(keys[0], (source_words, E), jnp.float32)
    encoder = (config.merge, scheme, config.cell, config.layers)
    return Params(
        source_embedding=source,
        target_embedding=scheme.table(keys[1], (target_words, E), jnp.float32),
        encoder=encoders.init(keys[2], sizes, *encoder),
        decoder=parts.decoder.init(keys[3], sizes, scheme),
        target_context=parts.target_context.init(keys[4], sizes, scheme),
        readout=readouts.init(
            keys[5], *read, config.low_rank, parts.attention.unread(sizes), scheme
        ),
        output=init_linear(keys[6], [width], target_words, scheme),
        auxiliary=tuple(
            init_linear(jax.random.fold_in(keys[6], n), [own], target_words, scheme)
            for n, own in enumerate(parts.decoder.auxiliary_sizes(sizes))
        ),
    )


def _encode(
    config: ModelConfig,
    parts: _Parts,
    params: Params,
    source: Int[Array, "B S"],
    key: Key[Array, "*B"] | None = None,
) -> PyTree:
    key_embedding, key_annotations = _split(key, 2)
    source = jnp.asarray(source)
    if params.source_embedding is None:
        embedded = jnp.zeros((*source.shape, 0), params.target_embedding.dtype)
    else:
        embedded = embed(params.source_embedding, source)  # [B, S, E]
    embedded = dropout(key_embedding, config.dropout.embedding, embedded)
    encoded = encoders.encode(
        params.encoder, config.merge, embedded, source >= 0, config.cell
    )
    annotations = dropout(
        key_annotations, config.dropout.annotations, encoded.annotations
    )
    return parts.decoder.prepare(
        params.decoder, replace(encoded, annotations=annotations)
    )


def _initial_state(parts: _Parts, params: Params, source: PyTree, length: int) -> State:
    state = parts.decoder.initial_state(params.decoder, source, length)
    first = jax.tree.leaves(state)[0]  # s_0
    embedded = jnp.zeros(
        (first.shape[0], params.target_embedding.shape[1]), first.dtype
    )
    memory = parts.target_context.initial_state(
        params.target_context, first, embedded, length
    )
    return State(state, memory)


def _step(
    config: ModelConfig,
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
    return State(new, memory), _predict(config, params, context, features, None)


def _forward(
    config: ModelConfig,
    parts: _Parts,
    params: Params,
    source: Int[Array, "B S"],
    target: Int[Array, "B T"],
    key: Key[Array, "*B"] | None = None,
    chunk: int = 0,
) -> Prediction:
    key_source, key_embedding, key_output, key_start, key_state = _split(key, 5)
    constants = _encode(config, parts, params, source, key_source)
    previous = jnp.pad(
        jnp.asarray(target)[:, :-1], ((0, 0), (1, 0)), constant_values=-1
    )
    embedded = embed(params.target_embedding, previous)  # [B, T, E]
    embedded = dropout(key_embedding, config.dropout.embedding, embedded)
    inputs = parts.decoder.inputs(params.decoder, embedded)
    length = embedded.shape[1]
    start = parts.decoder.initial_state(params.decoder, constants, length, key_start)
    step = partial(parts.decoder.step, params.decoder, constants)
    with jax.named_scope(SCAN):
        features = scan(step, start, _swap_time(inputs), chunk)
    features = _swap_time(features)
    dropped = dropout(key_state, config.dropout.state, features.state)
    features = features.replace(state=dropped)
    features = parts.decoder.attend(params.decoder, constants, features)
    context = parts.target_context.over_time(
        params.target_context, features.state, embedded
    )
    looks = _self_attention(parts, params, features, embedded)
    prediction = _predict(config, params, context, features, key_output)
    return replace(prediction, self_attention=looks)


def _self_attention(
    parts: _Parts,
    params: Params,
    features: decoders.Features,
    embedded: Float[Array, "B T E"],
) -> tuple[Float[Array, "B T T"], ...]:
    """What nobody asks for is not computed: programs leave unused results out."""
    length = embedded.shape[1]
    own = features.self_attention
    found = [None if own is None else own[..., :length]]
    found.append(
        parts.target_context.self_attention(
            params.target_context, features.state, embedded
        )
    )
    return tuple(one for one in found if one is not None)


def _predict(
    config: ModelConfig,
    params: Params,
    context: dict[str, Array],
    features: decoders.Features,
    key: Key[Array, "*B"] | None,
) -> Prediction:
    inputs = context | {"context": features.context} | dict(features.extras)
    read = readouts.apply(config.readout, params.readout, inputs)
    read = dropout(key, config.dropout.output, read)
    logits = precise(linear(params.output, read))
    heads = zip(params.auxiliary, features.auxiliary, strict=True)
    others = tuple(precise(linear(head, own)) for head, own in heads)
    if config.average_auxiliary and others and key is None:
        votes = jnp.stack([jax.nn.log_softmax(x) for x in (logits, *others)])
        logits = jax.nn.logsumexp(votes, axis=0) - jnp.log(len(votes))
    return Prediction(logits, features, others)


def _swap_time(tree: PyTree) -> PyTree:
    return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), tree)


def _split(key: Key[Array, "*B"] | None, count: int) -> list[Array | None]:
    if key is None:
        return [None] * count
    if key.ndim == 0:
        return list(jax.random.split(key, count))
    return list(jax.vmap(lambda own: jax.random.split(own, count), out_axes=1)(key))
