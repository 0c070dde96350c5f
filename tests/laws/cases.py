# SPDX-License-Identifier: Apache-2.0
"""Small models of every kind, their arrays, and one batch that holds every trap."""

import dataclasses
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import jax
import numpy as np
import pytest

from kvnmt.laws import check as checking
from kvnmt.laws.law import Law
from kvnmt.model import assembly
from kvnmt.model.assembly import Model, Params
from kvnmt.model.config import ModelConfig
from kvnmt.systems.named import SYSTEMS
from tests.laws.variants import BASE, CATALOGUES, VARIANTS, case, chosen, fitting

SOURCE_WORDS, TARGET_WORDS = 7, 9

# A long source with a short target, the reverse, no source, nothing at all.
SOURCE = np.array(
    [[3, 5, 2, 6, 0], [4, 2, 0, -1, -1], [-1] * 5, [-1] * 5], dtype=np.int32
)
TARGET = np.array(
    [[2, 5, 0, -1], [7, 3, 4, 0], [6, 0, -1, -1], [-1] * 4], dtype=np.int32
)

NAMED = {
    name: system.model(dataclasses.replace(BASE, **fitting(system.model(BASE))))
    for name, system in SYSTEMS.items()
}
DEFAULTS = {  # every member of a catalogue as it comes
    f"{name}-default": case(**{field: name})
    for field, catalogue in CATALOGUES.items()
    for name in catalogue
}
CONFIGS = NAMED | DEFAULTS | VARIANTS
DISTINCT = list({config: name for name, config in reversed(CONFIGS.items())}.values())


def build(config: ModelConfig) -> Model:
    """The model of a config with the vocabularies of the batch."""
    source_words = TARGET_WORDS if config.tie == "all" else SOURCE_WORDS
    return assembly.build(config, source_words, TARGET_WORDS)


def params(config: ModelConfig, dtype: str = "float32") -> Params:
    """Random parameters, none of them tiny, biases included.

    They are put on the device: `jnp.asarray` compiles a program for every shape.
    """
    normal = np.random.default_rng(7).normal
    return jax.tree.map(
        lambda x: jax.device_put(normal(0, 0.6, x.shape).astype(dtype)), shapes(config)
    )


@cache
def shapes(config: ModelConfig) -> Params:
    """What the parameters look like, found once for all tests."""
    return jax.eval_shape(build(config).init, jax.random.key(0))


@cache
def forward(config: ModelConfig) -> Callable[..., assembly.Prediction]:
    """The jitted forward pass and its logits, compiled once for all tests."""
    forward = build(config).forward

    @jax.jit
    def run(*given: Any) -> assembly.Prediction:
        prediction = forward(*given)
        return prediction.replace(mean=prediction.logits)

    return run


def parts(config: ModelConfig) -> set[tuple]:
    """All that a config chooses by name."""
    fields = "merge", "cell", "readout", "layer_norm", "lexicon", "residual"
    outside = {(field, getattr(config, field)) for field in fields}
    return outside | {(f, name) for f, (name, _) in chosen(config).items()}


def carried(config: ModelConfig) -> set[tuple]:
    """What decides how a program is built around a model, and what it hands on.

    All options of the decoder and of the target context, whose step and whole sentence
    are two functions; of the attention, which is one, whether it writes and where to.
    Decoders count with every attention and every target context that they go with.
    """
    (attention, looks), (decoder, moves), (target_context, reads) = chosen(
        config
    ).values()
    several = moves.pop("rounds", 1) > 1
    return parts(config) | {
        ("writes", attention, looks.get("write"), looks.get("values")),
        ("rounds", decoder, several),
        ("moves", decoder, *moves.items()),
        ("reads", target_context, *reads.items()),
        ("with attention", decoder, attention),
        ("with target context", decoder, target_context),
    }


def cover(having: Mapping[str, set[tuple]], *members: str) -> list[str]:
    """Adds systems, by what each has, until everything that any has is met."""
    picked = list(members)
    left = set[tuple]().union(*having.values())
    while left := left.difference(*(having[name] for name in picked)):
        picked.append(max(having, key=lambda name: len(having[name] & left)))
    return picked


def try_few(
    monkeypatch: pytest.MonkeyPatch,
    laws: tuple[Law[Any], ...],
    broken: set[str],
    costly: set[str],
) -> None:
    """Lets `kvnmt.check` try, of the costly laws of a kind, those that are broken."""
    tried = tuple(law for law in laws if law.name in broken or law.name not in costly)
    kind, *_ = (kind for kind in checking.KINDS if kind.laws is laws)
    monkeypatch.setattr(checking, "KINDS", (kind._replace(laws=tried),))
