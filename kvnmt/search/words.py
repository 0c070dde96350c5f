# SPDX-License-Identifier: Apache-2.0
"""The distribution of the next word, as a search asks for it.

A beam search needs a few words of each hypothesis. They are chosen among the logits as
the model gives them, with a few to spare for words that are barred, and only what was
chosen is normalised: an array of all log-probabilities is never written.
"""

import jax
import jax.numpy as jnp
from flax import struct

from kvnmt.typing import Array, Bool, Float, Int


def normalise(logits: Float[Array, "B K V"]) -> tuple[Array, Array]:
    """Peaks and totals of `Words`."""
    peaks = jnp.max(logits, axis=-1)
    mass = jnp.exp(logits - peaks[..., None])
    total = jax.lax.platform_dependent(mass, tpu=_total_by_product, default=_total)
    return peaks, jnp.log(total)


def _total(mass: Array) -> Array:
    return jnp.sum(mass, axis=-1)


def _total_by_product(mass: Array) -> Array:
    """A TPU's matrix unit adds what its registers add eight times more slowly.

    It reads bfloat16, unless `jax.default_matmul_precision` says otherwise, as it does
    in the products that gave the logits: these err far more than the total then does.
    """
    return (mass @ jnp.ones((mass.shape[-1], 8), mass.dtype))[..., 0]


@struct.dataclass
class Words:
    """Logits of the next word of every hypothesis, and which may be written."""

    logits: Float[Array, "B K V"]
    peaks: Float[Array, "B K"]  # the largest logit
    totals: Float[Array, "B K"]  # log of the sum of exp(logit - peak)
    barred: Bool[Array, "B N"] | None = None  # may not be written; None: all may
    barred_ids: tuple[int, ...] = struct.field(pytree_node=False, default=())  # N
    forced: Int[Array, " B"] | None = None  # is written, barred or not; -1: none is

    @property
    def log_probs(self) -> Float[Array, "B K V"]:
        """Of all words; minus infinity for what may not be written."""
        every = jnp.arange(self.logits.shape[-1])
        return self._allowed(self._normalised(self.logits), every)

    def of(self, word: int) -> Float[Array, "B K"]:
        """The log-probability of a word; minus infinity if it may not be written."""
        log_probs = self._normalised(self.logits[..., word : word + 1])
        return self._allowed(log_probs, jnp.asarray([word]))[..., 0]

    def best(
        self, count: int, without: int
    ) -> tuple[Float[Array, "B K N"], Int[Array, "B K N"]]:
        """The best words and their log-probabilities, best first.

        Args:
            count: How many, at most; no more than there are.
            without: A word that is not among them.
        """
        rows, beam, size = self.logits.shape
        count = min(count, size)
        spare = 1 + len(self.barred_ids)
        # The model's step is mapped over the beam, which stands outermost in what it
        # computes: rows in this order need no copy in another layout.
        flat = jnp.swapaxes(self.logits, 0, 1).reshape(beam * rows, size)
        values, ids = (
            jnp.swapaxes(x.reshape(beam, rows, -1), 0, 1)
            for x in top(flat, min(count + spare, size))
        )
        values = self._normalised(values)
        if self.forced is not None:
            forced = jnp.maximum(self.forced, 0)[:, None, None]
            logits = jnp.take_along_axis(self.logits, forced, axis=-1)
            inside = (self.forced >= 0)[:, None, None]
            first = jnp.arange(ids.shape[-1]) == 0
            ids = jnp.where(inside, jnp.where(first, forced, -1), ids)
            values = jnp.where(inside, self._normalised(logits), values)
        values = jnp.where(ids == without, -jnp.inf, self._allowed(values, ids))
        values, places = top(values, count)
        return values, jnp.take_along_axis(ids, places, axis=-1)

    def _normalised(self, logits: Float[Array, "B K N"]) -> Float[Array, "B K N"]:
        """In this order, since the likely words are near the peak: they stay exact."""
        return (logits - self.peaks[..., None]) - self.totals[..., None]

    def _allowed(
        self, log_probs: Float[Array, "B K N"], ids: Int[Array, "*_ N"]
    ) -> Float[Array, "B K N"]:
        """Minus infinity where a word may not be written."""
        # Masks fuse with what reads them; at[].set would copy the whole array.
        allowed = log_probs
        for place, word in enumerate(self.barred_ids):
            assert self.barred is not None
            barred = self.barred[:, place, None, None] & (ids == word)
            allowed = jnp.where(barred, -jnp.inf, allowed)
        if self.forced is None:
            return allowed
        forced = self.forced[:, None, None]
        alone = jnp.where(ids == forced, log_probs, -jnp.inf)
        return jnp.where(forced >= 0, alone, allowed)


def top(values: Float[Array, "*B N"], count: int) -> tuple[Array, Array]:
    """The largest values and their places.

    Without the barrier a later slice of the result is merged into the slice inside
    top_k, XLA no longer knows it for one, and sorts the whole row instead: 25 times
    the time of everything else in a step, on a CPU.
    """
    best, places = jax.lax.top_k(values, count)
    # One barrier around both makes XLA's TopkDecomposer abort over several devices.
    return jax.lax.optimization_barrier(best), jax.lax.optimization_barrier(places)
