# SPDX-License-Identifier: Apache-2.0
"""What is the decoder's own: agreement with the papers is tested in ``laws/``."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvnmt.attention import Attended, Attention, additive
from kvnmt.decoder import conditional
from kvnmt.decoder.conditional import Options
from kvnmt.layers import gaussian
from kvnmt.typing import Sizes

SIZES = Sizes(embedding=3, encoder=4, annotation=8, state=5, alignment=6)


def spy(calls: list) -> Attention:
    """An attention whose State counts writes, and which notes how it is called."""

    def read(params, source, state, moment):
        calls.append(("read", params, state, moment))
        context = jnp.full((2, 8), float(params))
        return Attended(context, None)

    def write(params, source, state, moment):
        calls.append(("write", params, state, moment))
        return state + 1

    numbers = iter(range(9))
    return Attention(
        init=lambda key, sizes, weights: next(numbers),
        prepare=lambda params, annotations, mask: None,
        initial_state=lambda params, source: 0,
        read=read,
        write=write,
        context_size=lambda sizes: sizes.annotation,
    )


def run(options: Options, key: jax.Array) -> tuple[list, list]:
    calls: list = []
    decoder = conditional.build(options, spy(calls))
    params = decoder.init(key, SIZES, gaussian(1.0))
    annotations = jax.random.normal(key, (2, 4, 8))
    source = decoder.prepare(params, annotations, jnp.ones((2, 4), bool))
    state, states = decoder.initial_state(params, source), []
    for t in range(2):
        inputs = decoder.inputs(params, jnp.full((2, 3), float(t)))
        state, features = decoder.step(params, source, state, inputs)
        assert features.alignments == ()
        assert features.context.shape == (2, *decoder.feature_sizes(SIZES))
        states.append(state)
    return calls, states


@pytest.mark.parametrize("shared", [False, True])
def test_rounds_alternate_reads_and_writes(shared, key):
    calls, states = run(Options(rounds=2, share_rounds=shared), key)
    own = [0, 0, 0, 0] if shared else [0, 0, 1, 1]
    assert [c[0] for c in calls] == ["read", "write"] * 4
    assert [c[1] for c in calls] == own * 2
    assert [c[2] for c in calls] == [0, 0, 1, 1, 2, 2, 3, 3]  # memory outlives a step
    assert [s.attention for s in states] == [2, 4]


def test_moment_fills_as_the_step_goes_on(key):
    calls, states = run(Options(rounds=2), key)
    reads = [c[3] for c in calls if c[0] == "read"]
    writes = [c[3] for c in calls if c[0] == "write"]
    for moment in reads:
        assert moment.decoder_state is None and moment.attended is None
    np.testing.assert_array_equal(reads[0].query, reads[1].query)  # always q_t
    np.testing.assert_array_equal(reads[2].previous_state, states[0].state)
    np.testing.assert_array_equal(reads[2].embedded, np.ones((2, 3)))
    assert not np.allclose(writes[0].decoder_state, writes[1].decoder_state)
    np.testing.assert_array_equal(writes[1].decoder_state, states[0].state)
    np.testing.assert_array_equal(writes[1].attended.context, np.ones((2, 8)))


def test_empty_source_starts_from_the_bias(key):
    decoder = conditional.build(Options(), additive.build(additive.Options()))
    params = decoder.init(key, SIZES, gaussian(1.0))
    params = params.replace(initial=params.initial.replace(b=jnp.arange(5.0)))
    mask = jnp.asarray([[True] * 4, [False] * 4])
    source = decoder.prepare(params, jnp.ones((2, 4, 8)), mask)
    got = decoder.initial_state(params, source).state
    np.testing.assert_allclose(got[1], np.tanh(np.arange(5)), rtol=1e-5)
    assert not np.allclose(got[0], got[1])


def test_at_least_one_round():
    with pytest.raises(ValueError, match="one round"):
        conditional.build(Options(rounds=0), additive.build(additive.Options()))
