# SPDX-License-Identifier: Apache-2.0
"""Numbers of parameters: those of the papers, and a formula for every part."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import pytest

from kvnmt import models
from kvnmt.attention import coverage, distortion, kv_memory
from kvnmt.decoder import conditional
from kvnmt.models import ModelConfig
from kvnmt.systems import SYSTEMS
from tests.laws import cases

PAPER = ModelConfig(embedding=512, encoder=512, state=512, merge="sum")
CONCAT = dataclasses.replace(PAPER, merge="concat")
SHARED = kv_memory.Options(share_addresses=True)
# Bahdanau et al. (2015): l = 500, 30 000 words and the end of sentence.
THOUSAND = ModelConfig(embedding=620, encoder=1000, state=1000, readout_size=500)
VOCABULARY = 30_001
# Miculicich et al. (2018), and dl4mt, where A = C.
RESIDUAL = ModelConfig(embedding=500, encoder=1024, state=1024, alignment=2048)


def count(config: ModelConfig, source: int = 30_000, target: int = 30_000) -> int:
    init = models.build(config, source, target).init
    return models.count_parameters(jax.eval_shape(init, jax.random.key(0)))


def of(name: str, base: ModelConfig, words: int = 30_000) -> int:
    return count(SYSTEMS[name].model(base), words, words)


@pytest.mark.parametrize(
    "name, parameters",
    [
        ("rnnsearch-star", 53_982_512),
        ("rnnsearch-star-atteos", 53_982_512),
        ("mematt", 55_033_136),
        ("interactive", 55_033_136 - 525_312),  # one address for reading and writing
        ("kvmematt-r1", 55_033_136),
        ("kvmematt-r2", 58_183_472),
        ("kvmematt-r3", 61_333_808),
    ],
)
def test_counts_of_meng(name, parameters):
    assert of(name, PAPER) == parameters


def test_counts_of_meng_with_concatenated_annotations():
    base = 55_555_376
    shared = dataclasses.replace(CONCAT, attention=SHARED)
    twice = conditional.Options(rounds=2)
    assert count(CONCAT) == base
    assert of("kvmematt-r1", CONCAT) == base + 1_838_080
    assert count(shared) == base + 1_050_624
    assert of("kvmematt-r2", CONCAT) == 62_379_824
    assert count(dataclasses.replace(shared, decoder=twice)) == 60_804_912


def test_counts_of_bahdanau():
    """The paper's tables have no bias in the alignment (A) nor in the maxout (2l)."""
    ours = 1000 + 2 * 500
    low_rank = dataclasses.replace(THOUSAND, low_rank=620)
    assert of("rnnsearch", low_rank, VOCABULARY) == 84_352_861 + ours
    saved = 500 * 620 + (620 - 500) * VOCABULARY
    assert of("rnnsearch", THOUSAND, VOCABULARY) == 84_352_861 - saved + ours
    # Less the biases of the start and of nine gates: 80.43 million.
    assert 84_352_861 - saved - 10 * 1000 == 80_432_741


@pytest.mark.parametrize(
    "name, more, biases",
    [
        ("coverage-linguistic", 1_000, 0),
        ("coverage-subtractive", 1_000, 0),
        ("coverage-fertility", 3_001, 0),  # b_f is in the 3 001
        ("coverage-neural-ungated", 4_002, 0),
        ("coverage-neural", 10_006, 3),
        ("coverage-neural-10", 100_330, 3 * 10),
    ],
)
def test_counts_of_tu(name, more, biases):
    """What coverage adds; the published figures leave the biases of its GRU out."""
    assert of(name, THOUSAND) - count(THOUSAND) == more + biases


def test_counts_of_wang():
    base = ModelConfig(embedding=512, encoder=1024, state=1024)
    assert of("memdec", base) - of("rnnsearch-star-tanh", base) == 6_293_504


@pytest.mark.parametrize(
    "words, baseline", [(25_000, 71_199_884), (50_000, 108_724_884)]
)
def test_counts_of_miculicich(words, baseline):
    E, D = 500, 1024
    assert of("rnnsearch-star", RESIDUAL, words) == baseline
    more = {
        "mean-residual": 0,
        "self-attentive-residual": 251_000,
        "self-attentive-residual-scope": 763_000,
        "memory-rnn": 2 * D * D + D * E + 2 * D,
        "self-attentive-rnn": 2 * D * D + 2 * D + E * D,
    }
    for name, extra in more.items():
        assert of(name, RESIDUAL, words) == baseline + extra, name


@pytest.mark.parametrize(
    "name, units, millions",
    [
        ("lm-lstm", 300, 46.998),
        ("lm-attention", 296, 47.027),
        ("lm-4-gram", 968, 46.96),
        ("lm-mean-residual", 296, 46.85),
        ("lm-self-attentive-residual", 296, 46.94),
        ("lm-key-value", 560, 46.98),
        ("lm-key-value-predict", 786, 47.0),
    ],
)
def test_counts_of_language_models(name, units, millions):
    got = of(name, ModelConfig(embedding=300, state=units), 77_000) / 1e6
    digits = len(str(millions).split(".")[1])
    assert round(got, digits) == millions


@pytest.mark.parametrize("kind", ["source", "target", "hidden"])
def test_counts_of_zhang(kind):
    options = distortion.Options(context=kind, window=3)
    width = {"source": 1024, "target": 512, "hidden": 512}[kind]
    more = count(dataclasses.replace(CONCAT, attention=options)) - count(CONCAT)
    assert more == 7 * (width + 1)


@pytest.mark.parametrize("losses", [False, True])
def test_counts_of_zheng(losses):
    E, D, C, V = 512, 512, 1024, 30_000
    layers = 3 * (D * C + D * D + D) * 2 + D * D + 3 * (2 * D * D + D * D + D)
    heads = 2 * (2 * D * D + E * D + E + V * E + V)
    name = "past-future-losses" if losses else "past-future"
    want = layers + 2 * E * D + losses * heads
    assert of(name, CONCAT) - count(CONCAT) == want


# The general formula: every part of every case, from its equations.


def gru(inputs: int, n: int) -> int:
    return 3 * (n * inputs + n * n + n)


def lstm(inputs: int, n: int) -> int:
    return 4 * (n * inputs + n * n + n)


def affine(inputs: int, n: int) -> int:
    return n * inputs + n


@dataclasses.dataclass
class Widths:
    """The letters of a config."""

    E: int
    H: int
    C: int
    D: int
    A: int
    c: int = 0  # width of the context

    @property
    def address(self) -> int:
        return self.A * self.D + self.A * self.C + 2 * self.A


def encoder(config: ModelConfig, n: Widths) -> int:
    cell = lstm if config.cell == "lstm" else gru
    above = (config.layers - 1) * cell(n.H, n.H)
    stack = cell(n.E, n.H) + above
    return {
        "none": 0,
        "forward": stack,
        "stack": stack + cell(n.H, n.H) + above,
        "project": 2 * stack + affine(2 * n.H, n.H),
        "halves": 2 * stack + 2 * affine(n.H, n.H // 2),
    }.get(config.merge, 2 * stack)


def _coverage(o: coverage.Options, n: Widths) -> int:
    k, inputs = o.size, 1 + n.C + n.D
    own = k * n.A
    if o.kind == "linguistic":
        return own + (affine(n.C, 1) if o.fertility else 0)
    return own + (gru(inputs, k) if o.gated else k * k + k * inputs)


def _distortion(o: distortion.Options, n: Widths) -> int:
    width = {"source": n.C, "target": n.E, "hidden": n.D}[o.context]
    return affine(width, 2 * o.window + 1)


ATTENTIONS: dict[str, Callable[[Any, Widths], int]] = {
    "none": lambda o, n: affine(n.C, n.D) if o.projection else 0,
    "additive": lambda o, n: n.address,
    "dot": lambda o, n: {"dot": 0, "general": n.C * n.D, "concat": n.address}[o.score],
    "key_value": lambda o, n: affine(n.D, n.c) if o.query == "projection" else 0,
    "modifying_iw": lambda o, n: 0,
    "coverage": lambda o, n: n.address + _coverage(o, n),
    "distortion": lambda o, n: n.address + _distortion(o, n),
    "kv_memory": lambda o, n: (
        (1 if o.share_addresses else 2) * n.address + 2 * affine(n.D, n.C)
    ),
}


def _past_future(o: Any, n: Widths, words: int) -> int:
    count, D = o.past + o.future, n.D
    future = {
        "gru": gru(n.c, D),
        "inside": gru(n.c, D) + D * D,
        "outside": gru(D, D) + D * D + D * n.c + affine(D, D),
    }[o.cell]
    heads = 2 * D * D + affine(D, n.E) + affine(n.E, words)
    own = gru(n.E, D) + gru(count * D, D) + o.subtractive * count * heads
    return own + o.past * gru(n.c, D) + o.future * future


def decoder(name: str, o: Any, n: Widths, attention: int, words: int) -> int:
    D, c = n.D, n.c
    start = {"backward": n.H, "read": c, "mean": n.C, "last": n.C}
    total = 0 if o.initial == "zero" else affine(start[o.initial], D)
    if name == "stacked_lstm":
        fed = affine(D + c, D) if o.input_feeding else 0
        lowest = lstm(n.E + (D if o.input_feeding else 0), D)
        return total + lowest + (o.layers - 1) * lstm(D, D) + attention + fed
    query = D * D + n.E * D
    inputs = {
        "single": n.E + c,
        "mem_dec": n.E + c + (D if getattr(o, "seat", "read") != "read" else 0),
    }.get(name, c)
    rounds = 1 if o.share_rounds else o.rounds
    own = {
        "conditional": lambda: gru(n.E, D),
        "single": lambda: query if o.query == "tanh" else 0,
        "mem_dec": lambda: query + 4 * D * D + 2 * D + n.C * D,
        "past_future": lambda: _past_future(o, n, words),
        "memory_rnn": lambda: gru(n.E, D) + affine(2 * D + n.E, D) + D,
    }[name]()
    return total + own + rounds * (attention + gru(inputs, D))


FORMS = {"plain": 1, "kv": 2, "kvp": 3}


def target_context(name: str, o: Any, n: Widths) -> tuple[int, list[int]]:
    """The parameters, and the widths of the readout inputs."""
    E, D = n.E, n.D
    if name in ("key_value_predict", "n_gram"):
        parts = o.parts if name == "n_gram" else FORMS[o.form]
        k = D // parts
        return (D * k if name == "n_gram" else 4 * k * k + k), [k] + [E] * o.word
    return {
        "previous_word": lambda: (0, [D, E]),
        "state_only": lambda: (0, [D]),
        "mean": lambda: (0, [D, E]),
        "self_attentive": lambda: (affine(E, E) + E + o.scope * E * D, [D, E]),
        "self_attentive_rnn": lambda: (affine(2 * D, D) + D, [D, E, D]),
    }[name]()


def formula(config: ModelConfig, Vs: int, Vt: int) -> int:
    E, H, D = config.embedding, config.encoder, config.state
    C = {"concat": 2 * H, "none": 0}.get(config.merge, H)
    n = Widths(E, H, C, D, config.alignment or D)
    looks, moves, reads = (
        (catalogue.name_of(options), options)
        for options, catalogue in (
            (getattr(config, field), catalogue)
            for field, catalogue in cases.CATALOGUES.items()
        )
    )
    n.c = C // 2 if looks[0] == "key_value" else C
    if looks[0] == "none" and looks[1].projection:
        n.c = D
    attention = ATTENTIONS[looks[0]](looks[1], n)
    own, inputs = target_context(*reads, n)
    inputs = inputs + [n.c]
    if moves[0] == "past_future":
        inputs += [D] * (moves[1].past + moves[1].future)
    size = config.readout_size or E
    readout = {
        "tanh": affine(sum(inputs), size),
        "maxout": affine(sum(inputs), 2 * size),
        "none": 0,
    }[config.readout]
    width = inputs[0] if config.readout == "none" else size
    if config.low_rank:
        readout, width = readout + width * config.low_rank, config.low_rank
    tables = (Vs * E if config.merge != "none" else 0) + Vt * E
    outer = tables + encoder(config, n) + own + readout + affine(width, Vt)
    return outer + decoder(*moves, n, attention, Vt)


@pytest.mark.parametrize("name", cases.DISTINCT)
def test_general_formula(name):
    config = cases.CONFIGS[name]
    assert count(config, 7, 9) == formula(config, 7, 9)
