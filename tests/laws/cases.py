# SPDX-License-Identifier: Apache-2.0
"""Small models of every kind, their arrays, and one batch that holds every trap."""

import dataclasses
from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kvnmt import attention as attentions
from kvnmt import models
from kvnmt.attention import additive, kv_memory
from kvnmt.decoder import conditional
from kvnmt.models import Model, ModelConfig, Params
from kvnmt.systems import SYSTEMS

# All widths differ, so that a transposed or swapped matrix cannot fit.
BASE = ModelConfig(embedding=3, encoder=4, state=5, alignment=6)
SOURCE_WORDS, TARGET_WORDS = 7, 9

# A long source with a short target, the reverse, no source, nothing at all.
SOURCE = np.array(
    [[3, 5, 2, 6, 0], [4, 2, 0, -1, -1], [-1] * 5, [-1] * 5], dtype=np.int32
)
TARGET = np.array(
    [[2, 5, 0, -1], [7, 3, 4, 0], [6, 0, -1, -1], [-1] * 4], dtype=np.int32
)


def _two_rounds(
    attention: attentions.Options, *, share_rounds: bool = False, **changes: Any
) -> ModelConfig:
    decoder = conditional.Options(rounds=2, share_rounds=share_rounds)
    return dataclasses.replace(BASE, attention=attention, decoder=decoder, **changes)


NAMED = {name: system.model(BASE) for name, system in SYSTEMS.items()}
DEFAULTS = {  # every attention that is listed, as it comes
    f"{name}-default": dataclasses.replace(BASE, attention=member.Options())
    for name, member in attentions.CATALOGUE.items()
}
VARIANTS = {
    "sum": _two_rounds(kv_memory.Options(), merge="sum"),
    "stack": _two_rounds(kv_memory.Options(), merge="stack"),
    "project": _two_rounds(kv_memory.Options(), merge="project"),
    "additive-r2": _two_rounds(additive.Options()),
    "rewritten-r2": _two_rounds(kv_memory.Options(values="rewritten")),
    "share-addresses": _two_rounds(kv_memory.Options(share_addresses=True)),
    "share-rounds": _two_rounds(kv_memory.Options(), share_rounds=True),
    "tanh": _two_rounds(kv_memory.Options(add="tanh")),
}
CONFIGS = NAMED | DEFAULTS | VARIANTS
DISTINCT = list({config: name for name, config in reversed(CONFIGS.items())}.values())


def build(config: ModelConfig) -> Model:
    """The model of a config with the vocabularies of the batch."""
    return models.build(config, SOURCE_WORDS, TARGET_WORDS)


def params(config: ModelConfig, dtype: str = "float32") -> Params:
    """Random parameters, none of them tiny, biases included."""
    normal = np.random.default_rng(7).normal
    shapes = jax.eval_shape(build(config).init, jax.random.key(0))
    return jax.tree.map(
        lambda x: jnp.asarray(normal(0, 0.6, x.shape).astype(dtype)), shapes
    )


@cache
def forward(config: ModelConfig) -> Callable[..., models.Prediction]:
    """The jitted forward pass, compiled once for all tests."""
    return jax.jit(build(config).forward)
