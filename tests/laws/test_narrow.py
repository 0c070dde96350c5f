# SPDX-License-Identifier: Apache-2.0
"""Every mechanism among some words: the same step, and only what is allowed."""

import jax
import numpy as np
import pytest

from tests.laws import cases
from tests.laws.test_model import MEMBERS

ALL = np.arange(cases.TARGET_WORDS)
EVERY = np.ones((len(cases.SOURCE), len(ALL)), bool)
SOME = np.array([0, 1, 3, 4, 7, 8, 8, 8, 8])  # copies fill it up
ALLOWED = np.array(
    [
        [1, 1, 1, 1, 1, 1, 0, 0, 0],
        [1, 1, 0, 0, 1, 0, 0, 0, 0],
        [1, 1, 0, 1, 0, 1, 0, 0, 0],
        [1, 1, 0, 0, 0, 0, 0, 0, 0],
    ],
    bool,
)
NONE = np.full(len(cases.SOURCE), -1)  # the word before the first
BEFORE = np.array([7, 4, -1, 0])
BEFORE_AMONG_SOME = np.array([4, 3, -1, 0])
OTHERS = ("past-future-average", "maxout-low-rank", "language-model")


@pytest.mark.parametrize("name", [*MEMBERS[:5], *OTHERS])
def test_a_step_among_some_words_is_the_same_step(name):
    config = cases.CONFIGS[name]
    model, params = cases.build(config), cases.params(config)

    @jax.jit
    def step(words, allowed, before):
        source = model.encode(params, cases.SOURCE)
        state = model.initial_state(params, source, 3)
        few, source = model.narrow(params, source, words, allowed)
        state, prediction = model.step(few, source, state, before)
        return state, [head.logits for head in prediction.heads], prediction.logits

    def told(*given):
        return jax.device_get(step(*given))

    def check(ours, theirs):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)

    _, _, logits = told(ALL, EVERY, NONE)
    exact = cases.forward(config)(params, cases.SOURCE, cases.TARGET).logits
    check(logits, np.asarray(exact)[:, 0])
    state, heads, _ = told(ALL, EVERY, BEFORE)
    same, fewer, logits = told(SOME, ALLOWED, BEFORE_AMONG_SOME)
    jax.tree.map(check, same, state)
    for narrow, head in zip(fewer, heads, strict=True):
        check(narrow, np.where(ALLOWED, head[:, SOME], -np.inf))
    assert np.array_equal(np.isfinite(logits), ALLOWED)
