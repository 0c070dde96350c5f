# SPDX-License-Identifier: Apache-2.0
"""Every mechanism becomes a program for every kind of device, on a machine with none.

Steps and searches are lowered with each part that a named system has, steps with each
objective, too.
"""

import re
from dataclasses import asdict, replace

import jax
import pytest

from kvnmt.compiling.program import CompileConfig, share, trace
from kvnmt.errors import UserError
from kvnmt.inference.config import SearchConfig
from kvnmt.model.config import ModelConfig
from kvnmt.systems.named import system
from kvnmt.training.losses import Objective
from kvnmt.training.optimizer import OptimizerConfig
from tests.laws import cases

PLATFORMS = ("cuda", "rocm", "tpu")  # for CPUs all other tests compile
TINY = CompileConfig(
    model=ModelConfig(embedding=12, encoder=12, state=12),  # halves, thirds, quarters
    vocabulary=9,
    batch_size=2,
    source_length=3,
    target_length=3,
    search=SearchConfig(beam=2, batch_size=2),
)
PLAIN = OptimizerConfig(name="sgd", clip=0)
# A step as accelerators compute it by themselves.
STEP = {"residuals": "vectors", "products": "merged"}


def _objective(name: str) -> set[tuple]:
    return set(asdict(system(name).objective(Objective())).items())


LOWERED = cases.cover(
    {name: cases.parts(c) | _objective(name) for name, c in cases.NAMED.items()},
    *("rnnsearch-star", "kvmematt-r2-atteos"),
)
SEARCHED = [name for name in LOWERED if cases.NAMED[name].reads_source]
FLOAT64 = re.compile(r"\bf64\b|xf64")


def of_system(name: str, config: CompileConfig = TINY) -> CompileConfig:
    """The config with the mechanisms and the objective of a system."""
    chosen = system(name)
    objective = chosen.objective(config.objective)
    return replace(config, model=chosen.model(config.model), objective=objective)


@pytest.mark.parametrize(
    ("what", "name"),
    [("train", name) for name in LOWERED] + [("search", name) for name in SEARCHED],
)
def test_every_part_is_lowered_for_every_platform(what, name):
    """With one call for all of them; nothing comes back to Python, nothing is wide."""
    options = STEP if what == "train" else {}
    # What an optimiser does is the same for all: one has Adam, which takes longer.
    optimizer = OptimizerConfig() if name == "rnnsearch-star" else PLAIN
    config = replace(of_system(name), what=what, optimizer=optimizer, **options)
    stage = trace(config, jax.devices()[:1]).stage
    text = stage.lower(lowering_platforms=PLATFORMS).as_text()
    assert "stablehlo.while" in text
    # Callbacks, what one platform alone has, and libraries of linear algebra: those
    # of jaxlib for CPUs wait within the threads that they need.
    assert "custom_call" not in text and "triangular_solve" not in text
    assert not FLOAT64.search(text)


def test_a_search_among_candidates_computes_no_other_word():
    config = replace(TINY, what="search", vocabulary=97)
    texts = [
        trace(replace(config, candidates=few), jax.devices()[:1]).stage.lower()
        for few in (None, 6)
    ]
    of_words = re.compile(r"dot_general.*-> tensor<(?:\d+x)*97xf32>")
    whole, few = (bool(of_words.search(text.as_text())) for text in texts)
    assert whole and not few


def test_rows_are_shared_by_devices_and_parts():
    some = jax.devices()[:4]
    config = replace(TINY, accumulate=3, model_axis=2)
    assert share(config, some) == 6
    assert share(replace(config, what="search", model_axis=1), some) == 4
    with pytest.raises(UserError, match="multiple of 6"):
        trace(config, some)


def test_bytes_are_those_of_one_device():
    """Two devices of the model axis share what has an entry for each word."""
    config = replace(TINY, batch_size=4, vocabulary=10)
    alone, shared = (
        trace(replace(config, model_axis=n), jax.devices()[:n]) for n in (1, 2)
    )
    assert alone.parameters == shared.parameters
    assert alone.parameter_bytes == 4 * alone.parameters
    words = 10 * (12 + 12 + 12 + 1)  # both embeddings, W and b of the output layer
    assert alone.parameter_bytes - shared.parameter_bytes == 4 * words // 2
    moments = alone.optimizer_bytes - 2 * alone.parameter_bytes
    assert 0 < moments < 100  # Adam's, and some numbers


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        (
            {"model": of_system("lm-lstm").model, "what": "search"},
            "^a language model reads no source",
        ),
        (
            {
                "model": of_system("lm-lstm").model,
                "objective": Objective(risk=1.0),
            },
            "^objective.risk is of translations",
        ),
        ({"model_axis": 3}, "--model-axis is 3"),
        ({"what": "search", "model_axis": 2}, "leave --model-axis out"),
        ({"model_axis": 2}, "make it 8"),
        ({"source_length": 1}, "source_length"),
        ({"vocabulary": 2}, "vocabulary is 2"),
        ({"candidates": 10, "what": "search"}, "the vocabulary has 9 words"),
        ({"search": SearchConfig(beam=0)}, "^search.beam is 0"),
    ],
)
def test_what_cannot_be_compiled_is_told(changes, part):
    with pytest.raises(UserError, match=part):
        trace(replace(TINY, **changes), jax.devices()[:4])
