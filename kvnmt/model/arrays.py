# SPDX-License-Identifier: Apache-2.0
"""The arrays of an encoder-decoder: trained, constant for a sentence, carried along."""

from dataclasses import replace

import jax.numpy as jnp
from flax import struct

from kvnmt import encoder as encoders
from kvnmt import lexicon
from kvnmt import readout as readouts
from kvnmt.layers import Linear, embed
from kvnmt.typing import Array, Bool, Float, Int, PyTree


@struct.dataclass
class Params:
    """All that is trained."""

    # [V, 0]: it is the target embedding. None: no source is read.
    source_embedding: Float[Array, "V _"] | None
    target_embedding: Float[Array, "V E"]
    encoder: encoders.Params
    decoder: PyTree
    target_context: PyTree
    readout: readouts.Params  # W_s, W_y, W_c, b
    output: Linear  # W_v, b_v; b_v alone where W_v is the target embedding
    lexicon: lexicon.Params | None
    auxiliary: tuple[Linear, ...]  # an output layer for each auxiliary predictor

    @property
    def source_table(self) -> Float[Array, "V E"] | None:
        """The embedding of source words, whether it is an array of its own or not."""
        if self.source_embedding is None or self.source_embedding.shape[1]:
            return self.source_embedding
        return self.target_embedding

    def embed_source(self, source: Int[Array, "B S"]) -> Float[Array, "B S _"]:
        """The embedded source; without entries where none is read."""
        if self.source_table is None:
            return jnp.zeros((*source.shape, 0), self.target_embedding.dtype)
        return embed(self.source_table, source)

    @property
    def output_layer(self) -> Linear:
        """``W_v, b_v``, whether W_v is an array of its own or not."""
        if self.output.W:
            return self.output
        return Linear(W=(self.target_embedding.T,), b=self.output.b)


@struct.dataclass
class Source:
    """What is constant while a sentence is translated."""

    decoder: PyTree
    mask: Bool[Array, "B S"]
    words: Float[Array, "B S E"] | None = None  # embedded, for a lexicon
    allowed: Bool[Array, "B V"] | None = None  # target words that a search may write


@struct.dataclass
class State:
    """What a search carries for one hypothesis."""

    decoder: PyTree
    target_context: PyTree


def narrow(
    params: Params,
    source: Source,
    words: Int[Array, " C"],
    allowed: Bool[Array, "B C"],
) -> tuple[Params, Source]:
    """A `kvnmt.model.contract.Narrow`: knows what has a row for each target word."""
    few = replace(
        params,
        target_embedding=params.target_embedding[words],
        output=_of_words(params.output, words),
        auxiliary=tuple(_of_words(layer, words) for layer in params.auxiliary),
    )
    return few, replace(source, allowed=allowed)


def _of_words(layer: Linear, words: Int[Array, " C"]) -> Linear:
    return Linear(W=tuple(W[:, words] for W in layer.W), b=layer.b[words])
