# SPDX-License-Identifier: Apache-2.0
"""The stacked LSTM decoder, by default without input feeding.

H. Mino, M. Utiyama, E. Sumita, T. Tokunaga (2017), section 3.1, after M. Luong,
H. Pham, C. Manning (2015); with one layer, a zero start and no attention, the
language models of L. Miculicich Werlen et al. (2018), table 6.

=============  ==============================================================
parameters     initial state, an LSTM per layer, attention, W_d if fed back
source         h_0; the attention's
state, carried hidden state and cell of every layer; the attention's State and
               e_{t-1} where they are needed
result         state of the top layer (e_t if fed back), context, alignment
=============  ==============================================================

::

    d_t = LSTM(d_{t-1}, x_t)                            layer upon layer
    c_t = read(d_t)
    with ``input_feeding``: d_t = LSTM(d_{t-1}, [x_t; e_{t-1}]),
                            e_t = tanh(W_d [d_t; c_t] + b)

Without feeding back and with an attention that writes nothing, no step depends on
what was read: the whole attention then runs after the scan, over all steps at once.

Readings of Mino et al.: the hidden states of all layers start at one shared affine
map of the last annotation (the text says "affine"), cells at 0. Equation 8 scores with
d_{j-1}, equation 5 uses d_j; with d_1 as the first state the former cannot be meant
for j = 1, so the current state is scored; ``score_state = previous`` is the option.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
from flax import struct

from kvnmt.attention import Attention, Moment
from kvnmt.decoder import base
from kvnmt.decoder.rounds import alignments, look_once
from kvnmt.decoder.start import Initial, affine_start, init_start
from kvnmt.encoder import Encoded
from kvnmt.fields import DEEPEST, EXTENDS, between
from kvnmt.initializers import Weights
from kvnmt.layers import (
    LSTM,
    Linear,
    init_linear,
    init_lstm,
    input_product,
    linear,
    lstm,
    precise,
    recurrent_inputs,
)
from kvnmt.typing import Array, Float, Key, PyTree, Sizes


@dataclass(frozen=True)
class Options(base.Options):
    """Static choices; the defaults are those of Mino et al. (2017)."""

    layers: Annotated[int, between(1, DEEPEST), EXTENDS] = 2
    initial: Initial = "last"  # what the first state is made from (s_0)
    score_state: Literal["current", "previous"] = "current"
    input_feeding: bool = False


@struct.dataclass
class Params:
    """The decoder."""

    initial: Linear | None
    layers: tuple[LSTM, ...]
    attention: PyTree
    attentional: Linear | None  # W_d, b of a decoder that feeds e_t back


@struct.dataclass
class Source:
    """Constants of a sentence."""

    start: Float[Array, "B D"]
    attention: PyTree


@struct.dataclass
class State:
    """Carried from step to step."""

    hidden: tuple[Float[Array, "B D"], ...]
    cells: tuple[Float[Array, "B D"], ...]
    fed: Float[Array, "B D"] | None  # e_{t-1}
    attention: PyTree


@struct.dataclass
class Inputs:
    """What a step takes of the previous word."""

    embedded: Float[Array, "*N E"]
    lowest: Float[Array, "*N 4*D"]  # W x + b of the lowest layer


def init(
    options: Options,
    attention: Attention,
    key: Key[Array, ""],
    sizes: Sizes,
    weights: Weights,
) -> Params:
    """Makes the parameters of the decoder and of its attention."""
    key_initial, key_attention, key_fed, *keys = jax.random.split(
        key, 3 + options.layers
    )
    D, fed = sizes.state, options.input_feeding
    below = [[sizes.embedding, D] if fed else [sizes.embedding]]
    below += [[D]] * (options.layers - 1)
    layers = tuple(init_lstm(k, n, D, weights) for k, n in zip(keys, below))
    read = [D, attention.context_size(sizes)]
    return Params(
        initial=init_start(key_initial, options.initial, attention, sizes, weights),
        layers=layers,
        attention=attention.init(key_attention, sizes, weights),
        attentional=init_linear(key_fed, read, D, weights) if fed else None,
    )


def prepare(
    options: Options, attention: Attention, params: Params, encoded: Encoded
) -> Source:
    """Prepares the attention and the start of all layers."""
    constants = attention.prepare(params.attention, encoded.annotations, encoded.mask)
    start = affine_start(
        params.initial,
        options.initial,
        encoded,
        attention,
        theta=params.attention,
        constants=constants,
    )
    return Source(start, constants)


def initial_state(
    options: Options,
    attention: Attention,
    params: Params,
    source: Source,
    length: int,
    key: Key[Array, "*B"] | None = None,
) -> State:
    """All layers at the same start, cells and e_0 at zero."""
    zeros = jnp.zeros_like(source.start)
    return State(
        hidden=(source.start,) * options.layers,
        cells=(precise(zeros),) * options.layers,  # sums over the whole target
        fed=zeros if options.input_feeding else None,
        attention=attention.initial_state(params.attention, source.attention),
    )


def inputs(params: Params, embedded: Float[Array, "*N E"]) -> Inputs:
    """Projects the embedded previous words for the lowest layer."""
    lowest = params.layers[0]
    return Inputs(embedded, input_product(lowest, 0, embedded) + lowest.b)


def step(
    options: Options,
    attention: Attention,
    params: Params,
    source: Source,
    state: State,
    inputs: Inputs,
) -> tuple[State, base.Features]:
    """One target word; the attention too, unless it can wait for the end."""
    hidden, cells = _advance(params, state, inputs)
    top, previous = hidden[-1], state.hidden[-1]
    query = top if options.score_state == "current" else previous
    moment = Moment(previous, inputs.embedded, query)
    if can_wait(options, attention):
        following = replace(state, hidden=hidden, cells=cells)
        return following, base.Features(top, waiting=moment)
    _, looked, memory = look_once(
        attention,
        params.attention,
        source.attention,
        state.attention,
        moment,
        lambda context: top,
    )
    shown = top
    if params.attentional is not None:
        shown = jnp.tanh(linear(params.attentional, top, looked.context))
    fed = shown if options.input_feeding else None
    features = base.Features(shown, looked.context, alignments(looked))
    return State(hidden, cells, fed, memory), features


def _advance(
    params: Params, state: State, inputs: Inputs
) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """New hidden states and cells, layer upon layer."""
    total = inputs.lowest
    if state.fed is not None:
        total = total + input_product(params.layers[0], 1, state.fed)
    hidden, cells = [], []
    stack = zip(params.layers, state.hidden, state.cells)
    for n, (layer, h, c) in enumerate(stack):
        h, c = lstm(layer, h, c, recurrent_inputs(layer, hidden[-1]) if n else total)
        hidden.append(h)
        cells.append(c)
    return tuple(hidden), tuple(cells)


def can_wait(options: Options, attention: Attention) -> bool:
    """Whether no step depends on what an earlier one has read."""
    return not options.input_feeding and attention.write is None


def attend(
    options: Options,
    attention: Attention,
    params: Params,
    source: Source,
    features: base.Features,
) -> base.Features:
    """Reads for all steps at once; a current state is scored after its dropout."""
    moments: Moment = features.waiting
    if options.score_state == "current":
        moments = replace(moments, query=features.state)
    memory = attention.initial_state(params.attention, source.attention)

    def read(moment: Moment) -> tuple[Array, tuple[Array, ...]]:
        looked = attention.read(params.attention, source.attention, memory, moment)
        return looked.context, alignments(looked)

    context, weights = jax.vmap(read, in_axes=1, out_axes=1)(moments)
    return replace(features, context=context, alignments=weights, waiting=None)


def build(options: Options, attention: Attention) -> base.Decoder:
    """The stacked LSTM around any attention, under the contract."""
    waits = can_wait(options, attention)
    return base.Decoder(
        init=partial(init, options, attention),
        prepare=partial(prepare, options, attention),
        initial_state=partial(initial_state, options, attention),
        inputs=inputs,
        step=partial(step, options, attention),
        feature_sizes=lambda sizes: {"context": attention.context_size(sizes)},
        attend=partial(attend, options, attention) if waits else None,
        state_reads=options.input_feeding,
    )
