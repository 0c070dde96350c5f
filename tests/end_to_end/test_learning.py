# SPDX-License-Identifier: Apache-2.0
"""Systems learn a small corpus of the made-up language.

Every mechanism, number of rounds and objective is in one of them. That each system
computes what its equations say, and its gradient, is a law; that what is learnt is
found again is the law of the search, and the newcomer's.
"""

from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from numpy.typing import NDArray

from kvnmt import models
from kvnmt.data import synthetic
from kvnmt.data.batches import pad, with_end
from kvnmt.model_config import Dropout, ModelConfig
from kvnmt.systems.named import SYSTEMS
from kvnmt.training.losses import Loss, Objective, loss
from tests.data.helpers import words_of
from tests.laws import cases

SIZES = ModelConfig(
    embedding=24,
    encoder=24,
    state=24,
    merge="sum",
    initializer="glorot",
    dropout=Dropout(output=0.0),
)
PAIRS, STEPS = 16, 50
LEFT = 0.65  # of the first loss, at most, after so many steps


class Text(NamedTuple):
    source: NDArray[np.int32]
    target: NDArray[np.int32]
    source_words: int
    target_words: int


@cache
def text() -> Text:
    """Short sentences, one padded batch."""
    pairs = synthetic.make_corpus(3, train=600).train
    short = [p for p in pairs if max(len(p.source), len(p.target)) <= 7][:PAIRS]
    sides = []
    for side in ("source", "target"):
        lines = [" ".join(getattr(pair, side)) for pair in short]
        words = words_of(lines)
        ids = [with_end(words.encode(line)) for line in lines]
        sides.append((pad(ids, PAIRS, 8), len(words)))
    (source, source_words), (target, target_words) = sides
    return Text(source, target, source_words, target_words)


def parts(name: str) -> set[tuple[str, Any]]:
    """The mechanisms of a system, its rounds and its objective."""
    config, objective = cases.NAMED[name], SYSTEMS[name].objective()
    numbers = {"layers": config.layers, "rounds": vars(config.decoder).get("rounds")}
    terms = {"atteos": objective.atteos > 0, "subtractive": objective.subtractive > 0}
    return cases.parts(config) | set((numbers | terms).items())


@pytest.mark.slow
@pytest.mark.parametrize("name", cases.cover({name: parts(name) for name in SYSTEMS}))
def test_learns(name):
    given = text()
    model = models.build(
        SYSTEMS[name].model(SIZES), given.source_words, given.target_words
    )
    objective = SYSTEMS[name].objective(Objective())
    # Of one long vector: an update for each array would take longer to compile.
    optimizer = optax.flatten(
        optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-2))
    )
    source, target = jnp.asarray(given.source), jnp.asarray(given.target)

    def total(params: models.Params, key: jax.Array) -> tuple[jax.Array, Loss]:
        sums = loss(
            objective, model.forward(params, source, target, key), source, target
        )
        return sums.total / sums.tokens, sums

    @partial(jax.jit, donate_argnums=0)
    def train(params: models.Params) -> tuple[models.Params, jax.Array]:
        def step(carry, key):
            params, state = carry
            gradient, sums = jax.grad(total, has_aux=True)(params, key)
            update, state = optimizer.update(gradient, state, params)
            return (optax.apply_updates(params, update), state), sums.nats / sums.tokens

        keys = jax.random.split(jax.random.key(1), STEPS)
        (params, _), nats = jax.lax.scan(step, (params, optimizer.init(params)), keys)
        return params, nats

    params, nats = train(model.init(jax.random.key(0)))
    nats = np.asarray(nats)
    assert np.isfinite(nats).all()
    assert nats[-1] < LEFT * nats[0], nats[::10]
