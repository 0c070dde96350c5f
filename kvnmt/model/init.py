# SPDX-License-Identifier: Apache-2.0
"""How the parameters of an encoder-decoder start."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from kvnmt import attention as attentions
from kvnmt import decoder as decoders
from kvnmt import encoder as encoders
from kvnmt import lexicon
from kvnmt import readout as readouts
from kvnmt import target_context as target_contexts
from kvnmt.errors import OptionError, UserError
from kvnmt.layers import Linear, has_units, init_linear
from kvnmt.model.arrays import Params
from kvnmt.model.config import ModelConfig
from kvnmt.typing import Array, Float, Sizes


class Parts(NamedTuple):
    """The three mechanisms, built."""

    attention: attentions.Attention
    decoder: decoders.Decoder
    target_context: target_contexts.TargetContext


def init(
    config: ModelConfig, parts: Parts, source_words: int, target_words: int, key: Array
) -> Params:
    """Makes all parameters.

    Raises:
        UserError: Choices or sizes do not fit together.
    """
    sizes, scheme = config.sizes, config.weights
    keys = jax.random.split(key, 7)
    E, gain, tied = sizes.embedding, parts.decoder.gain(sizes), config.tie != "none"
    # Of a table that is the output layer, too, products are to be of unit size.
    table = scheme.table(max(gain, E**0.5) if tied else gain)
    inputs = _inputs(parts.target_context.widths(sizes), parts.decoder, sizes)
    size = config.readout_size or E
    below = readouts.output_size(config.readout, inputs, size, None)
    low_rank = config.low_rank or (E if tied and below != E else None)
    width = low_rank or below
    params = Params(
        source_embedding=_init_source(config, keys[0], source_words, target_words),
        target_embedding=table(keys[1], (target_words, E), jnp.float32),
        encoder=encoders.init(config.reading, keys[2], sizes, scheme),
        decoder=parts.decoder.init(keys[3], sizes, scheme),
        target_context=parts.target_context.init(keys[4], sizes, scheme),
        readout=readouts.init(
            keys[5],
            config.readout,
            inputs,
            size,
            low_rank=low_rank,
            unread=parts.attention.unread(sizes),
            weights=scheme,
        ),
        output=_init_output(config, keys[6], width, target_words),
        # a key of its own, so that all else starts as it does without
        lexicon=_init_lexicon(config, jax.random.fold_in(key, 9), width),
        auxiliary=tuple(
            init_linear(jax.random.fold_in(keys[6], n), [wide], target_words, scheme)
            for n, wide in enumerate(parts.decoder.auxiliary_sizes(sizes))
        ),
    )
    return _check_units(params, config.dropout.recurrent)


def _inputs(
    before: dict[str, int], decoder: decoders.Decoder, sizes: Sizes
) -> dict[str, int]:
    """What the readout reads, by name, and how wide it is."""
    now = decoder.feature_sizes(sizes)
    if twice := sorted(before.keys() & now.keys()):
        raise UserError(
            f"target context and decoder both give the readout '{twice[0]}'; name "
            "one of them otherwise in its code."
        )
    return before | now


def _init_lexicon(config: ModelConfig, key: Array, width: int) -> lexicon.Params | None:
    if not config.lexicon:
        return None
    return lexicon.init(key, config.embedding, width, config.weights)


def _init_source(
    config: ModelConfig, key: Array, words: int, target_words: int
) -> Float[Array, "V _"] | None:
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


def _init_output(config: ModelConfig, key: Array, width: int, words: int) -> Linear:
    if config.tie == "none":
        return init_linear(key, [width], words, config.weights)
    if width != config.embedding:
        raise OptionError(
            f"an output layer that is tied to the embedding reads its width, "
            f"{config.embedding}, but {{0}} is {width}; make them equal, or set {{1}} "
            "none.",
            *("low_rank", "tie"),
            prefix="model.",
        )
    return Linear(W=(), b=jnp.zeros(words, jnp.float32))


def _check_units(params: Params, rate: float) -> Params:
    """The parameters, if dropout of recurrent states has a unit to act on."""
    if rate and not has_units((params.encoder, params.decoder)):
        raise OptionError(
            "{0} is of GRUs and LSTMs, of which this model has none; leave it out.",
            "dropout.recurrent",
            prefix="model.",
        )
    return params
