# SPDX-License-Identifier: Apache-2.0
"""The arrays of an encoder-decoder: trained, constant for a sentence, carried along."""

from dataclasses import replace

import jax.numpy as jnp
from flax import struct

from kvnmt import encoder as encoders
from kvnmt import lexicon
from kvnmt import readout as readouts
from kvnmt.errors import OptionError
from kvnmt.layers import Linear, embed, has_units, init_linear
from kvnmt.model_config import ModelConfig
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


def init_source(
    config: ModelConfig, key: Array, words: int, target_words: int
) -> Float[Array, "V _"] | None:
    """The embedding of source words, as far as it is an array of its own.

    Raises:
        OptionError: It is that of target words, which are not as many.
    """
    if not config.reads_source:
        return None
    tied = config.tie == "all"
    if tied and words != target_words:
        sentence = "{0} all takes one vocabulary for both sides, which have "
        sentence += f"{words} and {target_words} words."
        raise OptionError(sentence, "tie", prefix="model.")
    shape = words, 0 if tied else config.embedding
    gain = encoders.entry_gain(config.reading, config.encoder)
    return config.weights.table(gain)(key, shape, jnp.float32)


def init_output(config: ModelConfig, key: Array, width: int, words: int) -> Linear:
    """The output layer that reads a width, as far as it has arrays of its own.

    Raises:
        OptionError: It is tied to the embedding, which has another width.
    """
    if config.tie == "none":
        return init_linear(key, [width], words, config.weights)
    if width != config.embedding:
        raise OptionError(
            f"an output layer that is tied to the embedding reads its width, "
            f"{config.embedding}, but the readout gives {width}; make them equal, or "
            "set {0} none.",
            "tie",
            prefix="model.",
        )
    return Linear(W=(), b=jnp.zeros(words, jnp.float32))


def check_units(params: Params, rate: float) -> Params:
    """The same, once it is known that dropout of recurrent states drops something.

    Raises:
        OptionError: There is a rate, and no GRU and no LSTM.
    """
    if rate and not has_units((params.encoder, params.decoder)):
        raise OptionError(
            "{0} is of GRUs and LSTMs, of which this model has none; leave it out.",
            "dropout.recurrent",
            prefix="model.",
        )
    return params


def narrow(
    params: Params,
    source: Source,
    words: Int[Array, " C"],
    allowed: Bool[Array, "B C"],
) -> tuple[Params, Source]:
    """See `kvnmt.contract.Narrow`: this knows what has a row for each target word."""
    few = replace(
        params,
        target_embedding=params.target_embedding[words],
        output=_of_words(params.output, words),
        auxiliary=tuple(_of_words(layer, words) for layer in params.auxiliary),
    )
    return few, replace(source, allowed=allowed)


def _of_words(layer: Linear, words: Int[Array, " C"]) -> Linear:
    return Linear(W=tuple(W[:, words] for W in layer.W), b=layer.b[words])
