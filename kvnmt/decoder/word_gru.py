# SPDX-License-Identifier: Apache-2.0
"""What decoders without GRU1 share: a GRU that takes the previous word itself.

In every round the GRU advances from the same state, with the context, the word and
what a decoder adds (Bahdanau et al. 2015, section A.2; Wang et al. 2016, equation 7).
"""

import jax.numpy as jnp
from flax import struct

from kvnmt.decoder import rounds
from kvnmt.decoder.rounds import Advance
from kvnmt.layers import GRU, Reset, gru, input_product
from kvnmt.typing import Array, Float


@struct.dataclass
class Query:
    """The tanh form's matrices; its paper prints no bias."""

    W_state: Float[Array, "D D"]  # W_q
    W_word: Float[Array, "E D"]  # W_e


@struct.dataclass
class Inputs:
    """What a step takes of the previous word."""

    embedded: Float[Array, "*N E"]
    query: Float[Array, "*N D"] | None  # W_e x
    advance: tuple[Float[Array, "*N 3*D"], ...]  # W x + b of each round's GRU


def inputs(params: rounds.Params, embedded: Float[Array, "*N E"]) -> Inputs:
    """Projects the embedded previous words for the query and the GRU of each round."""
    query = None if params.query is None else embedded @ params.query.W_word
    cells = [r.advance for r in params.rounds]  # the word is their second input
    words = tuple(input_product(cell, 1, embedded) + cell.b for cell in cells)
    return Inputs(embedded, query, words)


def tanh_query(
    params: Query, state: Float[Array, "B D"], inputs: Inputs
) -> Float[Array, "B D"]:
    """``tanh(W_q s + W_e x)``."""
    assert inputs.query is not None
    return jnp.tanh(state @ params.W_state + inputs.query)


def from_state(
    state: Float[Array, "B D"],
    words: tuple[Float[Array, "B 3*D"], ...],
    reset: Reset,
    *further: Float[Array, "B _"],
) -> Advance:
    """How the GRU advances: in every round from the same state.

    Args:
        state: Of the step before.
        words: What `inputs` made of the previous word for the GRU of each round.
        reset: Of the GRU.
        further: What the GRU takes behind the context and the word.
    """

    def advance(cell: GRU, place: int, context: Array) -> Array:
        total = words[place] + input_product(cell, 0, context)
        for n, x in enumerate(further, 2):
            total = total + input_product(cell, n, x)
        return gru(cell, state, total, reset)

    return advance
