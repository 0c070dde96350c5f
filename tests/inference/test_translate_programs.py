# SPDX-License-Identifier: Apache-2.0
"""Programs of searches: one for each shape, none for a number, freed when unused."""

import dataclasses
import gc
import weakref
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest

from kvnmt.data import buckets
from kvnmt.inference.config import SearchConfig
from kvnmt.inference.ensemble import ensemble
from kvnmt.inference.program import compiled_search, program
from kvnmt.inference.score import compiled_score, score
from kvnmt.inference.trained import KEPT
from kvnmt.inference.translate import Translation, translate
from kvnmt.model.assembly import Model, Params
from tests.inference.translating import BASE, WORDS


def traced(model: Model) -> tuple[Model, list[tuple[int, ...]]]:
    """The same model, and the shapes of sources that programs are compiled for."""
    shapes = []

    def encode(params: Params, source: jax.Array, *more: Any, **options: Any):
        shapes.append(source.shape)
        return model.encode(params, source, *more, **options)

    return model._replace(encode=partial(encode)), shapes


def test_nothing_is_translated_without_compiling(talker):
    model, shapes = traced(talker[0])
    config = SearchConfig(beam=2)
    assert translate(model, talker[1], [], config) == []
    empty = [Translation([], 0.0, 0.0)] * 2
    assert translate(model, talker[1], [[], []], config) == empty
    assert shapes == []
    translate(model, talker[1], [[3]], config)
    assert shapes


def test_a_program_is_compiled_per_shape(talker, monkeypatch):
    monkeypatch.setattr(buckets, "PROGRAM", -1)  # no shape is left out
    config = SearchConfig(beam=1, batch_size=2, length_ratio=0.1, length_extra=2)
    random = np.random.default_rng(0)
    corpus = [random.integers(1, WORDS, n).tolist() for n in [*range(1, 15)] * 3]
    model, shapes = traced(talker[0])
    translate(model, talker[1], corpus, config)
    assert sorted(width for _, width in shapes) == [8, 12, 16]
    shuffled = random.permutation(np.array(corpus, object)).tolist()
    translate(model, talker[1], shuffled, config)
    translate(model, talker[1], corpus * 2, config)
    assert len(shapes) == 3


STATIC: dict[str, Any] = {
    "beam": 3,
    "sample": True,
    "top_k": 2,
    "length_ratio": 0.2,
    "length_extra": 3,
    "max_length": 1,
    "unknown": False,
    "no_repeat_ngram_size": 2,
    "nbest": 2,
}
SWITCHES = {"top_p": (0.5, 0.9), "coverage": (0.1, 0.2), "diversity": (0.1, 0.2)}
RUNNING: dict[str, Any] = {
    "temperature": 0.5,
    "seed": 7,
    "normalization": "length",
    "alpha": 0.3,
    "min_length": 1,
}
OUTSIDE = {"batch_size": 3, "batch_tokens": 99, "mbr": 0.5}  # of any program


def test_every_field_is_in_one_place():
    fields = sorted(field.name for field in dataclasses.fields(SearchConfig))
    assert sorted([*STATIC, *SWITCHES, *RUNNING, *OUTSIDE]) == fields


@pytest.mark.parametrize("name", STATIC | SWITCHES)
def test_what_is_static_is_another_program(talker, name):
    value = STATIC[name] if name in STATIC else SWITCHES[name][0]
    other = dataclasses.replace(BASE, **{name: value})
    assert program(talker[0], other) is not program(talker[0], BASE)


@pytest.mark.parametrize("sample", [False, True])
def test_what_is_a_number_compiles_nothing(talker, sample):
    """One program for all of them, where draws are cut and coverage is scored."""
    model, shapes = traced(talker[0])
    switched: dict[str, Any] = {name: some for name, (some, _) in SWITCHES.items()}
    first = dataclasses.replace(BASE, sample=sample, **switched)
    rows = np.array([[3, 0]]), np.zeros(1, np.int32)
    compiled_search(model, first)(talker[1], *rows)
    assert len(shapes) == 1
    first = dataclasses.replace(first, alpha=1, coverage=1)  # as a notebook may say
    changes = RUNNING | {name: other for name, (_, other) in SWITCHES.items()}
    for name, value in (changes | OUTSIDE).items():
        config = dataclasses.replace(first, **{name: value})
        compiled_search(model, config)(talker[1], *rows)
        assert len(shapes) == 1, name


def test_programs_that_nobody_uses_are_freed(talker, few_objects):
    """Also those that ran, with their models, without any cache being cleared."""

    def use() -> list[weakref.ref]:
        model, _ = traced(talker[0])
        translate(model, talker[1], [[3]], BASE)
        score(model, talker[1], [[3]], [[4]])
        joined = ensemble((model,))
        params: Any = (talker[1],)
        translate(joined, params, [[3]], BASE)
        return [weakref.ref(one) for one in (model.encode, joined.encode)]

    uses = use()
    gc.collect()
    assert all(ref() is not None for ref in uses)  # they are kept for the next call
    for _ in range(KEPT):
        model, _ = traced(talker[0])
        program(model, BASE)
        compiled_score(model, True, True)
        ensemble((model,))
    gc.collect()
    assert [ref() for ref in uses] == [None, None]
