# SPDX-License-Identifier: Apache-2.0
"""What is a model's own; the laws of all systems are in ``laws/``."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvnmt import models
from kvnmt.attention import additive
from kvnmt.errors import UserError
from kvnmt.models import Dropout
from kvnmt.systems import SYSTEMS, system
from tests.laws import cases
from tests.laws.cases import SOURCE, TARGET

NO_DROPOUT = Dropout(0.0, 0.0, 0.0)


def logits(rates: Dropout, key: jax.Array | None) -> np.ndarray:
    config = dataclasses.replace(cases.BASE, dropout=rates)
    prediction = cases.forward(config)(cases.params(config), SOURCE, TARGET, key)
    return np.asarray(prediction.logits)


def test_the_same_config_gives_the_same_functions():
    assert cases.build(cases.BASE) is cases.build(dataclasses.replace(cases.BASE))
    assert cases.build(cases.BASE) is not models.build(cases.BASE, 8, 9)


def test_dropout_needs_a_key_and_a_rate(key):
    plain = logits(NO_DROPOUT, None)
    np.testing.assert_array_equal(logits(Dropout(0.5, 0.5, 0.5), None), plain)
    np.testing.assert_allclose(logits(NO_DROPOUT, key), plain, atol=1e-6)


@pytest.mark.parametrize("place", ["embedding", "annotations", "output"])
def test_dropout_in_each_place(place, key):
    rates = dataclasses.replace(NO_DROPOUT, **{place: 0.5})
    dropped = logits(rates, key)
    assert not np.allclose(dropped, logits(NO_DROPOUT, None))
    np.testing.assert_array_equal(logits(rates, key), dropped)
    assert not np.allclose(logits(rates, jax.random.fold_in(key, 1)), dropped)


def test_output_dropout_leaves_the_recurrence_alone(key):
    config = dataclasses.replace(cases.BASE, dropout=Dropout(0.0, 0.0, 0.5))
    forward, params = cases.forward(config), cases.params(config)
    plain = forward(params, SOURCE, TARGET, None).features
    dropped = forward(params, SOURCE, TARGET, key).features
    for left, right in zip(jax.tree.leaves(plain), jax.tree.leaves(dropped)):
        np.testing.assert_allclose(left, right, atol=1e-6)


@pytest.mark.parametrize(
    "initializer, deviation, table",
    [("gaussian", 0.01, 0.01), ("glorot", (2 / 80) ** 0.5, 0.1)],
)
def test_initialisers(initializer, deviation, table, key):
    config = models.ModelConfig(
        embedding=40, encoder=40, state=40, initializer=initializer
    )

    @jax.jit
    def some(key: jax.Array) -> tuple[jax.Array, ...]:
        params = models.build(config, 50, 50).init(key)
        return params.readout.W[0], params.source_embedding, params.readout.b

    matrix, embedding, bias = (np.asarray(x) for x in some(key))
    assert abs(matrix.std() / deviation - 1) < 0.1
    assert abs(embedding.std() / table - 1) < 0.1
    assert not np.any(bias)


def test_parameters_are_single_precision_and_counted():
    params = jax.eval_shape(cases.build(cases.BASE).init, jax.random.key(0))
    leaves = jax.tree.leaves(params)
    assert all(leaf.dtype == jnp.float32 for leaf in leaves)
    sizes = [int(np.prod(leaf.shape)) for leaf in leaves]
    assert models.count_parameters(params) == sum(sizes)


def test_alignment_layer_is_as_wide_as_the_state_unless_given():
    assert models.ModelConfig(state=7).sizes.alignment == 7
    assert models.ModelConfig(state=7, alignment=3).sizes.alignment == 3


def test_a_system_leaves_sizes_alone():
    for name, what in SYSTEMS.items():
        config = what.model(cases.BASE)
        assert (config.sizes, config.dropout) == (cases.BASE.sizes, Dropout())
        assert (what.objective().atteos > 0) == name.endswith("-atteos")
    assert isinstance(SYSTEMS["rnnsearch-star"].attention, additive.Options)


def test_an_unknown_system_names_its_neighbour():
    assert system("mematt") is SYSTEMS["mematt"]
    with pytest.raises(UserError, match="did you mean 'mematt'"):
        system("memat")
