# SPDX-License-Identifier: Apache-2.0
"""Several models that translate as one, whatever systems they are.

The parameters, Source and State of an ensemble are tuples with one entry per member;
its distribution is the mean of the members' distributions. It can be used like any
model: in every search, in scoring, for alignments (the mean of the members' reading
alignments) and for self-attention (that of each member, in their order).
"""

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

import jax.numpy as jnp

from kvnmt.decoder import Features
from kvnmt.inference.trained import KEPT
from kvnmt.layers import Scanning
from kvnmt.model.assembly import Model, Params, Prediction
from kvnmt.model.contract import mean_logits
from kvnmt.typing import Array, PyTree


@lru_cache(maxsize=KEPT)
def ensemble(members: tuple[Model, ...]) -> Model:
    """The model that the members make together; the same for the same members."""
    return Model(
        reads_source=any(m.reads_source for m in members),
        source_words=members[0].source_words,
        target_words=members[0].target_words,
        init=partial(_init, members),
        encode=partial(_encode, members),
        initial_state=partial(_initial_state, members),
        step=partial(_step, members),
        forward=partial(_forward, members),
        narrow=partial(_narrow, members),
    )


def count_members(params: Params | tuple) -> int:
    """How many models the parameters are of: of an ensemble several."""
    return 1 if isinstance(params, Params) else len(params)


def _init(members: tuple[Model, ...], key: Array) -> tuple:
    return tuple(m.init(key) for m in members)


def _encode(
    members: tuple[Model, ...], params: tuple, source: Array, key: Array | None = None
) -> tuple:
    return tuple(m.encode(p, source, key) for m, p in zip(members, params))


def _initial_state(
    members: tuple[Model, ...], params: tuple, source: tuple, length: int
) -> Any:
    parts = zip(members, params, source)
    return tuple(m.initial_state(p, s, length) for m, p, s in parts)


def _step(
    members: tuple[Model, ...],
    params: tuple,
    source: tuple,
    state: tuple,
    tokens: Array,
) -> tuple[Any, Prediction]:
    parts = zip(members, params, source, state)
    states, predictions = zip(*(m.step(p, s, t, tokens) for m, p, s, t in parts))
    return states, _mean(predictions)


def _forward(
    members: tuple[Model, ...],
    params: tuple,
    source: Array,
    target: Array,
    key: Array | None = None,
    scanning: Scanning = Scanning(),
) -> Prediction:
    parts = zip(members, params)
    return _mean([m.forward(p, source, target, key, scanning) for m, p in parts])


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


def _mean(predictions: Sequence[Prediction]) -> Prediction:
    """Means of probabilities, as logits, and of the alignments that feed them."""
    logits = mean_logits([p.logits for p in predictions])
    read: list[PyTree] = [
        p.features.alignments[-1] for p in predictions if p.features.alignments
    ]
    alignments = (jnp.mean(jnp.stack(read), axis=0),) if read else ()
    features = Features(
        state=_side_by_side([p.features.state for p in predictions]),
        context=_side_by_side([p.features.context for p in predictions]),
        alignments=alignments,
    )
    looks = tuple(look for p in predictions for look in p.self_attention)
    return Prediction(features, mean=logits, self_attention=looks)


def _side_by_side(vectors: Sequence[Any]) -> Array:
    return jnp.concatenate(vectors, axis=-1)
