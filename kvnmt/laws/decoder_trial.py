# SPDX-License-Identifier: Apache-2.0
"""A decoder at work on small random numbers, for laws to be tried on.

The decoder is built around an attention that writes: without writes all rounds but the
last would be idle. This attention uses all that a decoder is to hand on. The attention
itself is tried by other laws.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from kvnmt.attention import Attended, Attention, Moment
from kvnmt.decoder import Decoder, Features, features_over_time, whole_step
from kvnmt.encoder import Encoded
from kvnmt.laws.law import drawn, normal_numbers
from kvnmt.laws.trial import MASK, B, S
from kvnmt.typing import Array, Key, PyTree, Sizes

# Widths differ, so that a transposed or swapped matrix cannot fit.
SIZES = Sizes(embedding=9, encoder=4, annotation=8, state=12, alignment=6)
T = 4  # steps


class Trial(NamedTuple):
    """A decoder, what it works on, and its two compiled forms."""

    decoder: Decoder
    sizes: Sizes
    params: PyTree
    encoded: Encoded
    embedded: Array  # [B, T, E]; no word precedes the first
    at_once: Callable[..., Features]  # of params, encoded, embedded
    stepped: Callable[..., tuple[list[Features], list[PyTree]]]  # of length, too

    def course(self) -> Features:
        """What training computes with the arrays as they are."""
        return self.at_once(self.params, self.encoded, self.embedded)


def make_trial(decoder: Decoder, sizes: Sizes = SIZES) -> Trial:
    """Draws parameters, annotations and words, none of them tiny."""
    draw = normal_numbers(3)
    encoded = Encoded(
        annotations=draw((B, S, sizes.annotation)) * MASK[..., None],
        mask=jnp.asarray(MASK),
        backward_first=draw((B, sizes.encoder)),
        sizes=sizes,
    )
    return Trial(
        decoder=decoder,
        sizes=sizes,
        params=drawn(decoder.init, sizes),
        encoded=encoded,
        embedded=draw((B, T, sizes.embedding)).at[:, 0].set(0),
        at_once=jax.jit(partial(at_once, decoder)),
        stepped=jax.jit(partial(stepped, decoder), static_argnums=0),
    )


def heeding(attention: Attention) -> Attention:
    """An attention whose reads and writes depend on everything in a moment.

    Args:
        attention: One that writes.
    """
    assert (write := attention.write) is not None

    def read(params: PyTree, source: PyTree, state: PyTree, now: Moment) -> Attended:
        query = now.query * now.embedded[:, :1] + now.previous_state
        return attention.read(params, source, state, replace(now, query=query))

    def write_all(params: PyTree, source: PyTree, state: PyTree, now: Moment) -> PyTree:
        assert now.decoder_state is not None and now.attended is not None
        written = now.decoder_state + now.attended.context[:, :1]
        return write(params, source, state, replace(now, decoder_state=written))

    return attention._replace(read=read, write=write_all, explain=None)


def at_once(
    decoder: Decoder,
    params: PyTree,
    encoded: Encoded,
    embedded: Array,
    key: Key[Array, " B"] | None = None,
) -> Features:
    """Takes all words, as training does; with keys, which a decoder may draw from."""
    source = decoder.prepare(params, encoded)
    inputs = decoder.inputs(params, embedded)
    state = decoder.initial_state(params, source, embedded.shape[1], key)
    features = features_over_time(decoder, params, source, state, inputs, key)
    if decoder.attend is None:
        return features
    return decoder.attend(params, source, features)


def stepped(
    decoder: Decoder, length: int, params: PyTree, encoded: Encoded, embedded: Array
) -> tuple[list[Features], list[PyTree]]:
    """Takes word after word, as a search does: all features, and all States."""
    source = decoder.prepare(params, encoded)
    states, all_features = [decoder.initial_state(params, source, length)], []
    for t in range(embedded.shape[1]):
        state, features = whole_step(
            decoder, params, source, states[-1], decoder.inputs(params, embedded[:, t])
        )
        states.append(state)
        all_features.append(features)
    return all_features, states
