# SPDX-License-Identifier: Apache-2.0
"""R rounds of read, advance and write within one target step.

Any attention can be run in several rounds by any decoder that advances a state with
a context (Meng et al. 2018, section 3.2). Every parameter of the attention and of
the advancing cell belongs to one round, as the superscripts and the parameter counts
of that paper say; ``share_rounds`` ties them. The attention has one State for all
rounds, handed from each to the next and from the last to the next step. That State
is all that passes between rounds: around an attention that writes nothing, every
round but the last is idle and its parameters get no gradient.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
from flax import struct

from kvnmt.attention import Attended, Attention, Moment
from kvnmt.decoder import base
from kvnmt.decoder.start import Initial, affine_start
from kvnmt.encoder import Encoded
from kvnmt.errors import UserError
from kvnmt.initializers import Weights
from kvnmt.layers import GRU, Linear, init_gru
from kvnmt.typing import Array, Float, Key, PyTree, Sizes


@dataclass(frozen=True)
class RoundOptions(base.Options):
    """Static choices of every decoder with rounds."""

    rounds: int = 1  # R
    share_rounds: bool = False
    initial: Initial = "mean"  # s_0

    def own(self, r: int) -> int:
        """The place of the parameters of round r."""
        return 0 if self.share_rounds else r


@struct.dataclass
class Round:
    """Parameters of one round."""

    attention: PyTree
    advance: GRU  # GRU2 of the conditional decoder


@struct.dataclass
class Source:
    """Constants of a sentence."""

    start: Float[Array, "B D"]  # s_0
    rounds: tuple[PyTree, ...]  # the attention's Source, one per round


@struct.dataclass
class Looked:
    """What the rounds of one step give."""

    state: Float[Array, "B D"]  # s^R
    attended: Attended  # of the last round
    memory: PyTree  # the attention's State
    alignments: tuple[Float[Array, "B S"], ...]


def init_rounds(
    options: RoundOptions,
    attention: Attention,
    key: Key[Array, ""],
    sizes: Sizes,
    weights: Weights,
    further: Sequence[int] = (),
) -> tuple[Round, ...]:
    """Makes every round; the advancing GRU takes the context, then what is further.

    The context comes first in every decoder, so that a warm start finds it.

    Raises:
        UserError: There is no round.
    """
    widths = [attention.context_size(sizes), *further]

    def init_round(key: Key[Array, ""]) -> Round:
        key_attention, key_advance = jax.random.split(key)
        return Round(
            attention=attention.init(key_attention, sizes, weights),
            advance=init_gru(key_advance, widths, sizes.state, weights),
        )

    if options.rounds < 1:
        raise UserError(f"a decoder needs at least one round, not {options.rounds}.")
    count = 1 if options.share_rounds else options.rounds
    return tuple(init_round(k) for k in jax.random.split(key, count))


def prepare_rounds(
    options: RoundOptions,
    attention: Attention,
    initial: Linear | None,
    rounds: tuple[Round, ...],
    embedding: int,
    encoded: Encoded,
) -> Source:
    """Prepares the attention of every round, and s_0."""
    constants = tuple(
        attention.prepare(r.attention, encoded.annotations, encoded.mask)
        for r in rounds
    )
    start = affine_start(
        *(initial, options.initial, encoded, attention),
        *(rounds[0].attention, constants[0]),
        (rounds[0].advance.U.shape[0], embedding),
    )
    return Source(jnp.tanh(start), constants)


def look(
    options: RoundOptions,
    attention: Attention,
    rounds: tuple[Round, ...],
    sources: tuple[PyTree, ...],
    memory: PyTree,
    moment: Moment,
    advance: Callable[[GRU, int, Array], Array],
) -> Looked:
    """Reads, advances and writes R times.

    Args:
        options: How many rounds, shared or not.
        attention: The mechanism.
        rounds: Parameters of the rounds.
        sources: The mechanism's Source of each.
        memory: The mechanism's State.
        moment: What is known before the first look.
        advance: ``(cell, place of the round's parameters, context) -> s^r``.
    """
    alignments = []
    for r in range(options.rounds):
        own = options.own(r)
        theta, constants = rounds[own], sources[own]
        attended = attention.read(theta.attention, constants, memory, moment)
        state = advance(theta.advance, own, attended.context)
        after = replace(moment, decoder_state=state, attended=attended)
        memory = attention.write(theta.attention, constants, memory, after)
        if attended.alignment is not None:
            alignments.append(attended.alignment)
    return Looked(state, attended, memory, tuple(alignments))
