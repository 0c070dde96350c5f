# SPDX-License-Identifier: Apache-2.0
"""Every mechanism under the one search: the true best of all, however it is batched.

Some systems differ in what a search does not see, in how scores are made of query and
keys, say. That each computes what its equations say is a law of its own; here named
systems are tried until everything is met that `cases.carried` tells of any of them.

With four words and three places there are thirteen sentences, and a beam of nine drops
none of them: what the search finds must be the best that forced decoding knows.
"""

import itertools
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvnmt import devices
from kvnmt.inference.program import Numbers, SearchConfig, program, search_rows, shrinks
from kvnmt.inference.score import rounds_of
from kvnmt.layers import Scanning
from kvnmt.model import assembly
from kvnmt.model.assembly import Model, Params
from kvnmt.search import Hypotheses
from tests.helpers import drawn
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
KINDS = [  # a member of every kind of state that a search carries
    "rnnsearch",
    "kvmematt-r2",
    "gated-delta-memory",
    "attn-input-feeding",
    "memdec",
    "past-future-losses",
    "memory-rnn",
    "self-attentive-residual",
    "delta-residual",
    "slot-residual",
    "transformer-kvmematt-r1",
]
TRANSLATORS = cases.cover(
    {name: cases.carried(c) for name, c in cases.NAMED.items() if c.reads_source},
    *KINDS,
)


class Truth(NamedTuple):
    """Of one sentence, what forced decoding says of all translations."""

    log_probs: np.ndarray  # [13]
    covered: np.ndarray | None  # [13, S], attention that the real words had


@cache
def build(name: str) -> tuple[Model, Params]:
    """A system that has something to say, in float64."""
    model = assembly.build(cases.NAMED[name], cases.SOURCE_WORDS, WORDS)
    return model, drawn(model, 3, 0.7, np.float64)


@cache
def truths(name: str) -> list[Truth]:
    """Of every sentence, found once for all tests."""
    model, params = build(name)
    targets = np.full((len(SENTENCES), LENGTH), PAD, np.int32)
    for row, words in zip(targets, SENTENCES):
        row[: len(words)] = words
    source = np.repeat(pack(SOURCES, 5), len(SENTENCES), axis=0)
    every = np.tile(targets, (len(SOURCES), 1))
    prediction = jax.jit(model.forward)(params, source, every)
    gains = jnp.take_along_axis(
        jax.nn.log_softmax(prediction.logits), np.maximum(every, 0)[..., None], -1
    )
    real = every >= 0
    log_probs = np.asarray(jnp.where(real, gains[..., 0], 0).sum(axis=1))
    covered = None
    if prediction.features.alignments:
        read = np.asarray(prediction.features.alignments[-1])
        covered = (read * real[..., None]).sum(axis=1)
    results = []
    for n, ids in enumerate(SOURCES):
        rows = slice(n * len(SENTENCES), (n + 1) * len(SENTENCES))
        words = None if covered is None else covered[rows, : len(ids)]
        results.append(Truth(log_probs[rows], words))
    return results


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


def ranking_of(known: list[Truth]) -> tuple[float, float, float]:
    """The one with most terms that a system has."""
    return RANKINGS["gnmt" if known[0].covered is None else "coverage"]


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
    """In a batch, in another order, beside a row that is no sentence."""
    model, params = build(name)
    known = truths(name)
    order = [2, 0, 3, 1]
    block = pack([SOURCES[n] for n in order] + [[]], 8)
    for kind, ranking in RANKINGS.items():
        if kind == "coverage" and known[0].covered is None:
            continue
        hypotheses = search(model, params, block, ranking)
        for row, n in enumerate(order):
            check(hypotheses, row, ranked(known[n], ranking), 1e-10)
        assert np.all(np.isneginf(hypotheses.scores[4:]))


@pytest.mark.parametrize("name", KINDS)
def test_neither_devices_nor_precision_change_what_is_found(name, x64):
    """Two rows on each device, and float32."""
    model, params = build(name)
    known = truths(name)
    single = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), params)
    order = [2, 0, 3, 1]
    block = pack([SOURCES[n] for n in order] + [[]] * 4, 8)  # two rows for each device
    with jax.enable_x64(False):
        rough = search(model, single, block, ranking_of(known))
    assert rough.scores.dtype == np.float32
    for row, n in enumerate(order):
        check(rough, row, ranked(known[n], ranking_of(known)), 5e-5)


@pytest.mark.parametrize(
    "name", cases.cover({name: cases.carried(c) for name, c in cases.CONFIGS.items()})
)
def test_constants_belong_to_sentences_and_state_to_hypotheses(name):
    """A search may then take some sentences out of a batch, or reorder hypotheses."""
    model = cases.build(cases.CONFIGS[name])

    def start(key: jax.Array, rows: jax.Array) -> Any:
        params = model.init(key)
        source = model.encode(params, rows)
        return source, model.initial_state(params, source, 4)

    rows = jax.ShapeDtypeStruct((11, 5), jnp.int32)  # 11 is no width
    begun = jax.eval_shape(start, jax.random.key(0), rows)
    assert {leaf.shape[0] for leaf in jax.tree.leaves(begun)} == {11}


@pytest.mark.parametrize("name", ["rnnsearch", "kvmematt-r2"])
def test_what_is_taken_out_of_the_loops_changes_nothing(name, x64):
    """As on a GPU: matrices are put side by side before each of two loops.

    The source is read in one loop, not two.
    """
    model, params = build(name)
    config = SearchConfig(**ASKED, normalization="none")
    order = [2, 0, 3, 1] * 4
    rows = pack([SOURCES[n] for n in order], 8), np.arange(len(order))
    results, products, loops = [], [], []
    for lifts in (True, False):
        scanning = Scanning(merged=lifts, joined=lifts)
        search = jax.jit(partial(search_rows, model, config, scanning=scanning))
        lowered = search.lower(params, *rows)
        text = lowered.as_text()
        products.append(text.count("dot_general"))
        loops.append(sum("while" in line for line in text.splitlines()))
        results.append(jax.device_get(lowered.compile()(params, *rows)))
    assert products[0] < products[1]
    few = search.lower(params, rows[0][:15], rows[1][:15]).as_text()
    assert loops[0] + 1 == loops[1] == sum("while" in x for x in few.splitlines()) + 1
    np.testing.assert_array_equal(*(found.tokens for found in results))
    np.testing.assert_allclose(*(found.scores for found in results), rtol=1e-12)
    for row, n in enumerate(order):
        check(results[0], row, ranked(truths(name)[n], RANKINGS["none"]), 1e-10)


def test_a_batch_shrinks_the_more_often_the_larger_it_is():
    rows = (1, 15, 16, 63, 127, 128, 511, 512)
    assert [shrinks(count) for count in rows] == [0, 0, 1, 1, 1, 2, 2, 3]
