# SPDX-License-Identifier: Apache-2.0
"""Of which type products are, and how much of it they keep."""

import jax
import optax
import pytest

from kvnmt import devices
from kvnmt.training import step as steps
from kvnmt.training.step import StepOptions
from tests.training.stepping import (
    KEY,
    OBJECTIVE,
    make_batch,
    make_model,
    mesh_of,
    stepper,
)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_products_are_of_the_type_that_is_asked_for(start, dtype):
    batch = devices.split_rows(make_batch(1), mesh_of(1))
    text = stepper(1, dtype=dtype).lower(start(), *batch).as_text()
    products = [line for line in text.splitlines() if "dot_general" in line]
    assert products and any("bf16" in line for line in products) == (
        dtype == "bfloat16"
    )


@pytest.mark.parametrize(("precision", "whole"), [("fast", False), ("float32", True)])
def test_float32_products_are_whole_where_they_are_asked_for(start, precision, whole):
    """Of every product, forward and backward; a TPU's own default is bfloat16."""
    options = StepOptions(precision=precision)
    step = steps.make_train_step(make_model(), OBJECTIVE, optax.sgd(1.0), KEY, options)
    state = steps.init_state(start().params, optax.sgd(1.0))
    traced = step.program.trace(step.key, state, *make_batch(1))
    lowered = traced.lower(lowering_platforms=("tpu",))
    products = [x for x in lowered.as_text().splitlines() if "dot_general" in x]
    assert len(products) > 20
    assert {"HIGHEST" in product for product in products} == {whole}


def test_products_are_else_as_jax_is_told(start):
    step = steps.make_train_step(
        make_model(), OBJECTIVE, optax.sgd(1.0), KEY, StepOptions()
    )
    state = steps.init_state(start().params, optax.sgd(1.0))
    with jax.default_matmul_precision("highest"):
        traced = str(step.program.trace(step.key, state, *make_batch(1)).jaxpr)
    assert "Precision.HIGHEST" in traced and "Precision.DEFAULT" not in traced
