# SPDX-License-Identifier: Apache-2.0
"""Every system under the one search: the true best of all, however it is batched.

With four words and three places there are thirteen sentences, and a beam of nine drops
none of them: what the search finds must be the best that forced decoding knows.
"""

import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvnmt import devices, models
from kvnmt.inference.program import Numbers, SearchConfig, program
from kvnmt.inference.score import rounds_of
from kvnmt.models import Model, Params
from kvnmt.search import Hypotheses
from tests.laws import cases

EOS, PAD, WORDS, LENGTH = 0, -1, 4, 3
SOURCES = [[3, 5, 2, 6], [4], [2, 2, 5], [6, 3]]
SENTENCES = [
    (*words, EOS)
    for size in range(LENGTH)
    for words in itertools.product(range(1, WORDS), repeat=size)
]
WIDTH = (WORDS - 1) ** (LENGTH - 1)
ASKED = {"beam": WIDTH, "nbest": WIDTH, "length_ratio": 0.0, "length_extra": LENGTH}
# offset, alpha and weight of the coverage penalty
RANKINGS = {
    "none": (0.0, 0.0, 0.0),
    "length": (0.0, 1.0, 0.0),
    "gnmt": (5.0, 0.8, 0.0),
    "coverage": (5.0, 0.8, 0.4),
}
TRANSLATORS = [name for name, c in cases.NAMED.items() if c.reads_source]


class Truth(NamedTuple):
    """Of one sentence, what forced decoding says of all translations."""

    log_probs: np.ndarray  # [13]
    covered: np.ndarray | None  # [13, S], attention that the real words had


def build(name: str) -> tuple[Model, Params]:
    """A system that has something to say, in float64."""
    model = models.build(cases.NAMED[name], cases.SOURCE_WORDS, WORDS)
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    normal = np.random.default_rng(3).normal
    return model, jax.tree.map(lambda x: jnp.asarray(normal(0, 0.7, x.shape)), shapes)


def truths(model: Model, params: Params) -> list[Truth]:
    targets = np.full((len(SENTENCES), LENGTH), PAD, np.int32)
    for row, words in zip(targets, SENTENCES):
        row[: len(words)] = words
    found = []
    forward = jax.jit(model.forward)
    for ids in SOURCES:
        source = np.tile(pack([ids], 5), (len(targets), 1))
        got = forward(params, source, targets)
        gains = jnp.take_along_axis(
            jax.nn.log_softmax(got.logits), np.maximum(targets, 0)[..., None], -1
        )
        real = targets >= 0
        covered = None
        if got.features.alignments:
            read = got.features.alignments[-1] * real[..., None]
            covered = np.asarray(read.sum(axis=1)[:, : len(ids)])
        log_probs = jnp.where(real, gains[..., 0], 0).sum(axis=1)
        found.append(Truth(np.asarray(log_probs), covered))
    return found


def pack(sources: list[list[int]], width: int) -> np.ndarray:
    block = np.full((len(sources), width), PAD, np.int32)
    for row, ids in zip(block, sources):
        if ids:
            row[: len(ids) + 1] = [*ids, EOS]
    return block


def ranked(truth: Truth, ranking: tuple[float, float, float]) -> list[tuple]:
    """Score, log-probability and words of the best translations, best first."""
    offset, alpha, weight = ranking
    lengths = np.array([len(words) for words in SENTENCES])
    scores = truth.log_probs / ((offset + lengths) / (offset + 1)) ** alpha
    if weight:
        assert truth.covered is not None
        scores = scores + weight * np.log(np.minimum(truth.covered, 1)).sum(axis=1)
    order = np.argsort(-scores, kind="stable")[:WIDTH]
    return [(scores[n], truth.log_probs[n], SENTENCES[n]) for n in order]


def search(
    model: Model, params: Params, block: np.ndarray, ranking: tuple[float, float, float]
) -> Hypotheses:
    """What the search finds; one program for every ranking."""
    aligned = rounds_of(model, params) > 0
    config = SearchConfig(**ASKED, coverage=float(aligned))
    offset, alpha, weight = ranking
    numbers = Numbers(offset, alpha, weight, 0.0, 1.0, 1.0, 1, 0)
    rows: Any = block, np.zeros(len(block), np.int32)
    if len(block) % jax.device_count() == 0:
        mesh = devices.data_mesh()
        params, rows = devices.replicate(params, mesh), devices.split_rows(rows, mesh)
    return jax.device_get(program(model, config)(numbers, params, *rows))


def check(found: Hypotheses, row: int, truth: list[tuple], tolerance: float) -> None:
    scores, log_probs, words = zip(*truth)
    np.testing.assert_allclose(found.scores[row], scores, rtol=0, atol=tolerance)
    np.testing.assert_allclose(found.log_probs[row], log_probs, rtol=0, atol=tolerance)
    gaps = -np.diff(scores, append=-np.inf, prepend=np.inf)
    for n, sentence in enumerate(words):
        if min(gaps[n], gaps[n + 1]) > 10 * tolerance:  # no tie to speak of
            said = tuple(int(i) for i in found.tokens[row, n] if i >= 0)
            assert said == sentence


@pytest.mark.parametrize("name", TRANSLATORS)
def test_the_search_finds_the_best_of_all_sentences(name, x64):
    """Alone and in a batch, on one device and on eight, in float64 and float32."""
    model, params = build(name)
    known = truths(model, params)
    order = [2, 0, 3, 1]
    many = pack([SOURCES[n] for n in order] + [[]] * 4, 8)  # a row for each device
    single = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), params)
    for kind, ranking in RANKINGS.items():
        if kind == "coverage" and known[0].covered is None:
            continue
        few = search(model, params, pack(SOURCES[:3], 5), ranking)
        lots = search(model, params, many, ranking)
        for row in range(3):
            check(few, row, ranked(known[row], ranking), 1e-10)
        for row, n in enumerate(order):
            check(lots, row, ranked(known[n], ranking), 1e-10)
        assert np.all(np.isneginf(lots.scores[4:]))  # rows that are no sentences
        with jax.enable_x64(False):
            rough = search(model, single, many, ranking)
        assert rough.scores.dtype == np.float32
        for row, n in enumerate(order):
            check(rough, row, ranked(known[n], ranking), 2e-5)


@pytest.mark.parametrize("name", cases.DISTINCT)
def test_constants_belong_to_sentences_and_state_to_hypotheses(name):
    """A search may then take some sentences out of a batch, or reorder hypotheses."""
    model = cases.build(cases.CONFIGS[name])
    params = jax.eval_shape(model.init, jax.random.key(0))
    rows = jax.ShapeDtypeStruct((3, 5), jnp.int32)
    source = jax.eval_shape(model.encode, params, rows)
    state = jax.eval_shape(lambda p, s: model.initial_state(p, s, 4), params, source)
    assert {leaf.shape[0] for leaf in jax.tree.leaves((source, state))} == {3}
