# SPDX-License-Identifier: Apache-2.0
"""What is said of each decoder; laws, and agreement with papers, are in ``laws/``."""

from functools import cache

import jax
import numpy as np
import pytest

from kvnmt import decoder as decoders
from kvnmt.decoder import mem_dec, past_future, single
from kvnmt.errors import UserError
from tests.decoder.unrolled import B, T, Unrolled

close = {"rtol": 1e-5, "atol": 1e-6}


@cache
def run(name: str):
    """Features and States of a decoder as it comes, with its own s_0 if it has one."""
    it = Unrolled(decoders.CATALOGUE[name].Options())
    features, states = it.run(it.params)
    source = it.decoder.prepare(it.params, it.source)
    return it, features, states, getattr(source, "start", None)


@pytest.mark.parametrize("name", sorted(decoders.CATALOGUE.keys() - {"transformer"}))
def test_the_first_state_is_the_start(name):
    _, _, states, start = run(name)
    stacked = name == "stacked_lstm"
    for first in states[0].hidden if stacked else [states[0].state]:
        np.testing.assert_allclose(first, start, **close)


def test_a_readout_may_see_the_state_before():
    _, features, states, start = run("single")
    np.testing.assert_allclose(features.state[:, 0], start, **close)
    np.testing.assert_allclose(features.state[:, 2], states[2].state, **close)
    current = Unrolled(single.Options(readout_state="current"))
    features, states = current.run(current.params)
    np.testing.assert_allclose(features.state[:, 2], states[3].state, **close)


def test_nothing_is_past_and_everything_is_future():
    _, features, states, start = run("past_future")
    np.testing.assert_array_equal(states[0].layers["past"], np.zeros((B, 6)))
    np.testing.assert_allclose(states[0].layers["future"], start, **close)
    for n, state in enumerate(states[1:]):  # the readout sees them updated
        for name in ("past", "future"):
            np.testing.assert_allclose(
                features.extras[name][:, n], state.layers[name], **close
            )


def test_one_layer_at_least():
    with pytest.raises(UserError, match="needs one of its layers"):
        Unrolled(past_future.Options(past=False, future=False))


def test_predictors_keep_their_place():
    """Also where parameters come as they were made, in no sorted tree."""
    it, features, _, _ = run("past_future")
    eager, _ = it.unroll(it.params)
    for left, right in zip(eager.auxiliary, features.auxiliary, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-5)


def test_memory_rnn_remembers_every_state():
    _, features, states, start = run("memory_rnn")
    np.testing.assert_allclose(states[1].summary, start, **close)  # m_1 = s_0
    last = states[-1]
    np.testing.assert_array_equal(last.states.count, [T + 1] * B)
    np.testing.assert_allclose(last.states.rows[:, 0], start, **close)
    np.testing.assert_allclose(last.states.rows[:, 1:], features.state, **close)


def test_noise_of_the_memory_is_drawn_in_training_alone(key):
    it, _, states, _ = run("mem_dec")
    source = it.decoder.prepare(it.params, it.source)

    def noise(key: jax.Array | None) -> np.ndarray:
        state = it.decoder.initial_state(it.params, source, T, key)
        return np.asarray(state.cells - source.cell[:, None])

    fixed, drawn = noise(None), noise(key)
    np.testing.assert_allclose(fixed, np.broadcast_to(fixed[:1], fixed.shape), **close)
    np.testing.assert_allclose(fixed[0], 0.1 * mem_dec.fixed_noise(8, 6), **close)
    assert not np.allclose(drawn[0], drawn[1])
    assert not np.allclose(drawn, noise(jax.random.fold_in(key, 1)))
    assert 0.05 < drawn.std() < 0.15
    for state in states:  # the weights that read
        np.testing.assert_allclose(state.reading.sum(axis=1), np.ones(B), **close)


def test_cells_that_start_equal_stay_equal():
    """Why the memory starts with noise."""
    it = Unrolled(mem_dec.Options(noise=0.0))
    _, states = it.run(it.params)
    for state, other in zip(states, run("mem_dec")[2], strict=True):
        cells = np.asarray(state.cells)
        np.testing.assert_allclose(cells, np.repeat(cells[:, :1], 8, axis=1), **close)
        assert np.ptp(np.asarray(other.cells), axis=1).min() > 1e-4
    assert not np.allclose(states[0].cells, states[-1].cells)
