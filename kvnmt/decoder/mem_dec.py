# SPDX-License-Identifier: Apache-2.0
"""MemDec, the decoder with an external memory matrix.

M. Wang, Z. Lu, H. Li, Q. Liu (2016), "Memory-enhanced Decoder for Neural Machine
Translation", section 3, equations 4 to 15. The formulas come from memory and from the
code of others: they are missing in the text at hand.

=============  ==============================================================
parameters     initial state, query, per round: attention and GRU; memory:
               W_a, U_a, v, w_g, W_ers, W_add, W_ini
source         s_0, the start of the memory; the attention's, one per round
state, carried s [B, D], memory [B, M, D], reading weights [B, M], the
               attention's State
result         state, context and every round's alignment
=============  ==============================================================

::

    r_t   = sum_i w_t(i) M_{t-1}(i)                                       (4)
    q_t   = tanh(W_r r_t + W_y x_t)                                       (5)
    c_t   = read(q_t)                                                     (6)
    s_t   = GRU(r_t, [x_t; c_t])                                          (7)
    M_t(i) = M_{t-1}(i) (1 - w(i) erase) + w(i) add                       (8, 13)
             erase = sig(W_ers s_t)      add = sig(W_add s_t)
    w     = g w_{t-1} + (1 - g) softmax_i(v . tanh(W_a M(i) + U_a s))     (10 to 12)
            g = sig(w_g . s)
    M_0(i) = tanh(W_ini mean_j(h_j)) + noise_i                            (14, 15)

Readings of the paper:

* *Score.* It prints no tanh. Then U_a s is the same for every cell, cancels in the
  softmax, and the state never addresses: ``score = linear`` is that formula.
* *State of equation 7.* The text combines r_t, x_t and c_t only, so r_t takes the
  seat of s_{t-1}, and every weight of a trained RNNsearch* fits;
  ``seat = state_and_read`` is ``GRU(s_{t-1}, [x_t; c_t; r_t])``.
* *Read and write share their weights* "for the same vector state". ``shared``: one w
  from (s_t, M_{t-1}, w_{t-1}) writes now and reads next. ``recomputed``: the same w
  writes, and one from (s_t, M_t, w_{t-1}) reads next. ``reused``: what has just read
  writes, and w from (s_t, M_t, w_{t-1}) reads next. w_0 is uniform.
* *Noise* N(0, 0.1²): the paper may mean the variance. Cells that start equal stay
  equal for ever, so it decides whether there is more than one cell. Drawn anew for
  each sentence in training; without a key, one constant draw for all sentences and
  hypotheses, so that neither batching nor the beam changes a translation.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
from flax import struct

from kvnmt.attention import Attention, Moment
from kvnmt.decoder import base, rounds
from kvnmt.decoder.rounds import RoundOptions, look
from kvnmt.decoder.start import init_start
from kvnmt.decoder.word_gru import Inputs, Query, from_state, inputs, tanh_query
from kvnmt.encoder import Encoded
from kvnmt.fields import EXTENDS, WIDEST, at_least, between
from kvnmt.initializers import Weights
from kvnmt.layers import draw, masked_mean, precise
from kvnmt.typing import Array, Float, Key, Sizes


@dataclass(frozen=True)
class Options(RoundOptions):
    """Static choices; the defaults are our reading of the paper."""

    reset = "after"  # of its GRUs, for a warm start; no choice

    slots: Annotated[int, between(1, WIDEST), EXTENDS] = 8  # M
    noise: Annotated[float, at_least(0), EXTENDS] = 0.1  # standard deviation
    score: Literal["tanh", "linear"] = "tanh"
    seat: Literal["read", "state_and_read"] = "read"
    weights: Literal["shared", "recomputed", "reused"] = "shared"


@struct.dataclass
class Memory:
    """Addressing, writing and start of the memory, without biases."""

    W_cell: Float[Array, "D D"]  # W_a
    U_state: Float[Array, "D D"]  # U_a
    v: Float[Array, " D"]
    gate: Float[Array, " D"]  # w_g
    erase: Float[Array, "D D"]  # W_ers
    add: Float[Array, "D D"]  # W_add
    initial: Float[Array, "C D"]  # W_ini


@struct.dataclass
class Params(rounds.Params):
    """The decoder."""

    memory: Memory


@struct.dataclass
class Source(rounds.Source):
    """Constants of a sentence."""

    cell: Float[Array, "B D"]  # tanh(W_ini mean_j(h_j))


@struct.dataclass
class State(rounds.State):
    """Carried from step to step."""

    cells: Float[Array, "B M D"]
    reading: Float[Array, "B M"]  # weights w of the next read


def init(
    options: Options,
    attention: Attention,
    key: Key[Array, ""],
    sizes: Sizes,
    weights: Weights,
) -> Params:
    """Makes the parameters of the decoder, its memory and its attention."""
    keys = iter(jax.random.split(key, 11))
    C, D, E = sizes.annotation, sizes.state, sizes.embedding

    def matrix(rows: int) -> Array:
        return weights.matrix(next(keys), (rows, D), jnp.float32)

    def vector() -> Array:
        return weights.energy(next(keys), (D, 1), jnp.float32)[:, 0]

    further = [D] if options.seat == "state_and_read" else []
    return Params(
        initial=init_start(next(keys), options.initial, attention, sizes, weights),
        query=Query(matrix(D), matrix(E)),  # W_r, W_y
        rounds=rounds.init_rounds(
            options, attention, next(keys), sizes, weights, [E, *further]
        ),
        memory=Memory(
            W_cell=matrix(D),
            U_state=matrix(D),
            v=vector(),
            gate=vector(),
            erase=matrix(D),
            add=matrix(D),
            initial=matrix(C),
        ),
    )


def prepare(
    options: Options, attention: Attention, params: Params, encoded: Encoded
) -> Source:
    """Prepares the attention of every round, s_0 and what the memory starts as."""
    common = rounds.prepare(options, attention, params, encoded)
    mean = masked_mean(encoded.annotations, encoded.mask)
    cell = jnp.tanh(mean @ params.memory.initial)  # (15)
    return Source(common.start, common.rounds, cell)


def initial_state(
    options: Options,
    attention: Attention,
    params: Params,
    source: Source,
    length: int,
    key: Key[Array, "*B"] | None = None,
) -> State:
    """The memory with its noise (14), and the weights of the first read."""
    rows, width = source.cell.shape
    if key is None:
        noise = fixed_noise(options.slots, width)[None]
    else:
        noise = draw(key, jax.random.normal, (rows, options.slots, width))
    start = precise(source.cell)
    cells = start[:, None, :] + options.noise * noise.astype(start.dtype)
    uniform = jnp.full((rows, options.slots), 1 / options.slots, cells.dtype)
    common = rounds.initial_state(options, attention, params, source, length)
    return State(
        state=common.state,
        attention=common.attention,
        cells=cells,
        reading=_address(options, params.memory, cells, common.state, uniform),
    )


def fixed_noise(slots: int, width: int) -> Float[Array, "M D"]:
    """The draw of N(0, 1) that stands in where no key is given.

    It is always the same, whatever generator JAX is told to use. It is computed by
    itself: as a part of other programs its last bits would differ
    from one to the next.
    """
    with jax.ensure_compile_time_eval():
        key = jax.random.key(2016, impl="threefry2x32")
        return jax.random.normal(key, (slots, width), jnp.float32)


def step(
    options: Options,
    attention: Attention,
    params: Params,
    source: Source,
    state: State,
    inputs: Inputs,
) -> tuple[State, base.Features]:
    """One target word: read the memory, look at the source, advance, write."""
    read = jnp.einsum("bm,bmd->bd", state.reading, state.cells)  # (4)
    read = read.astype(state.state.dtype)
    query = tanh_query(params.query, read, inputs)  # (5)
    if options.seat == "read":
        seat, further = read, ()
    else:
        seat, further = state.state, (read,)
    moment = Moment(seat, inputs.embedded, query)
    advance = from_state(seat, inputs.advance, "after", *further)  # (7)
    new, features = look(
        options, attention, params, source, state.attention, moment, advance
    )
    cells, reading = _write(options, params.memory, state, new.state)
    return State(new.state, new.attention, cells, reading), features


def _write(
    options: Options, params: Memory, state: State, new: Float[Array, "B D"]
) -> tuple[Float[Array, "B M D"], Float[Array, "B M"]]:
    """The next memory (8, 13) and the weights that read it (10 to 12)."""
    writing = state.reading
    if options.weights != "reused":
        writing = _address(options, params, state.cells, new, state.reading)
    erase = precise(jax.nn.sigmoid(new @ params.erase))[:, None, :]
    add = precise(jax.nn.sigmoid(new @ params.add))[:, None, :]
    slots = writing[..., None]  # [B, M, 1]
    cells = state.cells * (1 - slots * erase) + slots * add
    if options.weights == "shared":
        return cells, writing
    return cells, _address(options, params, cells, new, state.reading)


def _address(
    options: Options,
    params: Memory,
    cells: Float[Array, "B M D"],
    state: Float[Array, "B D"],
    before: Float[Array, "B M"],
) -> Float[Array, "B M"]:
    """Content addressing, mixed with the weights before (10 to 12)."""
    hidden = (
        cells.astype(params.W_cell.dtype) @ params.W_cell
        + (state @ params.U_state)[:, None, :]
    )
    hidden = jnp.tanh(hidden) if options.score == "tanh" else hidden
    content = jax.nn.softmax(precise(hidden @ params.v), axis=-1)
    # The weights are a memory, too: with a gate near 1 they move by little.
    keep = jax.nn.sigmoid(precise(state @ params.gate))[:, None]
    return keep * before + (1 - keep) * content


def build(options: Options, attention: Attention) -> base.Decoder:
    """MemDec around any attention, under the contract."""
    return rounds.decoder(
        options, attention, init, inputs, step, prepare, initial_state
    )
