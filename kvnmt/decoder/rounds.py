# SPDX-License-Identifier: Apache-2.0
"""R rounds of read, advance and write within one target step.

Any attention can be run in several rounds by any decoder that advances a state with
a context (Meng et al. 2018, section 3). Every parameter of the attention and of
the advancing cell belongs to one round, as the superscripts and the parameter counts
of that paper say; ``share_rounds`` ties them. The attention has one State for all
rounds, handed from each to the next and from the last to the next step. That State
is all that passes between rounds: around an attention that writes nothing, every
round but the last is idle and its parameters get no gradient.

The state that a round has advanced may go through further GRUs that read nothing but
it: the deep transitions of R. Pascanu et al. (2014), in this place of A. V. Miceli
Barone et al. (2017), "Deep Architectures for Neural Machine Translation". What an
attention writes is then made of the last of them.

Names for a warm start. Decoders with rounds hold the map of s_0 under ``initial``, what
makes the query under ``query`` and their rounds under ``rounds``, so that a trained
one starts another that extends it (`kvnmt.runs.warm_start`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, TypeAlias

import jax
import jax.numpy as jnp
from flax import struct

from kvnmt.attention import Attended, Attention, Moment
from kvnmt.decoder import base
from kvnmt.decoder.start import Initial, affine_start
from kvnmt.encoder import Encoded
from kvnmt.fields import DEEPEST, EXTENDS, between, idle_while
from kvnmt.initializers import Weights
from kvnmt.layers import GRU, Linear, gru, init_gru
from kvnmt.typing import Array, Float, Key, PyTree, Sizes


@dataclass(frozen=True)
class RoundOptions(base.Options):
    """Static choices of every decoder with rounds."""

    # rounds of attention for each target word (R)
    rounds: Annotated[int, between(1, DEEPEST), EXTENDS] = 1
    # all rounds have the same parameters
    share_rounds: Annotated[bool, EXTENDS, idle_while(rounds=1)] = False
    # further GRUs of each round; they read only the state that the round advanced, and
    # their reset gate acts after the product
    transitions: Annotated[int, between(0, DEEPEST), EXTENDS] = 0
    initial: Initial = "mean"  # what the first state is made from (s_0)


@struct.dataclass
class Round:
    """Parameters of one round."""

    attention: PyTree
    advance: GRU  # GRU2 of the conditional decoder
    transitions: tuple[GRU, ...] = ()  # without input


@struct.dataclass
class Params:
    """What most decoders with rounds begin with."""

    initial: Linear | None  # W_init, b
    query: PyTree  # what makes q_t: GRU1 or a `Query`; None: q_t is s_{t-1}
    rounds: tuple[Round, ...]  # one member if they are shared


@struct.dataclass
class Source:
    """Constants of a sentence."""

    start: Float[Array, "B D"]  # s_0
    rounds: tuple[PyTree, ...]  # the attention's Source, one per round


@struct.dataclass
class State:
    """Carried from step to step."""

    state: Float[Array, "B D"]
    attention: PyTree  # the attention's State


# (GRU of the round, place of its parameters, c^r) -> s^r
Advance: TypeAlias = Callable[[GRU, int, Array], Array]


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
    """
    widths = [attention.context_size(sizes), *further]

    def init_round(key: Key[Array, ""]) -> Round:
        key_attention, key_advance = jax.random.split(key)
        # They differ from the keys that `init_gru` splits the same key into.
        numbers = range(1000, 1000 + options.transitions)
        others = [jax.random.fold_in(key_advance, n) for n in numbers]
        return Round(
            attention=attention.init(key_attention, sizes, weights),
            advance=init_gru(key_advance, widths, sizes.state, weights),
            transitions=tuple(init_gru(k, [], sizes.state, weights) for k in others),
        )

    count = 1 if options.share_rounds else options.rounds
    return tuple(init_round(k) for k in jax.random.split(key, count))


def prepare(
    options: RoundOptions, attention: Attention, params: Params, encoded: Encoded
) -> Source:
    """Prepares the attention of every round, and s_0."""
    constants = tuple(
        attention.prepare(r.attention, encoded.annotations, encoded.mask)
        for r in params.rounds
    )
    start = affine_start(
        params.initial,
        options.initial,
        encoded,
        attention,
        theta=params.rounds[0].attention,
        constants=constants[0],
    )
    return Source(jnp.tanh(start), constants)


def initial_state(
    options: RoundOptions,
    attention: Attention,
    params: Params,
    source: Source,
    length: int,
    key: Key[Array, "*B"] | None = None,
) -> State:
    """``s_0``, and the attention's State from the first round."""
    memory = attention.initial_state(params.rounds[0].attention, source.rounds[0])
    return State(source.start, memory)


def look(
    options: RoundOptions,
    attention: Attention,
    params: Params,
    source: Source,
    memory: PyTree,
    moment: Moment,
    advance: Advance,
) -> tuple[State, base.Features]:
    """Reads, advances and writes R times; gives s^R, c^R and every alignment.

    Args:
        options: How many rounds, shared or not.
        attention: The mechanism.
        params: The decoder's.
        source: Its Source.
        memory: The mechanism's State.
        moment: What is known before the first look.
        advance: How the state moves with a context.
    """
    looks = []
    for r in range(options.rounds):
        place = 0 if options.share_rounds else r
        theta = params.rounds[place]
        state, attended, memory = look_once(
            attention,
            theta.attention,
            source.rounds[place],
            memory,
            moment,
            partial(_move, advance, theta, place),
        )
        looks.append(attended)
    features = base.Features(state, attended.context, alignments(*looks))
    return State(state, memory), features


def _move(advance: Advance, theta: Round, place: int, context: Array) -> Array:
    """Advances with a context, then by itself."""
    state = advance(theta.advance, place, context)
    for cell in theta.transitions:
        state = gru(cell, state, jnp.broadcast_to(cell.b, (len(state), len(cell.b))))
    return state


def look_once(
    attention: Attention,
    theta: PyTree,
    constants: PyTree,
    memory: PyTree,
    moment: Moment,
    advance: Callable[[Array], Array],
) -> tuple[Array, Attended, PyTree]:
    """Reads, advances with the context and writes, where anything is written."""
    attended = attention.read(theta, constants, memory, moment)
    state = advance(attended.context)
    if attention.write is not None:
        after = replace(moment, decoder_state=state, attended=attended)
        memory = attention.write(theta, constants, memory, after)
    return state, attended, memory


def alignments(*looks: Attended) -> tuple[Float[Array, "B S"], ...]:
    """The alignments of all looks that have one."""
    return tuple(a.alignment for a in looks if a.alignment is not None)


def decoder(
    options: RoundOptions,
    attention: Attention,
    init: Callable[..., Any],
    inputs: base.Inputs,
    step: Callable[..., Any],
    prepare: Callable[..., Any] = prepare,
    initial_state: Callable[..., Any] = initial_state,
) -> base.Decoder:
    """A decoder of functions that take its options and its attention first."""
    return base.Decoder(
        init=partial(init, options, attention),
        prepare=partial(prepare, options, attention),
        initial_state=partial(initial_state, options, attention),
        inputs=inputs,
        step=partial(step, options, attention),
        feature_sizes=lambda sizes: {"context": attention.context_size(sizes)},
        rounds_need_writes=True,
    )
