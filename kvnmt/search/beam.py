# SPDX-License-Identifier: Apache-2.0
"""Beam search over fixed shapes, in one ``lax.while_loop``.

At every step each of the K live hypotheses of a sentence may end, and the ended ones
compete for K finished places by normalised score; the K best continuations stay
alive. A sentence is done when no live hypothesis can still enter the first ``count``
places: log-probabilities never rise and the length penalty never falls, so a live
hypothesis of log-probability L ends at best with ``L / penalty(limit)``. What is
done is frozen bit for bit, and its limit depends on its own source alone, so that a
result does not depend on what else is in the batch.
"""

from functools import partial

import jax
import jax.numpy as jnp
from flax import struct

from kvnmt.search.base import DecodeStep, Hypotheses, gather_beams, length_penalty
from kvnmt.typing import Array, Bool, Float, Int, PyTree


@struct.dataclass
class Beam:
    """The carry of the loop."""

    t: Int[Array, ""]
    state: PyTree  # leaves [B, K, ...]
    tokens: Int[Array, "B K T"]  # live
    log_probs: Float[Array, "B K"]  # live; -inf where there is none
    finished: Hypotheses  # leaves [B, K, ...]; score -inf where there is none
    done: Bool[Array, " B"]


def beam_search(
    step: DecodeStep,
    state: PyTree,
    limits: Int[Array, " B"],
    *,
    beam: int,
    length: int,
    alpha: float,
    eos: int,
    pad: int,
    count: int = 1,
    minimum: int = 0,
) -> Hypotheses:
    """Returns the ``count`` best hypotheses per sentence, best first.

    Args:
        step: Advances hypotheses by one word.
        state: Where the step starts, leaves ``[B, K, ...]``; the first hypothesis of
            each sentence is used.
        limits: Most words, EOS included, that a sentence may get.
        beam: K, the number of live hypotheses.
        length: Static bound on the limits.
        alpha: Exponent of the length penalty; 0 ranks by log-probability.
        eos: Id that ends a sentence.
        pad: Id that stands for no word.
        count: How many hypotheses are wanted, at most ``beam``.
        minimum: Fewest words before EOS, where the limit leaves room for them.

    Raises:
        ValueError: More hypotheses are wanted than the beam holds.
    """
    if count > beam:
        raise ValueError(f"a beam of {beam} does not hold {count} hypotheses")
    rows = limits.shape[0]
    blank = jnp.full((rows, beam, length), pad, jnp.int32)
    probe = jax.eval_shape(step, state, blank[..., 0])[1]
    nothing = jnp.full((rows, beam), -jnp.inf, probe.dtype)
    start = Beam(
        t=jnp.zeros((), jnp.int32),
        state=state,
        tokens=blank,
        log_probs=nothing.at[:, 0].set(0),
        finished=Hypotheses(blank, nothing, nothing),
        done=jnp.zeros(rows, bool),
    )
    advance = partial(
        _advance,
        *(step, limits),
        **{"alpha": alpha, "eos": eos, "pad": pad, "count": count, "minimum": minimum},
    )
    end = jax.lax.while_loop(
        lambda b: (b.t < length) & ~jnp.all(b.done), advance, start
    )
    return jax.tree.map(lambda leaf: leaf[:, :count], end.finished)


def _advance(
    step: DecodeStep,
    limits: Int[Array, " B"],
    beam: Beam,
    *,
    alpha: float,
    eos: int,
    pad: int,
    count: int,
    minimum: int,
) -> Beam:
    t = beam.t
    previous = jax.lax.dynamic_index_in_dim(
        beam.tokens, jnp.maximum(t - 1, 0), axis=2, keepdims=False
    )
    state, log_probs = step(beam.state, jnp.where(t > 0, previous, pad))
    total = beam.log_probs[..., None] + log_probs  # [B, K, V]
    penalty = length_penalty(t + 1, alpha).astype(total.dtype)
    early = (t < minimum) & (t + 1 < limits)
    scores = jnp.where(early[:, None], -jnp.inf, total[..., eos] / penalty)
    ended = Hypotheses(beam.tokens.at[:, :, t].set(eos), total[..., eos], scores)
    finished = _best(beam.finished, ended)
    live, parents, words = _continue(total.at[..., eos].set(-jnp.inf))
    reach = length_penalty(limits, alpha).astype(total.dtype)
    bound = live[:, 0] / reach  # the best that a live hypothesis can still score
    done = (finished.scores[:, count - 1] >= bound) | (t + 1 >= limits)
    return Beam(
        t=t + 1,
        state=gather_beams(state, parents),
        tokens=gather_beams(beam.tokens, parents).at[:, :, t].set(words),
        log_probs=live,
        finished=jax.tree.map(partial(_keep, beam.done), beam.finished, finished),
        done=beam.done | done,
    )


def _best(old: Hypotheses, new: Hypotheses) -> Hypotheses:
    """The best of both, as many as each holds; earlier ones win ties."""
    both = jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=1), old, new)
    _, places = _top(both.scores, old.scores.shape[1])
    return gather_beams(both, places)


def _continue(
    total: Float[Array, "B K V"],
) -> tuple[Float[Array, "B K"], Int[Array, "B K"], Int[Array, "B K"]]:
    """The K best continuations: log-probability, parent hypothesis, word."""
    rows, beam, words = total.shape
    best, places = _top(total.reshape(rows, beam * words), beam)
    return best, places // words, places % words


def _top(values: Float[Array, "B N"], count: int) -> tuple[Array, Array]:
    """The largest values and their places.

    Without the barrier a later slice of the result is merged into the slice inside
    top_k, XLA no longer knows it for one, and sorts the whole row instead: 25 times
    the time of everything else in a step, on a CPU.
    """
    return jax.lax.optimization_barrier(jax.lax.top_k(values, count))


def _keep(done: Bool[Array, " B"], old: Array, new: Array) -> Array:
    """The old rows where a sentence is done, the new ones elsewhere."""
    return jnp.where(done.reshape((-1,) + (1,) * (old.ndim - 1)), old, new)
