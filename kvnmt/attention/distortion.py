# SPDX-License-Identifier: Apache-2.0
"""Distortion: the last alignment, moved, takes part in the new one.

J. Zhang, M. Wang, Q. Liu, J. Zhou (2017), "Incorporating Word Reordering Knowledge
into Attention-based Neural Machine Translation".

=============  ==============================================================
parameters     v, W, U, b; W_p, b_p: (2L + 1)(width + 1) numbers
source         annotations, mask, projected keys
state, carried the last final alignment [B, S], of ``source`` the last context
               [B, C], and whether there was one [B]
result         context ``sum_j f_j h_j``, the final alignment f
=============  ==============================================================

::

    P   = softmax(W_p z + b_p)  over moves k = -L..L
    dis_j = sum_k P(k) f_{t-1, j-k}                     k > 0 moves to the right
    f   = lambda dis + (1 - lambda) a                   a: additive attention

The context z is the last source context c_{t-1} (``source``, S-Distortion), the
previous word x_t (``target``, T-Distortion) or the query q_t (``hidden``,
H-Distortion; the paper's intermediate state, which already contains y_{t-1}).

Readings: nothing precedes the first word, so there f = a rather than a mixture that
sums to 1 - lambda. Mass moved over an edge is lost, so f may sum to less than 1:
literal by default; ``renormalise`` divides dis or f by its sum. With several rounds
in a step, the round before plays the part of the last word.
"""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
from flax import struct

from kvnmt.attention import address, base
from kvnmt.attention.address import Source, init_address, prepare, read_values
from kvnmt.fields import DEEPEST, EXTENDS, between, idle_while
from kvnmt.initializers import Weights
from kvnmt.layers import Linear, init_linear, linear, precise, shares
from kvnmt.typing import Array, Bool, Float, Key, Sizes, typed

_MOVES = idle_while(weight=0)


@dataclass(frozen=True)
class Options(base.Options):
    """Static choices; the defaults are H-Distortion."""

    context: Annotated[Literal["source", "target", "hidden"], _MOVES] = "hidden"
    window: Annotated[int, between(0, DEEPEST), EXTENDS, _MOVES] = 3  # L
    weight: Annotated[float, between(0, 1)] = 0.5  # lambda
    renormalise: Annotated[Literal["none", "distortion", "final"], _MOVES] = "none"


@struct.dataclass
class Params(address.Params):
    """One round."""

    moves: Linear  # W_p, b_p


@struct.dataclass
class State:
    """Carried from step to step."""

    alignment: Float[Array, "B S"]
    context: Float[Array, "B C"] | None  # of ``source`` alone
    begun: Bool[Array, " B"]  # an alignment whose mass all went over an edge is 0, too


def init(
    options: Options, key: Key[Array, ""], sizes: Sizes, weights: Weights
) -> Params:
    """Makes the parameters of one round."""
    key_address, key_moves = jax.random.split(key)
    C, D = sizes.annotation, sizes.state
    width = {"source": C, "target": sizes.embedding, "hidden": D}[options.context]
    count = 2 * options.window + 1
    return Params(
        address=init_address(key_address, D, C, sizes.alignment, weights),
        moves=init_linear(key_moves, [width], count, weights),
    )


def initial_state(options: Options, params: Params, source: Source) -> State:
    """Nothing was looked at yet."""
    remembers = options.context == "source"
    return State(
        jnp.zeros_like(source.annotations[..., 0]),
        jnp.zeros_like(source.annotations[:, 0]) if remembers else None,
        jnp.zeros_like(source.mask[:, 0]),
    )


def read(
    options: Options,
    params: Params,
    source: Source,
    state: State,
    moment: base.Moment,
) -> base.Attended:
    """Mixes the addressed with the moved alignment and reads the annotations."""
    keys = source.projected_keys
    content = address.address(params.address, moment.query, keys, source.mask)
    z = {
        "source": state.context,
        "target": moment.embedded,
        "hidden": moment.query,
    }[options.context]
    moves = linear(params.moves, z)
    chances = jax.nn.softmax(precise(moves), axis=-1).astype(moves.dtype)
    moved = jnp.where(source.mask, move(state.alignment, chances), 0)
    if options.renormalise == "distortion":
        moved = shares(moved)
    final = options.weight * moved + (1 - options.weight) * content
    if options.renormalise == "final":
        final = shares(final)
    final = jnp.where(state.begun[:, None], final, content)
    return base.Attended(read_values(final, source.annotations), final)


def write(params: Params, source: Source, state: State, moment: base.Moment) -> State:
    """Remembers where and what was read."""
    assert moment.attended is not None, base.NO_LOOK
    assert moment.attended.alignment is not None
    context = None if state.context is None else moment.attended.context
    return State(moment.attended.alignment, context, jnp.ones_like(state.begun))


@typed
def move(
    alignment: Float[Array, "B S"], chances: Float[Array, "B M"]
) -> Float[Array, "B S"]:
    """``sum_k P(k) a_{j-k}``: every move k of -L..L with its chance."""
    S, count = alignment.shape[1], chances.shape[1]
    L = count // 2
    wide = jnp.pad(alignment, ((0, 0), (L, L)))
    shifted = [wide[:, L - k : L - k + S] for k in range(-L, L + 1)]
    return jnp.einsum("bm,mbs->bs", chances, jnp.stack(shifted))


def build(options: Options) -> base.Attention:
    """Distortion under the contract."""
    return base.Attention(
        init=partial(init, options),
        prepare=prepare,
        read=partial(read, options),
        initial_state=partial(initial_state, options),
        write=write,
    )
