# SPDX-License-Identifier: Apache-2.0
"""A step of a search: what a model predicts, what may be written, what is rewarded."""

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp

from kvnmt.data.vocabulary import EOS, PAD, UNK
from kvnmt.errors import OptionError
from kvnmt.inference.config import Number, Shape
from kvnmt.model.assembly import Model, Params
from kvnmt.search import Words, last_tokens, normalise, repeating
from kvnmt.typing import Array, Bool, Float, Int, PyTree

LEAST_COVERED = 1e-6  # attention that a word counts as having had, at least


class Source(NamedTuple):
    """What is constant for a sentence."""

    model: PyTree
    words: Bool[Array, "B S"]  # real words, EOS not among them
    limits: Int[Array, " B"]
    prefix: Int[Array, "B P"] | None


def initial_state(
    model: Model, shape: Shape, params: Params, source: Source, length: int
) -> dict[str, PyTree]:
    """The state of every hypothesis before its first word, leaves [B, K, ...]."""
    state: dict[str, PyTree] = {
        "model": model.initial_state(params, source.model, length)
    }
    if shape.covered:
        state["covered"] = jnp.zeros(source.words.shape)
    return jax.tree.map(
        lambda leaf: jnp.repeat(leaf[:, None], shape.width, axis=1), state
    )


def step(
    model: Model,
    shape: Shape,
    params: Params,
    minimum: Number,
    source: Source,
    state: dict[str, PyTree],
    written: Int[Array, "B K T"],
    t: Int[Array, ""],
) -> tuple[dict[str, PyTree], Words]:
    """One word further: the next state, and the words that may follow.

    Args:
        model: The functions.
        shape: What is static of the search.
        params: The arrays.
        minimum: Fewest words of a translation.
        source: What is constant.
        state: Of every hypothesis.
        written: Its words so far.
        t: How many it has.

    Raises:
        OptionError: Coverage is to be scored where nothing is aligned.
    """

    # Mapped over the beam, with one copy of the constants for all hypotheses.
    def advance(state: PyTree, tokens: Array) -> tuple[PyTree, Array, PyTree]:
        new, prediction = model.step(params, source.model, state, tokens)
        return new, prediction.logits, prediction.features.alignments[-1:]

    each = jax.vmap(advance, in_axes=1, out_axes=1)
    last = last_tokens(written, t, PAD)
    inner, logits, alignments = each(state["model"], last)
    new = state | {"model": inner}
    if shape.covered:
        new["covered"] = state["covered"] + _last(alignments)
    words = _words(logits, source, t, shape.unknown, minimum)
    if shape.no_repeat_ngram_size is not None:
        words = _without_repeats(words, written, t, shape.no_repeat_ngram_size)
    return new, words


def reward(
    weight: Number, source: Source, state: dict[str, PyTree]
) -> Float[Array, "B K"]:
    """The coverage penalty, at most 0: the sum of ``log min(attention had, 1)``."""
    had = jnp.clip(state["covered"], LEAST_COVERED, 1.0)
    logs = jnp.where(source.words[:, None], jnp.log(had), 0)
    return weight * jnp.sum(logs, axis=-1)


def _last(alignments: tuple[Array, ...]) -> Float[Array, "B K S"]:
    if not alignments:
        raise OptionError(
            "{0} needs an alignment, and this system has none.",
            "coverage",
            prefix="search.",
        )
    return alignments[-1]


def _words(
    logits: Float[Array, "B K V"],
    source: Source,
    t: Int[Array, ""],
    unknown: bool,
    minimum: Number,
) -> Words:
    """What may be written; it keeps its probability."""
    early = (t < minimum) & (t + 1 < source.limits)
    barred, forced = {EOS: early}, None
    if not unknown:
        barred[UNK] = jnp.ones_like(early)
    if source.prefix is not None:
        longest = source.prefix.shape[1]
        word = source.prefix[:, jnp.minimum(t, longest - 1)]
        forced = jnp.where(t < longest, word, PAD)
    peaks, totals = normalise(logits)
    return Words(
        logits=logits,
        peaks=peaks,
        totals=totals,
        barred=jnp.stack([*barred.values()], axis=1),
        barred_ids=(*barred,),
        forced=forced,
    )


def _without_repeats(
    words: Words, written: Int[Array, "B K T"], t: Int[Array, ""], n: int
) -> Words:
    """Bars words that would repeat an n-gram of their hypothesis, unless one is forced.

    This writes the array of logits once more; other searches do not need that.
    """
    barred = repeating(written, t, n)
    if words.forced is not None:
        barred &= (words.forced < 0)[:, None, None]
    rows, beam, size = words.logits.shape
    ids = jnp.where(barred, written, size)  # beyond all words: dropped
    places = jnp.ogrid[:rows, :beam]
    row, hypothesis = (place[..., None] for place in places)
    logits = words.logits.at[row, hypothesis, ids].set(-jnp.inf, mode="drop")
    return replace(words, logits=logits)
