# SPDX-License-Identifier: Apache-2.0
"""The contract of every model: what training, search and scoring take.

The Source is constant while sentences are translated, the State is carried from word to
word: a beam search reorders the State alone, and its leading axis is the hypothesis.
`kvnmt.model.assembly` builds models from a config, `kvnmt.inference.ensemble` one from
several.
"""

import math
from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
from flax import struct

from kvnmt.decoder import Features
from kvnmt.layers import Linear, Scanning, linear, precise
from kvnmt.typing import Array, Bool, Float, Int, Key, PyTree, typed


@struct.dataclass
class Head:
    """An output layer and what it reads: ``logits = x W + b``.

    The layer has no rows: whoever maps a step over hypotheses returns logits or ``x``.
    """

    layer: Linear
    x: Float[Array, "*N L"]
    allowed: Bool[Array, "*N V"] | None = None  # words that may follow; None: all

    @property
    def logits(self) -> Float[Array, "*N V"]:
        """All of them, in float32 at least; minus infinity where not allowed."""
        logits = precise(linear(self.layer, self.x))
        if self.allowed is None:
            return logits
        return jnp.where(self.allowed, logits, -jnp.inf)


@struct.dataclass
class Prediction:
    """The distribution of the next word, and what it was made from."""

    features: Features
    heads: tuple[Head, ...] = ()  # of the next word, then the auxiliary predictors;
    # () of an ensemble
    mean: Float[Array, "*N V"] | None = None  # logits that are not those of a head
    self_attention: tuple[Float[Array, "B T T"], ...] = ()  # out of ``forward`` only:
    # of every mechanism that looks at earlier words, as in `target_context.base`

    @property
    def logits(self) -> Float[Array, "*N V"]:
        """Of the next word. Training does not ask for them; its loss takes heads."""
        return self.heads[0].logits if self.mean is None else self.mean


def mean_logits(
    several: Sequence[Float[Array, "*N V"]],
    shares: Sequence[float] = (),
    geometric: bool = False,
) -> Float[Array, "*N V"]:
    """The logits of a mean of several distributions, normalised.

    Args:
        several: The logits of each.
        shares: How much each counts, together 1; (): all the same.
        geometric: Whether logarithms are averaged, not probabilities.
    """
    shares = shares or (1 / len(several),) * len(several)
    votes = (jax.nn.log_softmax(logits) for logits in several)
    if geometric:
        mean = sum(share * vote for share, vote in zip(shares, votes))
        return jax.nn.log_softmax(jnp.asarray(mean))
    parts = (vote + math.log(share) for share, vote in zip(shares, votes))
    return reduce(jnp.logaddexp, parts)


class Init(Protocol):  # noqa: D101
    def __call__(self, key: Key[Array, ""]) -> PyTree:
        """Makes the parameters."""
        ...


class Encode(Protocol):  # noqa: D101
    def __call__(
        self,
        params: PyTree,
        source: Int[Array, "B S"],
        key: Key[Array, "*B"] | None = None,
        scanning: Scanning = Scanning(),
    ) -> PyTree:
        """Reads source sentences: the Source, constant while they are translated."""
        ...


class InitialState(Protocol):  # noqa: D101
    def __call__(self, params: PyTree, source: PyTree, length: int) -> PyTree:
        """Returns the State before the first of at most ``length`` words."""
        ...


class Step(Protocol):  # noqa: D101
    def __call__(
        self,
        params: PyTree,
        source: PyTree,
        state: PyTree,
        tokens: Int[Array, " B"],
    ) -> tuple[PyTree, Prediction]:
        """Takes the previous words in and predicts the next."""
        ...


class Forward(Protocol):  # noqa: D101
    def __call__(
        self,
        params: PyTree,
        source: Int[Array, "B S"],
        target: Int[Array, "B T"],
        key: Key[Array, "*B"] | None = None,
        scanning: Scanning = Scanning(),
    ) -> Prediction:
        """Predicts every word of given translations.

        ``scanning`` changes time and memory, not the result.
        """
        ...


class Narrow(Protocol):  # noqa: D101
    def __call__(
        self,
        params: PyTree,
        source: PyTree,
        words: Int[Array, " C"],
        allowed: Bool[Array, "B C"],
    ) -> tuple[PyTree, PyTree]:
        """Params and Source of a search among some target words.

        These have the ids 0, 1, ... in it. A step of the search predicts what is
        allowed for each sentence, and nothing else.
        """
        ...


class Model(NamedTuple):
    """An encoder-decoder: pure functions over Params, Source and State.

    Token arrays hold ids, below zero where there is no word; ``source`` and
    ``target`` end every sentence with EOS. A key, or one for each row, is given in
    training.
    """

    reads_source: bool  # false of a language model
    source_words: int  # rows of the vocabularies
    target_words: int
    init: Init
    encode: Encode
    initial_state: InitialState
    step: Step
    forward: Forward
    narrow: Narrow

    @property
    def param_shapes(self) -> PyTree:
        """The parameters in shapes alone; nothing is computed."""
        return jax.eval_shape(self.init, jax.random.key(0))


@typed
def negative_log_likelihood(
    logits: Float[Array, "B T V"], target: Int[Array, "B T"]
) -> Float[Array, "B T"]:
    """``-log p(y_t)`` in nats; 0 at padding."""
    chosen = jnp.take_along_axis(logits, jnp.maximum(target, 0)[..., None], axis=-1)
    nats = jax.nn.logsumexp(logits, axis=-1) - chosen[..., 0]
    return jnp.where(target >= 0, nats, 0)
