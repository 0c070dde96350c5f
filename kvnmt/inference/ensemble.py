# SPDX-License-Identifier: Apache-2.0
"""Several models that translate as one, whatever systems they are.

The parameters, Source and State of an ensemble are tuples with one entry per member;
its distribution is a mean of the members' distributions: arithmetic, or geometric and
normalised again, in which what one member excludes is excluded. Members may have
weights. It can be used like any model: in every search, in scoring, for alignments (the
mean, by the same weights, of the members' reading alignments) and for self-attention
(that of each member, in their order).
"""

import math
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import jax.numpy as jnp

from kvnmt.decoder import Features
from kvnmt.errors import UserError, unknown_name
from kvnmt.inference.trained import KEPT
from kvnmt.layers import Scanning
from kvnmt.model.assembly import Model, Params, Prediction
from kvnmt.model.contract import mean_logits
from kvnmt.typing import Array

Mean: TypeAlias = Literal["arithmetic", "geometric"]


class Joined(NamedTuple):
    """How the predictions of several models become one."""

    weights: tuple[float, ...] = ()  # of each model; (): all count the same
    mean: Mean = "arithmetic"

    def shares(self, count: int) -> tuple[float, ...]:
        """How much each of so many models counts; together 1.

        Raises:
            UserError: There are weights, but not one for each, one is no positive
                number, or there is no such mean.
        """
        weights = self.weights or (1.0,) * count
        if not all(0 < weight < math.inf for weight in weights):
            raise UserError("a weight of an ensemble is a positive number.")
        if self.mean not in get_args(Mean):
            raise unknown_name("mean", self.mean, get_args(Mean))
        if len(weights) != count:
            raise UserError(
                f"there are {len(weights)} weights for the {count} runs of an ensemble;"
                " give one for each, the first run's first."
            )
        parts = [weight / max(weights) for weight in weights]
        shares = tuple(part / sum(parts) for part in parts)
        if not all(shares):
            raise UserError("a weight of an ensemble is next to nothing; leave it out.")
        return shares


@lru_cache(maxsize=KEPT)
def ensemble(members: tuple[Model, ...], joined: Joined = Joined()) -> Model:
    """The model that the members make together; the same for the same members.

    Raises:
        UserError: What `Joined.shares` raises.
    """
    joined = joined._replace(weights=joined.shares(len(members)))
    return Model(
        reads_source=any(m.reads_source for m in members),
        source_words=members[0].source_words,
        target_words=members[0].target_words,
        init=partial(_init, members),
        encode=partial(_encode, members),
        initial_state=partial(_initial_state, members),
        step=partial(_step, members, joined),
        forward=partial(_forward, members, joined),
        narrow=partial(_narrow, members),
    )


def count_members(params: Params | tuple) -> int:
    """How many models the parameters are of: of an ensemble several."""
    return 1 if isinstance(params, Params) else len(params)


def _init(members: tuple[Model, ...], key: Array) -> tuple:
    return tuple(m.init(key) for m in members)


def _encode(
    members: tuple[Model, ...],
    params: tuple,
    source: Array,
    key: Array | None = None,
    scanning: Scanning = Scanning(),
) -> tuple:
    return tuple(m.encode(p, source, key, scanning) for m, p in zip(members, params))


def _initial_state(
    members: tuple[Model, ...], params: tuple, source: tuple, length: int
) -> Any:
    parts = zip(members, params, source)
    return tuple(m.initial_state(p, s, length) for m, p, s in parts)


def _step(
    members: tuple[Model, ...],
    joined: Joined,
    params: tuple,
    source: tuple,
    state: tuple,
    tokens: Array,
) -> tuple[Any, Prediction]:
    parts = zip(members, params, source, state)
    states, predictions = zip(*(m.step(p, s, t, tokens) for m, p, s, t in parts))
    return states, _mean(joined, predictions)


def _forward(
    members: tuple[Model, ...],
    joined: Joined,
    params: tuple,
    source: Array,
    target: Array,
    key: Array | None = None,
    scanning: Scanning = Scanning(),
) -> Prediction:
    parts = zip(members, params)
    several = [m.forward(p, source, target, key, scanning) for m, p in parts]
    return _mean(joined, several)


def _narrow(
    members: tuple[Model, ...],
    params: tuple,
    source: tuple,
    words: Array,
    allowed: Array,
) -> tuple[tuple, tuple]:
    parts = zip(members, params, source)
    few = [m.narrow(p, s, words, allowed) for m, p, s in parts]
    return tuple(p for p, _ in few), tuple(s for _, s in few)


def _mean(joined: Joined, predictions: Sequence[Prediction]) -> Prediction:
    """Means of probabilities, as logits, and of the alignments that feed them."""
    geometric = joined.mean == "geometric"
    logits = mean_logits([p.logits for p in predictions], joined.weights, geometric)
    read = [
        (share, p.features.alignments[-1])
        for share, p in zip(joined.weights, predictions)
        if p.features.alignments
    ]
    alignments: tuple[Array, ...] = ()
    if read:
        shares, several = zip(*read)
        mean = jnp.average(jnp.stack(several), axis=0, weights=jnp.asarray(shares))
        alignments = (mean.astype(several[0].dtype),)
    features = Features(
        state=_side_by_side([p.features.state for p in predictions]),
        context=_side_by_side([p.features.context for p in predictions]),
        alignments=alignments,
    )
    looks = tuple(look for p in predictions for look in p.self_attention)
    return Prediction(features, mean=logits, self_attention=looks)


def _side_by_side(vectors: Sequence[Any]) -> Array:
    return jnp.concatenate(vectors, axis=-1)
