# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace
from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvnmt import layers
from kvnmt.initializers import gaussian
from kvnmt.layers import vectors
from tests.references import blocks, parameters

NORMAL = np.random.default_rng(5).normal


def test_masked_softmax_is_softmax_over_the_real_entries():
    energies = jnp.asarray([[1.0, -2.0, 500.0, 3.0], [-900.0, -901.0, 0.0, 0.0]])
    mask = jnp.asarray([[True, True, False, True], [True, True, False, False]])
    got = np.asarray(layers.masked_softmax(energies, mask))
    np.testing.assert_allclose(got[0, [0, 1, 3]], blocks.softmax([1, -2, 3]), rtol=1e-6)
    np.testing.assert_allclose(got[1, :2], blocks.softmax([1, 0]), rtol=1e-6)
    assert (got[0, 2], got[1, 2], got[1, 3]) == (0, 0, 0)


def test_masked_softmax_of_an_empty_row():
    energies = jnp.asarray([[1.0, 2.0], [1.0, 2.0]])
    mask = jnp.asarray([[False, False], [True, True]])

    def weighted(energies: jax.Array) -> jax.Array:
        return jnp.sum(layers.masked_softmax(energies, mask) * jnp.arange(2.0)[None])

    got, slope = layers.masked_softmax(energies, mask), jax.grad(weighted)(energies)
    np.testing.assert_array_equal(got[0], [0, 0])
    np.testing.assert_array_equal(slope[0], [0, 0])
    assert np.all(np.asarray(slope[1]) != 0)


@pytest.mark.parametrize("real", [(2,), (0, 3), (0, 1, 2, 3)], ids=str)
def test_masked_softmax_gradient(real, x64):
    mask = jnp.asarray([[j in real for j in range(4)]])
    energies, weights = NORMAL(0, 2, (1, 4)), NORMAL(0, 1, (1, 4))

    def value(energies) -> jax.Array:
        return jnp.sum(layers.masked_softmax(jnp.asarray(energies), mask) * weights)

    slope, h = np.asarray(jax.grad(value)(energies)), 1e-6
    for j in range(4):
        nudge = h * np.eye(4)[j : j + 1]
        rise = float(value(energies + nudge) - value(energies - nudge))
        np.testing.assert_allclose(slope[0, j], rise / (2 * h), atol=1e-8)
    assert np.any(slope != 0) == (len(real) > 1)


def test_masked_mean():
    vectors = NORMAL(0, 1, (3, 4, 2)).astype(np.float32)
    mask = np.array([[1, 1, 1, 1], [1, 0, 1, 0], [0, 0, 0, 0]], dtype=bool)
    got = layers.masked_mean(jnp.asarray(vectors), jnp.asarray(mask))
    want = [vectors[0].mean(0), (vectors[1, 0] + vectors[1, 2]) / 2, [0, 0]]
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_shares_have_a_gradient_however_small_the_weights_are():
    """In float32 the square of the smallest sum here is 0."""
    weights = jnp.array([[1.0, 2.0, 5.0], [0.0, 0.0, 0.0]])

    def last(weights, left):
        return layers.shares(left * jnp.abs(weights))[:, -1] @ jnp.array([1.0, 0.0])

    shares, slope = layers.shares(weights), jax.grad(last)(weights, 1.0)
    np.testing.assert_allclose(shares[0], [1 / 8, 2 / 8, 5 / 8])
    np.testing.assert_array_equal(shares[1], 0)
    np.testing.assert_allclose(slope[0], [-5 / 64, -5 / 64, 3 / 64], rtol=1e-6)
    for left in (1e-10, 1e-20, 1e-30, 1e-37, 0.0):
        small = jax.grad(last)(weights, left)
        assert np.isfinite(small).all(), left
        if left > 1e-31:
            np.testing.assert_allclose(layers.shares(left * weights), shares, rtol=1e-5)
            np.testing.assert_allclose(small, slope, rtol=1e-5)


def test_last_annotation():
    vectors = NORMAL(0, 1, (3, 4, 2)).astype(np.float32)
    mask = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 0, 0]], dtype=bool)
    got = layers.last_annotation(jnp.asarray(vectors), jnp.asarray(mask))
    np.testing.assert_array_equal(got, [vectors[0, 3], vectors[1, 1], [0, 0]])


def test_no_word_embeds_to_zero_and_trains_nothing():
    table = jnp.asarray(NORMAL(0, 1, (4, 3)), jnp.float32)
    tokens = jnp.asarray([[2, -1], [-1, 0]])
    got = layers.embed(table, tokens)
    np.testing.assert_array_equal(got[0, 0], table[2])
    np.testing.assert_array_equal(got[1, 1], table[0])
    np.testing.assert_array_equal(got[0, 1], np.zeros(3))
    np.testing.assert_array_equal(got[1, 0], np.zeros(3))
    slope = jax.grad(lambda t: jnp.sum(layers.embed(t, tokens)))(table)
    np.testing.assert_array_equal(slope.sum(axis=1), [3, 0, 3, 0])


def test_dropout_without_key_or_rate_changes_nothing(key):
    x = jnp.arange(6.0)
    assert layers.dropout(None, 0.5, x) is x
    assert layers.dropout(key, 0.0, x) is x


def test_dropout_keeps_the_mean(key):
    x = jnp.full((100, 100), 2.0)
    got = np.asarray(layers.dropout(key, 0.25, x))
    np.testing.assert_allclose(np.unique(got), [0, 2 / 0.75], rtol=1e-6)
    assert abs((got == 0).mean() - 0.25) < 0.02
    assert abs(got.mean() - 2) < 0.05
    again = layers.dropout(key, 0.25, x)
    np.testing.assert_array_equal(got, again)
    other = layers.dropout(jax.random.fold_in(key, 1), 0.25, x)
    assert not np.array_equal(got, other)


def test_dropout_of_embeddings_drops_whole_words(key):
    x = jnp.arange(1.0, 100 * 5 * 4 + 1).reshape(100, 5, 4)
    scaled = np.asarray(layers.embedding_dropout(key, 0.0, 0.25, x) / x)
    np.testing.assert_allclose(scaled, scaled[..., :1] * np.ones(4), rtol=1e-6)
    np.testing.assert_allclose(np.unique(scaled.round(4)), [0, 1.3333])
    assert abs((scaled == 0).mean() - 0.25) < 0.05
    assert layers.embedding_dropout(None, 0.5, 0.25, x) is x
    assert layers.embedding_dropout(key, 0.0, 0.0, x) is x


def test_linear_sums_its_inputs_and_counts_them(key):
    params = layers.init_linear(key, [2, 3], 4, gaussian(1.0))
    params = params.replace(b=jnp.arange(4.0))
    x, y = NORMAL(0, 1, (5, 2)), NORMAL(0, 1, (5, 3))
    got = layers.linear(params, jnp.asarray(x), jnp.asarray(y))
    want = x @ np.asarray(params.W[0]) + y @ np.asarray(params.W[1]) + np.arange(4)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError):
        layers.linear(params, jnp.asarray(x))


@pytest.mark.parametrize("reset", get_args(layers.Reset))
def test_gru_is_the_papers(reset, key, x64):
    params = layers.init_gru(key, [3, 2], 5, gaussian(1.0))
    params = jax.tree.map(lambda x: jnp.asarray(NORMAL(0, 1, x.shape)), params)
    x, y, h = NORMAL(0, 1, (4, 3)), NORMAL(0, 1, (4, 2)), NORMAL(0, 1, (4, 5))
    inputs = layers.recurrent_inputs(params, jnp.asarray(x), jnp.asarray(y))
    got = layers.gru(params, jnp.asarray(h), inputs, reset)
    theta = parameters.gru(params)
    want = [blocks.gru(theta, h[i], np.append(x[i], y[i]), reset) for i in range(4)]
    np.testing.assert_allclose(got, want, rtol=1e-12)


def test_lstm_is_the_papers(key, x64):
    params = layers.init_lstm(key, [3, 2], 5, gaussian(1.0))
    params = jax.tree.map(lambda x: jnp.asarray(NORMAL(0, 1, x.shape)), params)
    x, y = NORMAL(0, 1, (4, 3)), NORMAL(0, 1, (4, 2))
    h, c = NORMAL(0, 1, (4, 5)), NORMAL(0, 1, (4, 5))
    inputs = layers.recurrent_inputs(params, jnp.asarray(x), jnp.asarray(y))
    got = layers.lstm(params, jnp.asarray(h), jnp.asarray(c), inputs)
    theta = parameters.cell(params)
    want = [blocks.lstm(theta, h[i], c[i], np.append(x[i], y[i])) for i in range(4)]
    np.testing.assert_allclose(got[0], [w[0] for w in want], rtol=1e-12)
    np.testing.assert_allclose(got[1], [w[1] for w in want], rtol=1e-12)


@pytest.mark.parametrize("reset", [*get_args(layers.Reset), "lstm"])
def test_a_mask_is_a_matrix_that_lost_rows(reset, key, x64):
    """Gal and Ghahramani (2016), section 4: the two are the same for a sentence."""
    make = layers.init_lstm if reset == "lstm" else layers.init_gru
    unit = jax.tree.map(
        lambda leaf: jnp.asarray(NORMAL(0, 1, leaf.shape)),
        make(key, [3], 4, gaussian()),
    )
    masked = layers.with_masks(key, 0.5, {"unit": unit, "other": key}, rows=5)["unit"]
    assert {*np.unique(np.asarray(masked.mask))} == {0, 2}
    h, c = jnp.asarray(NORMAL(0, 1, (2, 5, 4)))
    inputs = layers.recurrent_inputs(unit, jnp.asarray(NORMAL(0, 1, (5, 3))))

    def step(unit, rows: slice) -> np.ndarray:
        if reset == "lstm":
            return np.asarray(layers.lstm(unit, h[rows], c[rows], inputs[rows])[0])
        return np.asarray(layers.gru(unit, h[rows], inputs[rows], reset))

    together = step(masked, slice(None))
    assert not np.allclose(together, step(unit, slice(None)))
    for n in range(5):
        thin = replace(unit, U=unit.U * masked.mask[n][:, None])
        np.testing.assert_allclose(together[n], step(thin, slice(n, n + 1))[0])


def test_a_mask_is_the_same_at_every_source_position(key):
    masked = layers.with_masks(key, 0.5, layers.init_gru(key, [3], 4, gaussian()), 2)
    new = layers.gru(masked, jnp.ones((2, 6, 4)), jnp.zeros((2, 6, 12)))
    np.testing.assert_array_equal(new, np.repeat(new[:, :1], 6, axis=1))
    assert not np.allclose(new[0], new[1])


@pytest.mark.parametrize(
    "init, gates", [(layers.init_gru, 3), (layers.init_lstm, 4)], ids=["GRU", "LSTM"]
)
def test_recurrence_starts_with_orthogonal_blocks_and_no_bias(init, gates, key):
    params = init(key, [3], 4, gaussian())
    blocks = np.split(np.asarray(params.U), gates, axis=1)
    for block in blocks:
        np.testing.assert_allclose(block @ block.T, np.eye(4), atol=1e-5)
    assert not np.allclose(blocks[0], blocks[1])
    assert not np.any(np.asarray(params.b))
    sizes = [leaf.size for leaf in jax.tree.leaves(params)]
    assert sum(sizes) == gates * (4 * 3 + 4 * 4 + 4)


def drawn(*shapes):
    return [jax.device_put(NORMAL(0, 1, shape)) for shape in shapes]


def test_products_with_a_vector_are_the_same_by_copies(x64):
    x, v, weights, rows, above = drawn((3, 4, 6), (6,), (3, 4), (3, 4, 6), (3, 6))
    expected = np.einsum("bsa,a->bs", x, v)
    for times in (vectors.times_vector, vectors._times_copies):
        np.testing.assert_allclose(times(x, v), expected, atol=1e-12)
    plain, gradient = jax.vjp(
        lambda w, r: jnp.einsum("bs,bsc->bc", w, r), weights, rows
    )
    for product in (vectors.weighted_sum, vectors._copies_product):
        mixed, back = jax.vjp(product, weights, rows)
        np.testing.assert_allclose(mixed, plain, atol=1e-12)
        for ours, theirs in zip(back(above), gradient(above), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-12)
    for ours, theirs in zip(
        vectors._copies_gradient(weights, rows, above), gradient(above), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, atol=1e-12)


@pytest.mark.parametrize(("platform", "copied"), [("tpu", True), ("cuda", False)])
def test_copies_are_for_tpus_alone(platform, copied):
    x, v, weights, rows = (
        jax.ShapeDtypeStruct(shape, jnp.float32)
        for shape in [(3, 4, 6), (6,), (3, 4), (3, 4, 6)]
    )

    def all_of(x, v, weights, rows):
        return vectors.times_vector(x, v), jax.grad(
            lambda w, r: vectors.weighted_sum(w, r).sum(), argnums=(0, 1)
        )(weights, rows)

    traced = jax.jit(all_of).trace(x, v, weights, rows)
    text = traced.lower(lowering_platforms=(platform,)).as_text()
    assert ("tensor<6x8xf32>" in text) is copied
    assert ("tensor<3x8x6xf32>" in text) is copied


def test_the_gradient_of_a_frequent_word_is_summed_in_all_bits():
    """Whatever is computed with: in bfloat16 a sum stands still after 256 ones."""
    table = jnp.ones((4, 2), jnp.bfloat16)
    tokens = jnp.zeros((1, 3000), jnp.int32).at[0, 5:9].set(3)

    def total(table):
        return jnp.sum(layers.embed(table, tokens).astype(jnp.float32))

    gradient = jax.grad(total)(table)
    assert gradient.dtype == jnp.bfloat16
    np.testing.assert_allclose(gradient[:, 0], [2996, 0, 0, 4], rtol=0.01)
