# SPDX-License-Identifier: Apache-2.0
"""The loss in parts, with its own gradient, is the plain one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvnmt.layers import Linear
from kvnmt.model.contract import Head, negative_log_likelihood
from kvnmt.training.cross_entropy import cross_entropy, word_nats

TARGET = jnp.asarray([[2, 3, 0, -1, -1], [4, 0, -1, -1, -1], [-1, -1, -1, -1, -1]])
WORDS, WIDTH = 7, 3


def random_head() -> Head:
    random = np.random.default_rng(1)
    W, b = random.normal(0, 1, (WIDTH, WORDS)), random.normal(0, 1, WORDS)
    x = random.normal(0, 1, (*TARGET.shape, WIDTH))
    return Head(Linear((jnp.asarray(W),), jnp.asarray(b)), jnp.asarray(x))


def plain(head: Head, rate: float) -> jax.Array:
    """Label smoothing as the cross-entropy with a mixed distribution."""
    logs = jax.nn.log_softmax(head.logits)
    goal = (1 - rate) * jax.nn.one_hot(TARGET, WORDS) + rate / WORDS
    return -jnp.sum(jnp.where(TARGET[..., None] >= 0, goal * logs, 0))


@pytest.mark.parametrize("rate", [0.0, 0.3])
@pytest.mark.parametrize("logits", [1000, 60, 7])  # one part, two, one for each word
def test_parts_make_the_whole(rate, logits, x64):
    head = random_head()

    def total(head: Head) -> tuple[jax.Array, jax.Array]:
        return cross_entropy(head, TARGET, rate, logits)

    (value, nats), gradient = jax.value_and_grad(total, has_aux=True)(head)
    want, slope = jax.value_and_grad(plain)(head, rate)
    np.testing.assert_allclose(value, want, rtol=1e-12)
    np.testing.assert_allclose(total(head)[0], want, rtol=1e-12)
    likelihood = jnp.sum(negative_log_likelihood(head.logits, TARGET))
    np.testing.assert_allclose(nats, likelihood, rtol=1e-12)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12),
        gradient,
        slope,
    )


@pytest.mark.parametrize("logits", [1000, 60, 7])
def test_so_do_those_of_every_word(logits, x64):
    head, weights = random_head(), jnp.asarray(np.random.default_rng(2).random((3, 5)))

    def weighted(head: Head) -> jax.Array:
        return jnp.sum(weights * word_nats(head, TARGET, logits))

    def plainly(head: Head) -> jax.Array:
        return jnp.sum(weights * negative_log_likelihood(head.logits, TARGET))

    want = negative_log_likelihood(head.logits, TARGET)
    np.testing.assert_allclose(word_nats(head, TARGET, logits), want, rtol=1e-12)
    got, slope = jax.grad(weighted)(head), jax.grad(plainly)(head)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), got, slope)


def test_what_comes_from_above_is_a_factor(x64):
    def scaled(head: Head, factor: float) -> jax.Array:
        return factor * cross_entropy(head, TARGET)[0]

    thrice, once = (jax.grad(scaled)(random_head(), n) for n in (3.0, 1.0))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, 3 * b), thrice, once)


def test_without_smoothing_either_sum_may_be_minimised(x64):
    """With it the negative log-likelihood is a figure alone."""

    def minimised(head: Head, n: int, rate: float) -> jax.Array:
        return cross_entropy(head, TARGET, rate)[n]

    total, nats = (jax.grad(minimised)(random_head(), n, 0.0) for n in (0, 1))
    jax.tree.map(np.testing.assert_array_equal, total, nats)
    assert any(map(np.any, jax.tree.leaves(nats)))
    nats = jax.grad(minimised)(random_head(), 1, 0.1)
    assert not any(map(np.any, jax.tree.leaves(nats)))


def test_few_bits_are_summed_in_many():
    head = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), random_head())
    assert cross_entropy(head, TARGET)[0].dtype == jnp.float32
    gradient = jax.grad(lambda head: cross_entropy(head, TARGET)[0])(head)
    assert {leaf.dtype for leaf in jax.tree.leaves(gradient)} == {jnp.dtype("bfloat16")}


def test_few_bits_smooth_a_word_that_is_too_sure(x64):
    """The slope is then a small difference of two sums of weights."""
    W = np.random.default_rng(3).normal(size=(8, WORDS))
    head = Head(Linear((W,), np.zeros(WORDS)), 9 * W[:, 2][None, None])
    low = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.bfloat16), head)
    exact = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), low)

    def total(head: Head) -> jax.Array:
        return cross_entropy(head, jnp.array([[2]]), 0.1)[0]

    got, want = (jax.grad(total)(head).x for head in (low, exact))
    assert jnp.linalg.norm(got - want) < 2**-8 * jnp.linalg.norm(want)


@pytest.mark.parametrize(("parts", "whole"), [(1, True), (4, False)])
def test_logits_stand_whole_only_in_one_part(parts, whole):
    B, T, V, L = 4, 6, 50, 3
    head = Head(Linear((jnp.ones((L, V)),), jnp.ones(V)), jnp.ones((B, T, L)))
    target = jnp.ones((B, T), jnp.int32)

    def total(head: Head) -> jax.Array:
        return cross_entropy(head, target, 0.1, B * T * V // parts)[0]

    text = jax.jit(jax.grad(total)).lower(head).as_text()
    assert (f"tensor<{B * T}x{V}x" in text) == whole
