# SPDX-License-Identifier: Apache-2.0
"""How a layer without recurrence looks at the source: at one word, or at all at once.

::

    for r = 1..R:
        c^r, a^r = read(LN(h_t))
        h_t      = h_t + W_c^r c^r
        write(h_t)

Every parameter belongs to one round. What an attention may know of the word before,
s_{t-1}, is h_{t-1} as it came to the look, 0 at first: so nothing but a write is
recurrent, and a look that writes nothing is one computation for all words.

Departure from Meng et al. (2018), whose rounds all read with the query of the first: a
round is a part of its layer like any other and reads with what the one before has made.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from kvnmt.attention import Attention, Moment
from kvnmt.decoder.base import scanned
from kvnmt.decoder.rounds import alignments, look_once
from kvnmt.encoder import Encoded
from kvnmt.initializers import Weights
from kvnmt.layers import (
    LayerNorm,
    Scanning,
    dropout,
    init_layer_norm,
    layer_norm,
    split_key,
)
from kvnmt.typing import Array, Float, Key, PyTree, Sizes


class Look(NamedTuple):
    """With which attention, and in how many rounds."""

    attention: Attention
    rounds: int


@struct.dataclass
class Round:
    """Parameters of one round."""

    norm: LayerNorm
    attention: PyTree
    W_context: Float[Array, "_ D"]  # W_c


@struct.dataclass
class Now:
    """What a look takes of a step."""

    h: Float[Array, "*N D"]
    before: Float[Array, "*N D"]  # of the step before
    embedded: Float[Array, "*N E"]
    drop: tuple[Float[Array, "*N D"] | None, ...]  # times what each round adds; None: 1


@struct.dataclass
class Looked:
    """What a look gives."""

    h: Float[Array, "*N D"]
    context: Float[Array, "*N _"]  # of the last round
    alignments: tuple[Float[Array, "*N S"], ...]


def init_rounds(
    look: Look, key: Key[Array, ""], sizes: Sizes, weights: Weights
) -> tuple[Round, ...]:
    """Makes every round."""

    def init_round(key: Key[Array, ""]) -> Round:
        key_attention, key_context = jax.random.split(key)
        shape = look.attention.context_size(sizes), sizes.state
        return Round(
            norm=init_layer_norm(sizes.state),
            attention=look.attention.init(key_attention, sizes, weights),
            W_context=weights.matrix(key_context, shape, jnp.float32),
        )

    return tuple(init_round(k) for k in jax.random.split(key, look.rounds))


def prepare(
    look: Look, rounds: Sequence[Round], encoded: Encoded
) -> tuple[PyTree, ...]:
    """The attention's Source, one per round."""
    annotations, mask = encoded.annotations, encoded.mask
    return tuple(look.attention.prepare(r.attention, annotations, mask) for r in rounds)


def look_at(
    look: Look,
    rounds: Sequence[Round],
    constants: Sequence[PyTree],
    memory: PyTree,
    now: Now,
) -> tuple[PyTree, Looked]:
    """Reads, adds and writes R times at one word; returns the attention's State too."""
    h, looks = now.h, []
    for theta, constant, drop in zip(rounds, constants, now.drop, strict=True):
        moment = Moment(now.before, now.embedded, layer_norm(theta.norm, h))
        h, attended, memory = look_once(
            look.attention,
            theta.attention,
            constant,
            memory,
            moment,
            partial(_add, theta.W_context, drop, h),
        )
        looks.append(attended)
    return memory, Looked(h, looks[-1].context, alignments(*looks))


def look_over_time(
    look: Look,
    rounds: Sequence[Round],
    constants: Sequence[PyTree],
    memory: PyTree,
    h: Float[Array, "B T D"],
    embedded: Float[Array, "B T E"],
    rate: float,
    key: Key[Array, "*B"] | None,
    scanning: Scanning,
) -> Looked:
    """As `look_at` for all words: at once, or one after the other if it writes."""
    before = jnp.pad(h, ((0, 0), (1, 0), (0, 0)))[:, :-1]
    drop = tuple(
        None if k is None or not rate else dropout(k, rate, jnp.ones_like(h))
        for k in split_key(key, look.rounds)
    )
    now, run = Now(h, before, embedded, drop), partial(look_at, look, rounds, constants)
    if look.attention.write is not None:
        return scanned(run, memory, now, scanning)
    at_once = jax.vmap(partial(run, memory), in_axes=1, out_axes=(None, 1))
    return at_once(now)[1]


def _add(
    W: Float[Array, "_ D"],
    drop: Float[Array, "B D"] | None,
    h: Float[Array, "B D"],
    context: Float[Array, "B _"],
) -> Float[Array, "B D"]:
    added = context @ W
    return h + (added if drop is None else added * drop)
