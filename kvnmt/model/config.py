# SPDX-License-Identifier: Apache-2.0
"""What a model is made of: the choices of mechanisms, and the sizes they share."""

from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeAlias

from kvnmt import attention as attentions
from kvnmt import decoder as decoders
from kvnmt import encoder as encoders
from kvnmt import readout as readouts
from kvnmt import target_context as target_contexts
from kvnmt.attention import additive
from kvnmt.decoder import conditional
from kvnmt.fields import DEEPEST, WIDEST, between, idle_while
from kvnmt.initializers import Scheme, Weights, weights
from kvnmt.layers import Blocks
from kvnmt.target_context import previous_word
from kvnmt.typing import Sizes

Rate: TypeAlias = Annotated[float, between(0, 0.99)]
Size: TypeAlias = Annotated[int, between(1, WIDEST)]
MaybeSize: TypeAlias = Annotated[int | None, between(1, WIDEST)]
WITHOUT_BLOCKS = tuple(n for n, c in encoders.CELLS.items() if not c.reads_blocks)


@dataclass(frozen=True)
class Dropout:
    """Dropout rates; the papers drop out only the readout vector."""

    embedding: Rate = 0.0  # of source and previous target words
    annotations: Rate = 0.0  # of the encoder's output
    output: Rate = 0.5  # of the readout (o_t), before the output layer
    # of the current state (s_t) as attention and readout take it, after the scan
    state: Rate = 0.0
    # of the states that all GRUs and LSTMs pass to the next step:
    # the same entries at every step of a sentence (Gal and Ghahramani 2016).
    recurrent: Rate = 0.0
    # of whole source and previous target words (Sennrich and Zhang 2019)
    word: Rate = 0.0
    # of the states that a layer of a recurrent encoder passes to the layer above
    layers: Rate = 0.0


@dataclass(frozen=True)
class ModelConfig:
    """The three choices that make a system, and the sizes they share."""

    attention: attentions.Options = field(default_factory=additive.Options)
    decoder: decoders.Options = field(default_factory=conditional.Options)
    target_context: target_contexts.Options = field(
        default_factory=previous_word.Options
    )
    embedding: Size = 256  # width of embedded words (E)
    # units of the encoder in each direction (H)
    encoder: Annotated[Size, idle_while(merge="none")] = 256
    state: Size = 256  # units of the decoder state (D)
    alignment: MaybeSize = None  # width of energies (A); default: that of the state
    # how the two directions become annotations; none: a language model, no source
    merge: encoders.Merge = "concat"
    # of the encoder: recurrent units, or layers of a Transformer
    cell: Annotated[encoders.CellName, idle_while(merge="none")] = "gru"
    # layers of the encoder, in each direction
    layers: Annotated[int, between(1, DEEPEST), idle_while(merge="none")] = 1
    # whether each encoder layer but the first adds its input (Wu et al. 2016)
    residual: Annotated[bool, idle_while(layers=1)] = False
    # Options of the encoder's Transformer layers.
    blocks: Annotated[Blocks, idle_while(cell=WITHOUT_BLOCKS)] = field(
        default_factory=Blocks
    )
    readout: readouts.Readout = "tanh"  # what comes before the output layer
    # readout's width (l); default: that of the embedding
    readout_size: Annotated[MaybeSize, idle_while(readout="none")] = None
    low_rank: MaybeSize = None  # a linear layer of this width after the readout
    # add source words, weighted by alignment, to the readout (Nguyen and Chiang 2018)
    lexicon: bool = False
    # what shares the table of the target embedding: nothing, the output layer (where
    # the readout has another width, a linear layer comes between), or the source
    # embedding too, where both sides have one vocabulary
    tie: Literal["none", "output", "all"] = "none"
    initializer: Scheme = "gaussian"  # how arrays are initialised
    # what the biases of forget gates of LSTMs start as; 1: a cell first keeps most of
    # what it has (Gers et al. 2000; Jozefowicz et al. 2015)
    forget_bias: Annotated[float, between(-100, 100)] = 0.0
    # whether products of GRUs and LSTMs are normalised (Ba et al. 2016); Transformers
    # have normalised layers in any case
    layer_norm: bool = False
    average_auxiliary: bool = False  # auxiliary predictors vote; in training never
    dropout: Dropout = field(default_factory=Dropout)

    @property
    def reads_source(self) -> bool:
        """Whether there is a source: false of a language model."""
        return self.merge != "none"

    @property
    def built_attention(self) -> attentions.Attention:
        """The attention."""
        return attentions.CATALOGUE.build(self.attention)

    @property
    def built_decoder(self) -> decoders.Decoder:
        """The decoder, built around the attention."""
        return decoders.CATALOGUE.build(self.decoder, self.built_attention)

    @property
    def at_once(self) -> bool:
        """Whether no target word waits for what was computed at the one before."""
        writes = self.built_attention.write is not None
        return not writes and self.built_decoder.over_time is not None

    @property
    def encoder_recurs(self) -> bool:
        """Whether the encoder is made of GRUs or LSTMs."""
        return self.reads_source and encoders.CELLS[self.cell].recurs

    @property
    def recurs(self) -> bool:
        """Whether the encoder or the decoder is."""
        return self.encoder_recurs or self.built_decoder.over_time is None

    @property
    def word_gain(self) -> float:
        """What embedded target words are multiplied by."""
        return self.built_decoder.gain(self.sizes)

    @property
    def weights(self) -> Weights:
        """How arrays start."""
        scheme = weights(self.initializer)
        return scheme._replace(gain=float(self.layer_norm), forget=self.forget_bias)

    @property
    def reading(self) -> encoders.Choices:
        """How the source is read."""
        return encoders.Choices(
            self.merge,
            self.cell,
            self.layers,
            self.blocks,
            dropout=self.dropout.layers,
            residual=self.residual,
        )

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
