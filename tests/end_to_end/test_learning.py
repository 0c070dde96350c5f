# SPDX-License-Identifier: Apache-2.0
"""Systems learn a small corpus of the made-up language.

Every mechanism, one round and several, and every objective is in one of them, as many
as can be at once. That each system computes what its equations say, and its gradient,
is a law; that what is learnt is found again is the law of the search, and the
newcomer's.
"""

import dataclasses
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from numpy.typing import NDArray

from kvnmt.attention import distortion, key_value, neural_coverage
from kvnmt.data import synthetic
from kvnmt.data.batches import pad, with_end
from kvnmt.model import assembly
from kvnmt.model.config import Dropout, ModelConfig
from kvnmt.systems.named import SYSTEMS
from kvnmt.target_context import (
    delta_memory,
    mean,
    n_gram,
    self_attentive,
    self_attentive_rnn,
    slots,
)
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


def made(of: str = "rnnsearch-star", **choices: Any) -> ModelConfig:
    """A named system, or one that differs from it in mechanisms."""
    config = dataclasses.replace(SYSTEMS[of].model(SIZES), **choices)
    # Half of each annotation is read, which two directions side by side make.
    halves = cases.chosen(config)["attention"][0] == "key_value"
    return dataclasses.replace(config, merge="halves") if halves else config


CONFIGS = {  # each mechanism of the source, with any decoder and target context
    "none": made("rnnencdec"),
    "additive": made("past-future-losses"),
    "dot": made("attn"),
    "key-value": made(attention=key_value.Options(), target_context=n_gram.Options()),
    "modifying-iw": made("modifying-iw", target_context=mean.Options()),
    "linguistic": made("coverage-linguistic", target_context=self_attentive.Options()),
    "neural": made(
        "memory-rnn",
        attention=neural_coverage.Options(),
        target_context=self_attentive_rnn.Options(),
    ),
    "distortion": made("memdec", attention=distortion.Options(context="source")),
    "kv-memory-r3": made("kvmematt-r3"),
    "multi-head": made("transformer"),
    "writing-transformer-r2": made("transformer-kvmematt-r2"),
    "delta": made(
        "delta-memory", target_context=delta_memory.Options(update="kda", heads=4)
    ),
    "slots": made("slots", target_context=slots.Options()),
    "language-model": made("lm-attention"),
}
OBJECTIVES = {
    "additive": Objective(subtractive=1.0),
    "kv-memory-r3": Objective(atteos=1.0),
}


def test_every_mechanism_learns():
    chosen = [cases.chosen(config) for config in CONFIGS.values()]
    for field, catalogue in cases.CATALOGUES.items():
        assert {choices[field][0] for choices in chosen} == set(catalogue)
    assert {c.cell for c in CONFIGS.values()} == {c.cell for c in cases.NAMED.values()}


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_learns(name):
    given = text()
    model = assembly.build(CONFIGS[name], given.source_words, given.target_words)
    objective = OBJECTIVES.get(name, Objective())
    # Of one long vector: an update for each array would take longer to compile.
    optimizer = optax.flatten(
        optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-2))
    )
    source, target = jnp.asarray(given.source), jnp.asarray(given.target)

    def total(params: assembly.Params, key: jax.Array) -> tuple[jax.Array, Loss]:
        sums = loss(
            objective, model.forward(params, source, target, key), source, target
        )
        return sums.total / sums.tokens, sums

    @partial(jax.jit, donate_argnums=0)
    def train(params: assembly.Params) -> tuple[assembly.Params, jax.Array]:
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
