# SPDX-License-Identifier: Apache-2.0
"""With products in bfloat16, every system computes nearly what it does in float32."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvnmt.losses import Objective, loss
from tests.laws import cases
from tests.laws.cases import SOURCE, TARGET

NAMES = [name for name in cases.DISTINCT if name in cases.NAMED]


@pytest.mark.parametrize("name", NAMES)
def test_bfloat16_is_near_float32(name):
    """Loss and gradient; what a loss is summed from, and memories, stay float32."""
    config = cases.CONFIGS[name]
    model, params = cases.build(config), cases.params(config, "float32")
    source, target = jnp.asarray(SOURCE), jnp.asarray(TARGET)

    def mean(params, dtype):
        low = jax.tree.map(lambda leaf: leaf.astype(dtype), params)
        prediction = model.forward(low, source, target)
        sums = loss(Objective(), prediction, source, target)
        assert prediction.logits.dtype == sums.total.dtype == jnp.float32
        if dtype == "bfloat16":
            assert prediction.features.state.dtype == jnp.bfloat16
        return sums.total / sums.tokens

    found = {}
    for dtype in ("float32", "bfloat16"):
        step = jax.jit(jax.value_and_grad(mean), static_argnums=1)
        found[dtype] = step(params, dtype)
    (loss32, slope32), (loss16, slope16) = found.values()
    np.testing.assert_allclose(loss16, loss32, rtol=0.02)
    ours, theirs = (
        np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(slope)])
        for slope in (slope16, slope32)
    )
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(slope16))
    cosine = ours @ theirs / np.linalg.norm(ours) / np.linalg.norm(theirs)
    assert cosine > 0.98


MEMORIES = {
    "kvmematt-r2": "keys",
    "interactive": "keys",
    "memdec": "cells",
    "coverage-linguistic": "coverage",
    "coverage-subtractive": "coverage",
}


@pytest.mark.parametrize("name", MEMORIES)
def test_memories_are_written_in_float32(name):
    config = cases.CONFIGS[name]
    model, params = cases.build(config), cases.params(config, "float32")

    def step(params):
        low = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params)
        source = model.encode(low, SOURCE)
        state = model.initial_state(low, source, 4)
        return model.step(low, source, state, jnp.asarray(TARGET[:, 0]))[0]

    written = [
        leaf.dtype
        for path, leaf in jax.tree_util.tree_flatten_with_path(
            jax.eval_shape(step, params)
        )[0]
        if jax.tree_util.keystr(path).endswith(f".{MEMORIES[name]}")
    ]
    assert written == [jnp.float32]
