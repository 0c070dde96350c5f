# SPDX-License-Identifier: Apache-2.0
"""The encoder-decoder, assembled from a config into pure functions.

::

    annotations = encode(source)
    for t = 1..T: features_t = decoder step on the embedded y_{t-1}
    o_t = readout of s_t, x_t, c_t (or what stands in their place)
          + what a lexicon says of the source words, if there is one
    logits_t = W_v o_t + b_v

A decoder that is recurrent scans the second line, another computes all steps at once;
the last two lines run over all steps at once in any case. The word before the
first is no word: its embedding is the zero vector. A language model is a model whose
encoder is ``none``: it ignores its source.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial

import jax
import jax.numpy as jnp

from kvnmt import attention as attentions
from kvnmt import decoder as decoders
from kvnmt import encoder as encoders
from kvnmt import lexicon
from kvnmt import readout as readouts
from kvnmt import target_context as target_contexts
from kvnmt.errors import OptionError, UserError
from kvnmt.fields import check_fields
from kvnmt.layers import (
    Scanning,
    dropout,
    embed,
    embedding_dropout,
    split_key,
    with_masks,
)
from kvnmt.model.arrays import Params, Source, State, narrow
from kvnmt.model.config import ModelConfig
from kvnmt.model.contract import Head, Model, Prediction, mean_logits
from kvnmt.model.init import Parts, init
from kvnmt.typing import Array, Float, Int, Key, PyTree

CATALOGUES = attentions.CATALOGUE, decoders.CATALOGUE, target_contexts.CATALOGUE


def build(
    config: ModelConfig,
    source_words: int,
    target_words: int,
    around: Callable[[attentions.Attention], attentions.Attention] = lambda same: same,
) -> Model:
    """Assembles a model; the same arguments give the same functions for a while.

    Args:
        config: The choices and sizes.
        source_words: Rows of the source vocabulary.
        target_words: Rows of the target vocabulary.
        around: Makes of the mechanism one with the same parameters that does more,
            such as write down what happens.

    Raises:
        UserError: A field of the config holds what it may not, or a model without a
            source is to look at one.
    """
    check_fields(config, "model.")
    _check_source(config)
    return _built(config, source_words, target_words, around, changes())


def _check_source(config: ModelConfig) -> None:
    looks = config.built_attention.needs_source
    if not config.reads_source and (looks or config.lexicon):
        raise OptionError(
            "{0} is of a source, and with {1} none there is none; leave it out, or "
            "choose another {1}.",
            *("attention" if looks else "model.lexicon", "model.merge"),
        )


def changes() -> tuple[int, ...]:
    """The changes to the catalogues so far; models built before the last are stale."""
    return tuple(catalogue.changes for catalogue in CATALOGUES)


def count_parameters(params: PyTree) -> int:
    """Returns how many numbers are trained."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))


@lru_cache(maxsize=32, typed=True)  # a program is freed some time after its model
def _built(
    config: ModelConfig,
    source_words: int,
    target_words: int,
    around: Callable[[attentions.Attention], attentions.Attention],
    changes: tuple[int, ...],  # of which the cache has to know
) -> Model:
    attend = around(attentions.CATALOGUE.build(config.attention))
    parts = Parts(
        attend,
        decoders.CATALOGUE.build(config.decoder, attend),
        target_contexts.CATALOGUE.build(config.target_context),
    )
    return Model(
        reads_source=config.reads_source,
        source_words=source_words,
        target_words=target_words,
        init=partial(init, config, parts, source_words, target_words),
        encode=partial(_encode, config, parts),
        initial_state=partial(_initial_state, config, parts),
        step=partial(_step, config, parts),
        forward=partial(_forward, config, parts),
        narrow=narrow,
    )


def _check_ids(**sides: jax.typing.ArrayLike) -> None:
    """Refuses at once what a layer would refuse by a name of its own."""
    arrays = {name: jnp.asarray(ids) for name, ids in sides.items()}
    whole = all(jnp.issubdtype(ids.dtype, jnp.integer) for ids in arrays.values())
    flat = all(ids.ndim == 2 for ids in arrays.values())
    if not (whole and flat and len({len(ids) for ids in arrays.values()}) == 1):
        told = " and ".join(
            f"{name} is {ids.dtype}{[*ids.shape]}" for name, ids in arrays.items()
        )
        raise UserError(
            f"{told}; give whole numbers, [B, S] of the source and [B, T] of the "
            "target, as many rows of both."
        )


def _encode(
    config: ModelConfig,
    parts: Parts,
    params: Params,
    source: Int[Array, "B S"],
    key: Key[Array, "*B"] | None = None,
    scanning: Scanning = Scanning(),
) -> Source:
    _check_ids(source=source)
    key_embedding, key_annotations, key_encoder, key_masks = split_key(key, 4)
    source, rates = jnp.asarray(source), config.dropout
    encoder = with_masks(key_masks, rates.recurrent, params.encoder, len(source))
    embedded = params.embed_source(source)
    embedded = embedding_dropout(key_embedding, rates.embedding, rates.word, embedded)
    encoded = encoders.encode(
        config.reading,
        encoder,
        config.sizes,
        embedded,
        mask=source >= 0,
        scanning=scanning,
        key=key_encoder,
    )
    annotations = dropout(key_annotations, rates.annotations, encoded.annotations)
    encoded = replace(encoded, annotations=annotations)
    return Source(
        decoder=parts.decoder.prepare(params.decoder, encoded),
        mask=encoded.mask,
        words=None if params.lexicon is None else embedded,
    )


def _initial_state(
    config: ModelConfig, parts: Parts, params: Params, source: Source, length: int
) -> State:
    rows, dtype = source.mask.shape[0], params.target_embedding.dtype
    memory = parts.target_context.initial_state(
        params.target_context, config.sizes, rows, length, dtype
    )
    state = parts.decoder.initial_state(params.decoder, source.decoder, length)
    return State(state, memory)


def _step(
    config: ModelConfig,
    parts: Parts,
    params: Params,
    source: Source,
    state: State,
    tokens: Int[Array, " B"],
) -> tuple[State, Prediction]:
    embedded = embed(params.target_embedding, jnp.asarray(tokens))  # [B, E]
    inputs = parts.decoder.inputs(params.decoder, embedded)
    new, features = decoders.whole_step(
        parts.decoder, params.decoder, source.decoder, state.decoder, inputs
    )
    memory, context = parts.target_context.step(
        params.target_context, state.target_context, features.state, embedded
    )
    prediction = _predict(config, parts, params, source, context, features)
    return State(new, memory), prediction


def _forward(
    config: ModelConfig,
    parts: Parts,
    params: Params,
    source: Int[Array, "B S"],
    target: Int[Array, "B T"],
    key: Key[Array, "*B"] | None = None,
    scanning: Scanning = Scanning(),
) -> Prediction:
    _check_ids(source=source, target=target)
    key_source, key_embedding, key_output, *keys = split_key(key, 7)
    key_start, key_state, key_words, key_masks = keys
    read = _encode(config, parts, params, source, key_source, scanning)
    constants = read.decoder
    target = jnp.asarray(target)[:, :-1]
    previous = jnp.pad(target, ((0, 0), (1, 0)), constant_values=-1)
    embedded = embed(params.target_embedding, previous)  # [B, T, E]
    rates = config.dropout
    embedded = embedding_dropout(key_embedding, rates.embedding, rates.word, embedded)
    inputs = parts.decoder.inputs(params.decoder, embedded)
    length = embedded.shape[1]
    start = parts.decoder.initial_state(params.decoder, constants, length, key_start)
    masked = with_masks(key_masks, rates.recurrent, params.decoder, len(embedded))
    features = decoders.features_over_time(
        parts.decoder, masked, constants, start, inputs, key_words, scanning
    )
    state = dropout(key_state, rates.state, features.state)
    features = replace(features, state=state)
    if parts.decoder.attend is not None:
        features = parts.decoder.attend(params.decoder, constants, features)
    context = parts.target_context.over_time(
        params.target_context, features.state, embedded
    )
    looks = _self_attention(parts, params, features, embedded)
    prediction = _predict(config, parts, params, read, context, features, key_output)
    return replace(prediction, self_attention=looks)


def _self_attention(
    parts: Parts,
    params: Params,
    features: decoders.Features,
    embedded: Float[Array, "B T E"],
) -> tuple[Float[Array, "B T T"], ...]:
    """Self-attention of all mechanisms; programs that do not use it leave it out."""
    looks = []
    if features.self_attention is not None:
        looks.append(features.self_attention[..., : embedded.shape[1]])
    look = parts.target_context.self_attention
    if look is not None:
        looks.append(look(params.target_context, features.state, embedded))
    return tuple(looks)


def _predict(
    config: ModelConfig,
    parts: Parts,
    params: Params,
    source: Source,
    context: dict[str, Array],
    features: decoders.Features,
    key: Key[Array, "*B"] | None = None,
) -> Prediction:
    assert features.context is not None  # read in the step or by ``attend``
    inputs = context | {"context": features.context} | dict(features.extras)
    read = readouts.apply(config.readout, params.readout, inputs)
    read = lexicon.add(params.lexicon, read, source.words, features.alignments)
    read = dropout(key, config.dropout.output, read)
    layers = params.output_layer, *params.auxiliary
    vectors = read, *features.auxiliary
    heads = tuple(Head(layer, x, source.allowed) for layer, x in zip(layers, vectors))
    votes = config.average_auxiliary and len(heads) > 1 and key is None
    mean = mean_logits([head.logits for head in heads]) if votes else None
    return Prediction(features, heads, mean)
