# SPDX-License-Identifier: Apache-2.0
"""Beam search over fixed shapes, in ``lax.while_loop``.

At every step each of the K live hypotheses of a sentence may end, and the ended ones
compete for K finished places by score; the K best continuations stay alive. A sentence
is done when no live hypothesis can still enter the first ``count`` places (`Ranking`
says why that is known), or at its limit. What is done is frozen bit for bit, and its
limit depends on its own source alone, so that a result does not depend on what else is
in the batch.
"""

from functools import partial

import jax
import jax.numpy as jnp
from flax import struct

from kvnmt.errors import UserError
from kvnmt.search.base import (
    DecodeStep,
    Hypotheses,
    Loops,
    Ranking,
    Sentences,
    gather_beams,
    run_rows,
    score_type,
)
from kvnmt.search.words import Words, top
from kvnmt.typing import Array, Bool, Float, Int, PyTree


@struct.dataclass
class Beam:
    """The rows of the loop."""

    state: PyTree  # leaves [B, K, ...]
    tokens: Int[Array, "B K T"]  # live
    log_probs: Float[Array, "B K"]  # live; -inf where there is none
    finished: Hypotheses  # leaves [B, K, ...]; score -inf where there is none
    done: Bool[Array, " B"]


def beam_search(
    step: DecodeStep,
    sentences: Sentences,
    ranking: Ranking,
    *,
    beam: int,
    length: int,
    eos: int,
    pad: int,
    count: int = 1,
    diversity: Array | float | None = None,
    loops: Loops = Loops(),
) -> Hypotheses:
    """Returns the ``count`` best hypotheses per sentence, best first.

    Args:
        step: Advances hypotheses by one word.
        sentences: What is decoded; the first of a sentence's hypotheses is used.
        ranking: How hypotheses are compared.
        beam: K, the number of live hypotheses.
        length: Static bound on the limits.
        eos: Id that ends a sentence.
        pad: Id that stands for no word.
        count: How many hypotheses are wanted, at most ``beam``.
        diversity: What every continuation costs for each better one of the same
            hypothesis, in nats, where the live ones are chosen (Li et al. 2016);
            scores are not changed by it. None: nothing.
        loops: How steps are run.

    Raises:
        UserError: The beam holds nothing, no hypothesis is wanted, or more than it
            holds.
    """
    if beam < 1:
        raise UserError(f"beam is {beam} but must be at least 1.")
    if not 1 <= count <= beam:
        raise UserError(
            f"count is {count} but must be at least 1 and at most the beam, {beam}."
        )
    shape = sentences.limits.shape[0], beam
    blank = jnp.full((*shape, length), pad, jnp.int32)
    nothing = jnp.full(shape, -jnp.inf, score_type(step, sentences, blank))
    start = Beam(
        state=sentences.state,
        tokens=blank,
        log_probs=nothing.at[:, 0].set(0),
        finished=Hypotheses(blank, nothing, nothing),
        done=sentences.limits <= 0,
    )
    advance = partial(
        _advance, step, ranking, eos=eos, count=count, diversity=diversity
    )
    end = run_rows(advance, sentences, start, length, loops)
    return jax.tree.map(lambda leaf: leaf[:, :count], end.finished)


def _advance(
    step: DecodeStep,
    ranking: Ranking,
    t: Int[Array, ""],
    sentences: Sentences,
    beam: Beam,
    *,
    eos: int,
    count: int,
    diversity: Array | float | None,
) -> Beam:
    source, limits = sentences.source, sentences.limits
    state, words = step(source, beam.state, beam.tokens, t)
    total = beam.log_probs + words.of(eos)
    scores = ranking.scores(total, t + 1, source, state)
    ended = Hypotheses(beam.tokens.at[:, :, t].set(eos), total, scores)
    finished = _best(beam.finished, ended)
    live, parents, choices = _continue(beam.log_probs, words, eos, diversity)
    bound = ranking.bound(jnp.max(live, axis=1), limits)
    done = (finished.scores[:, count - 1] >= bound) | (t + 1 >= limits)
    return Beam(
        state=gather_beams(state, parents),
        tokens=gather_beams(beam.tokens, parents).at[:, :, t].set(choices),
        log_probs=live,
        finished=jax.tree.map(partial(_keep, beam.done), beam.finished, finished),
        done=beam.done | done,
    )


def _best(old: Hypotheses, new: Hypotheses) -> Hypotheses:
    """The best of both, as many as each holds; earlier ones win ties."""
    both = jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=1), old, new)
    _, places = top(both.scores, old.scores.shape[1])
    return gather_beams(both, places)


def _continue(
    live: Float[Array, "B K"],
    words: Words,
    eos: int,
    diversity: Array | float | None,
) -> tuple[Float[Array, "B K"], Int[Array, "B K"], Int[Array, "B K"]]:
    """The K best continuations: log-probability, parent hypothesis, word."""
    rows, beam = live.shape
    values, choices = words.best(beam, without=eos)  # no more are among the K best
    width = values.shape[-1]
    values = (live[..., None] + values).reshape(rows, beam * width)
    choices = choices.reshape(rows, beam * width)
    ranked = values
    if diversity is not None:
        rank = jnp.tile(jnp.arange(width), beam)
        ranked = values - jnp.asarray(diversity, values.dtype) * rank
    _, places = top(ranked, beam)
    best = jnp.take_along_axis(values, places, axis=1)
    return best, places // width, jnp.take_along_axis(choices, places, axis=1)


def _keep(done: Bool[Array, " B"], old: Array, new: Array) -> Array:
    """The old rows where a sentence is done, the new ones elsewhere."""
    return jnp.where(done.reshape((-1,) + (1,) * (old.ndim - 1)), old, new)
