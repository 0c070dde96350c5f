# SPDX-License-Identifier: Apache-2.0
"""Minimum risk training: sentence BLEU, draws, the risk of them and its gradient."""

import dataclasses
from collections import Counter
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from sacrebleu.metrics.bleu import BLEU

from kvnmt.data.batches import pad, with_end
from kvnmt.data.vocabulary import UNK
from kvnmt.layers import Scanning, row_keys
from kvnmt.model import assembly
from kvnmt.model.assembly import Model
from kvnmt.model.config import Dropout
from kvnmt.model.contract import negative_log_likelihood
from kvnmt.systems.named import system
from kvnmt.training import risk
from kvnmt.training.gradient import sums_and_gradient
from kvnmt.training.losses import Objective
from kvnmt.training.sharding import over_rows
from kvnmt.training.step_options import StepOptions
from tests.helpers import SIZES

WORDS = 9
PAIRS = [([3, 4, 2], [5, 2, 7, 3]), ([6], [4]), ([2, 8, 8], [3, 3, 6]), ([], [])]
KEYS = row_keys(jax.random.key(5), jnp.arange(len(PAIRS)))


@cache
def model(dropout: float = 0.0) -> Model:
    config = dataclasses.replace(SIZES, dropout=Dropout(output=dropout))
    return assembly.build(system("rnnsearch-star").model(config), WORDS, WORDS)


def batch() -> tuple[np.ndarray, np.ndarray]:
    """The last row is no pair."""
    source, target = ([with_end(ids) for ids in side[:-1]] for side in zip(*PAIRS))
    return pad(source, len(PAIRS), 4), pad(target, len(PAIRS), 5)


def ngrams(words: list[int], n: int) -> Counter:
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


def bleu(hypothesis: list[int], reference: list[int]) -> float:
    """By sacreBLEU, from literal counts."""
    pairs = [(ngrams(hypothesis, n), ngrams(reference, n)) for n in range(1, 5)]
    matches = [sum((ours & theirs).values()) for ours, theirs in pairs]
    totals = [sum(ours.values()) for ours, _ in pairs]
    lengths = len(hypothesis), len(reference)
    return BLEU.compute_bleu(matches, totals, *lengths, "add-k", 1).score / 100


def test_bleu_of_a_sentence_is_sacrebleus():
    random = np.random.default_rng(0)

    def rows(least: int, longest: int) -> list[list[int]]:
        sizes = random.integers(least, longest + 1, 300)
        return [random.integers(2, 5, size).tolist() for size in sizes]

    hypotheses, references = rows(0, 9), rows(1, 7)
    got = risk.sentence_bleu(
        jnp.asarray(pad([with_end(ids) for ids in hypotheses], 300, 10)),
        jnp.asarray(pad([with_end(ids) for ids in references], 300, 8)),
    )
    want = [bleu(*pair) for pair in zip(hypotheses, references)]
    np.testing.assert_allclose(got, want, atol=1e-6)
    assert 0.1 < np.mean(want) < 0.9 and min(want) == 0 and max(want) > 0.999


def test_an_unknown_word_is_a_wrong_one():
    reference = jnp.asarray([with_end([UNK, 4, 5, 6])])
    guessed = [[UNK, 4, 5, 6], [7, 4, 5, 6]]
    unknown, other = risk.sentence_bleu(
        jnp.asarray([with_end(ids) for ids in guessed]), reference
    )
    assert unknown == other == pytest.approx(bleu(guessed[1], [UNK, 4, 5, 6]))


def test_candidates_are_the_reference_and_draws():
    source, target = batch()
    params = model().init(jax.random.key(1))
    draw = jax.jit(risk.draw, static_argnums=(0, 5))
    drawn = np.asarray(draw(model(), params, source, target, KEYS, 40))
    assert drawn.shape == (4, 41, 7)  # five words, and room for two
    assert (drawn[:, 0, :5] == target).all() and (drawn[:, 0, 5:] == -1).all()
    assert (drawn[-1] == -1).all()
    for row in drawn[:-1].reshape(-1, 7):
        words = row[row >= 0].tolist()
        assert (row[len(words) :] == -1).all()
        assert words[-1] == 0 and 0 not in words[:-1]
    assert len({row.tobytes() for row in drawn[0]}) > 20  # not one again and again
    lengths = np.sum(drawn >= 0, axis=-1)
    assert lengths[1].max() == 3  # two words, and room for one
    assert lengths[0].max() == 7
    alone = draw(model(), params, source[1:2], target[1:2, :2], KEYS[1:2], 40)
    short = alone.shape[-1]  # the padding of a batch changes nothing
    assert short == 3 and (np.asarray(alone)[0] == drawn[1][:, :short]).all()


def test_keys_of_the_risk_are_no_others():
    """What a model makes of its keys has nothing to do with what the risk makes."""
    keys = jax.random.key_data

    def made(some: jax.Array) -> set[bytes]:
        split = (jax.random.split(key, n) for key in some for n in (2, 7, 41))
        return {row.tobytes() for part in split for row in np.asarray(keys(part))}

    ways = (KEYS, *(risk._apart(KEYS, n) for n in (risk.DRAWING, risk.WEIGHING)))
    several = [made(some) for some in ways]
    assert len(set.union(*several)) == sum(map(len, several))


def test_draws_and_weights_take_these_keys(monkeypatch):
    """Not those of the forward pass beside them."""
    source, target = batch()
    params, taken = model().init(jax.random.key(1)), {}
    search, forward = risk.search_rows, model().forward

    def searching(*given: Any) -> Any:
        taken["draws"] = given[4]
        return search(*given)

    def weighing(*given: Any) -> Any:
        taken["weights"] = given[3]
        return forward(*given)

    monkeypatch.setattr(risk, "search_rows", searching)
    drawn = risk.draw(model(), params, source, target, KEYS, 2)
    risk.expected(model()._replace(forward=weighing), params, source, drawn, KEYS)
    bits = jax.vmap(jax.random.bits)
    own = bits(risk._apart(KEYS, risk.DRAWING))
    np.testing.assert_array_equal(taken["draws"], own)
    assert not np.isin(own, bits(KEYS)).any()
    split = jax.vmap(lambda key: jax.random.split(key, 3))
    own, others = (
        split(k).reshape(-1) for k in (risk._apart(KEYS, risk.WEIGHING), KEYS)
    )
    np.testing.assert_array_equal(bits(taken["weights"]), bits(own))
    assert not np.isin(bits(own), bits(others)).any()


def literal(params, source, target, candidates) -> list[float]:
    """The risk of every sentence, one candidate at a time, padded to one size."""
    forward, risks = jax.jit(model().forward), []
    for x, y, several in zip(source, target, candidates):
        reference = y[y >= 0].tolist()
        if not reference:
            risks.append(0.0)
            continue
        scores, lacks = [], []
        for words in {tuple(row[row >= 0].tolist()) for row in several}:
            z = jax.device_put(pad([words], 1, 7))
            prediction = forward(params, pad([x[x >= 0].tolist()], 1, 4), z)
            nats = negative_log_likelihood(prediction.logits, z).sum()
            scores.append(np.exp(-float(nats) / len(reference)))
            lacks.append(1 - bleu(list(words[:-1]), reference[:-1]))
        risks.append(len(reference) * np.dot(scores, lacks) / np.sum(scores))
    return risks


def test_the_risk_is_that_of_its_equation_and_so_is_its_gradient(x64):
    source, target = batch()
    params = jax.tree.map(
        lambda leaf: leaf.astype(jnp.float64), model().init(jax.random.key(2))
    )
    draw = jax.jit(risk.draw, static_argnums=(0, 5))
    candidates = np.array(draw(model(), params, source, target, KEYS, 4))
    candidates[0, 2] = candidates[0, 1]  # a draw that comes twice counts once
    candidates[1, 3] = candidates[1, 0]  # and so does the reference
    fixed = {"source": source, "candidates": candidates, "keys": KEYS}
    of = jax.jit(partial(risk.expected, model(), **fixed))
    got = of(params)
    want = literal(params, source, target, candidates)
    np.testing.assert_allclose(got, want, rtol=1e-6)  # BLEU is of float32 counts
    assert min(want[:-1]) > 0.1

    leaves, tree = jax.tree.flatten(params)
    random = np.random.default_rng(3)
    ways = [random.normal(size=leaf.shape) for leaf in leaves]

    def along(step: float) -> float:
        moved = [leaf + step * way for leaf, way in zip(leaves, ways)]
        return jnp.sum(of(jax.tree.unflatten(tree, moved)))

    slope = (along(1e-5) - along(-1e-5)) / 2e-5
    np.testing.assert_allclose(jax.jit(jax.grad(along))(0.0), slope, rtol=1e-5)
    assert abs(slope) > 1e-3


def test_less_risk_is_better_translations():
    """By risk alone, from draws of its own, a model learns what BLEU rewards."""
    source, target = batch()

    @jax.jit
    def updated(params, keys):
        drawn = risk.draw(model(), params, source, target, keys, 12)
        drawn = drawn.at[:, 0].set(drawn[:, 1])  # nor is the reference told
        references = jnp.pad(jnp.asarray(target), ((0, 0), (0, 2)), constant_values=-1)
        got = jnp.mean(risk.sentence_bleu(drawn[:3], references[:3, None]))

        def total(params):
            return jnp.sum(risk.expected(model(), params, source, told(drawn), keys))

        def told(drawn):
            return drawn.at[:, 0].set(references)

        slope = jax.grad(total)(params)
        return jax.tree.map(lambda leaf, by: leaf - 0.5 * by, params, slope), got

    params, scores = model().init(jax.random.key(1)), []
    for step in range(60):
        keys = row_keys(jax.random.key(step), jnp.arange(len(PAIRS)))
        params, score = updated(params, keys)
        scores.append(float(score))
    assert np.mean(scores[-10:]) > np.mean(scores[:10]) + 0.2


def test_parts_and_devices_change_nothing():
    source, target = batch()
    noisy = model(0.3)
    params = noisy.init(jax.random.key(1))
    objective = Objective(risk=2.0, risk_samples=3)

    def of(options: StepOptions, devices: int):
        sums = partial(sums_and_gradient, noisy, objective, options, Scanning())
        own, auto = jax.devices()[:devices], (AxisType.Auto,)
        if devices > 1:
            sums = over_rows(
                sums, jax.make_mesh((devices,), ("data",), auto, devices=own)
            )
        return jax.jit(sums)(params, source, target, KEYS, None)

    loss, gradient = of(StepOptions(), 1)
    assert float(loss.risk) > 0.5
    np.testing.assert_allclose(loss.total, loss.nats + 2 * loss.risk, rtol=1e-6)
    others, theirs = of(StepOptions(accumulate=2), 2)
    np.testing.assert_allclose(others.risk, loss.risk, rtol=1e-5)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
        gradient,
        theirs,
    )
