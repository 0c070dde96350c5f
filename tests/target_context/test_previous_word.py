# SPDX-License-Identifier: Apache-2.0
import jax.numpy as jnp

from kvnmt.target_context import previous_word


def test_state_and_previous_word_pass_unchanged():
    context = previous_word.build(previous_word.Options())
    state, embedded = jnp.ones((2, 5)), jnp.zeros((2, 3))
    memory, seen = context.step((), (), state, embedded)
    assert memory == () and list(seen) == ["state", "word"]
    assert seen["state"] is state and seen["word"] is embedded
