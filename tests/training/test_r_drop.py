# SPDX-License-Identifier: Apache-2.0
"""Two readings of each pair, and how far apart their predictions lie."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvnmt.layers import Linear, row_keys
from kvnmt.model import assembly
from kvnmt.model.config import Dropout
from kvnmt.model.contract import Head
from kvnmt.systems.named import system
from kvnmt.training.losses import Objective, loss
from kvnmt.training.r_drop import divergence, twice
from tests.helpers import SIZES
from tests.references.blocks import log_softmax

SOURCE = jnp.asarray([[3, 4, 2, 0], [5, 0, -1, -1], [-1, -1, -1, -1]])
TARGET = jnp.asarray([[2, 3, 0], [4, 0, -1], [-1, -1, -1]])
WORDS, WIDTH = 7, 3
BOTH = jnp.concatenate([TARGET, TARGET])


def random_head() -> Head:
    random = np.random.default_rng(1)
    W, b = random.normal(0, 1, (WIDTH, WORDS)), random.normal(0, 1, WORDS)
    x = random.normal(0, 1, (*BOTH.shape, WIDTH))
    return Head(Linear((jnp.asarray(W),), jnp.asarray(b)), jnp.asarray(x))


def literal(head: Head) -> float:
    """Equation 3, word by word."""
    logits, total = np.asarray(head.logits, np.float64), 0.0
    for row, t in np.argwhere(np.asarray(TARGET) >= 0):
        p, q = (log_softmax(logits[r, t]) for r in (row, row + len(TARGET)))
        total += 0.5 * (np.exp(p) @ (p - q) + np.exp(q) @ (q - p))
    return total


@pytest.mark.parametrize("logits", [1000, 40, 7])  # one part, several, one for a word
def test_divergence_is_that_of_the_paper(logits, x64):
    head = random_head()
    np.testing.assert_allclose(divergence(head, BOTH, logits), literal(head), 1e-12)

    def moved(by: float) -> Head:
        return dataclasses.replace(head, x=head.x + by * jnp.cos(head.x))

    slope = jax.grad(lambda by: divergence(moved(by), BOTH, logits))(0.0)
    step = 1e-6
    want = (literal(moved(step)) - literal(moved(-step))) / (2 * step)
    np.testing.assert_allclose(slope, want, 1e-7)


def test_alike_readings_have_none():
    head = random_head()
    head = dataclasses.replace(head, x=jnp.concatenate([head.x[:3]] * 2))
    assert float(divergence(head, BOTH)) == 0


def test_few_bits_are_summed_in_many():
    head = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), random_head())
    assert divergence(head, BOTH).dtype == jnp.float32


def test_sums_are_those_of_one_reading():
    """Two times the same batch, without dropout, is the batch; with it, the mean."""
    rates = Dropout(embedding=0.3, output=0.3)
    sizes = dataclasses.replace(SIZES, dropout=rates)
    model = assembly.build(system("past-future-losses").model(sizes), WORDS, WORDS)
    params = model.init(jax.random.key(1))
    plain = Objective(label_smoothing=0.1, atteos=2.0, subtractive=1.0)
    objective = dataclasses.replace(plain, r_drop=5.0)
    source, target, keys = twice(
        SOURCE, TARGET, row_keys(jax.random.key(2), jnp.arange(3))
    )

    def sums(objective: Objective, source, target, keys=None):
        prediction = model.forward(params, source, target, keys)
        return loss(objective, prediction, source, target)

    got, once = sums(objective, source, target), sums(plain, SOURCE, TARGET)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-5), got, once)

    got = sums(objective, source, target, keys)
    halves = [sums(plain, SOURCE, TARGET, keys[n : n + 3]) for n in (0, 3)]
    mean = jax.tree.map(lambda a, b: (a + b) / 2, *halves)
    assert float(halves[0].nats) != float(halves[1].nats)
    assert float(got.divergence) > 0
    total = float(mean.total) + 2.5 * float(got.divergence)
    np.testing.assert_allclose(got.total, total, 1e-5)
    for name in ("nats", "atteos", "subtractive", "tokens"):
        np.testing.assert_allclose(getattr(got, name), getattr(mean, name), 1e-5)
