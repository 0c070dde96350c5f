# SPDX-License-Identifier: Apache-2.0
"""What the conditional decoder shares with those around it: GRU1 and GRU2.

GRU1 makes the query ``q_t`` from a state and the previous word; in every round GRU2
advances from ``q_t`` (Meng et al. 2018, equations 6 and 9).
"""

from dataclasses import dataclass

from flax import struct

from kvnmt.decoder.rounds import Advance, Params, RoundOptions
from kvnmt.layers import GRU, Reset, gru, recurrent_inputs
from kvnmt.typing import Array, Float


@dataclass(frozen=True)
class QueryOptions(RoundOptions):
    """Static choices of every decoder with both."""

    reset: Reset = "after"  # reset gate of GRU2; dl4mt's code has ``after_bias``


@struct.dataclass
class Inputs:
    """What a step takes of the previous word."""

    embedded: Float[Array, "*N E"]
    query: Float[Array, "*N 3*D"]  # W x + b of GRU1


def inputs(params: Params, embedded: Float[Array, "*N E"]) -> Inputs:
    """Projects the embedded previous words for GRU1."""
    return Inputs(embedded, recurrent_inputs(params.query, embedded))


def from_query(options: QueryOptions, query: Float[Array, "B D"]) -> Advance:
    """How GRU2 advances: in every round from q_t (9)."""

    def advance(cell: GRU, place: int, context: Array) -> Array:
        return gru(cell, query, recurrent_inputs(cell, context), options.reset)

    return advance
