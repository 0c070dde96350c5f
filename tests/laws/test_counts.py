# SPDX-License-Identifier: Apache-2.0
"""Numbers of parameters: those of the papers, and the general formula."""

import dataclasses

import jax
import pytest

from kvnmt.attention import distortion, kv_memory
from kvnmt.decoder import conditional, transformer
from kvnmt.model import assembly
from kvnmt.model.config import ModelConfig
from kvnmt.systems.named import SYSTEMS
from tests.laws import cases
from tests.laws.formula import formula

PAPER = ModelConfig(embedding=512, encoder=512, state=512, merge="sum")
CONCAT = dataclasses.replace(PAPER, merge="concat")
SHARED = kv_memory.Options(share_addresses=True)
# Bahdanau et al. (2015): l = 500, 30 000 words and the end of sentence.
THOUSAND = ModelConfig(embedding=620, encoder=1000, state=1000, readout_size=500)
VOCABULARY = 30_001
# Miculicich et al. (2018), and dl4mt, where A = C.
RESIDUAL = ModelConfig(embedding=500, encoder=1024, state=1024, alignment=2048)


def count(config: ModelConfig, source: int = 30_000, target: int = 30_000) -> int:
    init = assembly.build(config, source, target).init
    return assembly.count_parameters(jax.eval_shape(init, jax.random.key(0)))


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
    assert of("rnnsearch", THOUSAND, VOCABULARY) - ours - 10 * 1000 == 80_432_741


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


def test_counts_of_transformers():
    """At the base size of Vaswani et al. (2017): 44 million, but for the embeddings."""
    D, F, V = 512, 2048, 37_000
    layer = 4 * D * D + D * F + F + F * D + D + 2 * 2 * D
    look = 4 * D * D + 2 * D
    six = transformer.Options(layers=6)
    paper = dataclasses.replace(
        SYSTEMS["transformer"].model(PAPER), layers=6, decoder=six, tie="output"
    )
    body = 12 * layer + 6 * look + 2 * 2 * D
    assert count(paper, V, V) == body + 2 * V * D + V == 82_028_680
    plain = of("transformer", PAPER)
    memory = 2 * D * (2 * D + 2) + 2 * (D * D + D) + D * D + 2 * D
    assert of("transformer-kvmematt-r1", PAPER) == plain - look + memory == 61_602_096
    assert of("transformer-kvmematt-r2", PAPER) == plain - look + 2 * memory


@pytest.mark.parametrize("name", cases.DISTINCT)
def test_general_formula(name):
    config = cases.CONFIGS[name]
    source = 9 if config.tie == "all" else 7
    assert count(config, source, 9) == formula(config, source, 9)
