# SPDX-License-Identifier: Apache-2.0
"""Numbers of parameters: those of the paper, and the general formula."""

import dataclasses
from typing import get_args

import jax
import numpy as np
import pytest

from kvnmt import models
from kvnmt.attention import additive, kv_memory
from kvnmt.decoder import conditional
from kvnmt.encoder import Merge
from kvnmt.models import ModelConfig
from kvnmt.systems import SYSTEMS

PAPER = ModelConfig(embedding=512, encoder=512, state=512, merge="sum")
CONCAT = dataclasses.replace(PAPER, merge="concat")
SHARED = kv_memory.Options(share_addresses=True)


def count(config: ModelConfig, source: int = 30_000, target: int = 30_000) -> int:
    init = models.build(config, source, target).init
    return models.count_parameters(jax.eval_shape(init, jax.random.key(0)))


@pytest.mark.parametrize(
    "name, parameters",
    [
        ("rnnsearch-star", 53_982_512),
        ("rnnsearch-star-atteos", 53_982_512),
        ("mematt", 55_033_136),
        ("kvmematt-r1", 55_033_136),
        ("kvmematt-r2", 58_183_472),
        ("kvmematt-r3", 61_333_808),
    ],
)
def test_counts_of_the_paper(name, parameters):
    assert count(SYSTEMS[name].model(PAPER)) == parameters


def test_counts_with_concatenated_annotations():
    base = 55_555_376
    shared = dataclasses.replace(CONCAT, attention=SHARED)
    twice = conditional.Options(rounds=2)
    assert count(CONCAT) == base
    assert count(SYSTEMS["kvmematt-r1"].model(CONCAT)) == base + 1_838_080
    assert count(shared) == base + 1_050_624
    assert count(SYSTEMS["kvmematt-r2"].model(CONCAT)) == 62_379_824
    assert count(dataclasses.replace(shared, decoder=twice)) == 60_804_912


def formula(config: ModelConfig, Vs: int, Vt: int) -> int:
    """The published systems, part by part."""
    E, H, D = config.embedding, config.encoder, config.state
    A = config.alignment or D
    C = 2 * H if config.merge == "concat" else H
    encoder = {
        "concat": 6 * (H * E + H * H + H),
        "sum": 6 * (H * E + H * H + H),
        "project": 6 * (H * E + H * H + H) + C * 2 * H + C,
        "stack": 3 * (H * E + H * H + H) + 3 * (2 * H * H + H),
    }[config.merge]
    theta, gates = A * D + A * C + 2 * A, 2 * (C * D + C)
    gru2 = 3 * (D * C + D * D + D)
    attention, decoder = config.attention, config.decoder
    assert isinstance(decoder, conditional.Options)
    each = theta
    if isinstance(attention, kv_memory.Options):
        each += gates + (0 if attention.share_addresses else theta)
    rounds = 1 if decoder.share_rounds else decoder.rounds
    readout = E * (D + E + C) + E
    return (
        (Vs * E + Vt * E + encoder)
        + (D * C + D)
        + 3 * (D * E + D * D + D)
        + rounds * (each + gru2)
        + (readout + Vt * E + Vt)
    )


@pytest.mark.parametrize("merge", get_args(Merge))
@pytest.mark.parametrize(
    "attention", [additive.Options(), kv_memory.Options(), SHARED], ids=str
)
@pytest.mark.parametrize("rounds, shared", [(1, False), (3, False), (3, True)])
def test_general_formula(merge, attention, rounds, shared):
    seed = [ord(c) for c in f"{merge}{attention}{rounds}{shared}"]
    E, H, D, A, Vs, Vt = (
        int(n) for n in np.random.default_rng(seed).integers(2, 40, 6)
    )
    config = ModelConfig(
        attention=attention,
        decoder=conditional.Options(rounds=rounds, share_rounds=shared),
        embedding=E,
        encoder=H,
        state=D,
        alignment=A,
        merge=merge,
    )
    assert count(config, Vs, Vt) == formula(config, Vs, Vt)
