# SPDX-License-Identifier: Apache-2.0
"""Attention after the scan is attention in it; feeding back is a choice."""

from typing import Any

import jax
import numpy as np
import pytest

from kvnmt import attention as attentions
from kvnmt.attention import Attended, Moment, dot, kv_memory, neural_coverage
from kvnmt.decoder import stacked_lstm
from kvnmt.decoder.stacked_lstm import Options
from kvnmt.errors import UserError
from tests.decoder.unrolled import ADDITIVE, Unrolled

close = {"rtol": 1e-12, "atol": 1e-12}


def writes_the_same(params: Any, source: Any, state: Any, moment: Any) -> Any:
    """Changes nothing, but the attention cannot wait for it."""
    return state


@pytest.mark.parametrize(
    "options",
    [
        member.Options()
        for member in attentions.CATALOGUE.values()
        if member.build(member.Options()).write is None
    ],
    ids=attentions.CATALOGUE.name_of,
)
def test_attending_after_the_scan_is_attending_in_it(options, x64):
    attention = attentions.CATALOGUE.build(options)
    after = Unrolled(Options(), attention)
    elsewhere = attention._replace(write=writes_the_same)
    inside = Unrolled(Options(), elsewhere)
    want, _ = inside.run(inside.params)
    got, _ = after.run(after.params)
    for left, right in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(left, right, **close)


@pytest.mark.parametrize("score_state", ["current", "previous"])
def test_what_waits_sees_the_whole_moment(score_state, x64):
    """The word and the state before too, and the State from which it never moves."""
    memory = kv_memory.build(kv_memory.Options())

    def read(params: Any, source: Any, state: Any, moment: Moment) -> Attended:
        seen = moment.query * moment.embedded[:, :1] + moment.previous_state
        return memory.read(params, source, state, moment.replace(query=seen))

    still = memory._replace(read=read, write=None)
    after = Unrolled(Options(score_state=score_state), still)
    inside = Unrolled(
        Options(score_state=score_state), still._replace(write=writes_the_same)
    )
    want, _ = inside.run(inside.params)
    got, _ = after.run(after.params)
    for left, right in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(left, right, **close)


def test_what_feeds_a_later_step_cannot_wait():
    writing = attentions.CATALOGUE.build(neural_coverage.Options())
    assert stacked_lstm.can_wait(Options(), ADDITIVE)
    assert not stacked_lstm.can_wait(Options(), writing)
    assert not stacked_lstm.can_wait(Options(input_feeding=True), ADDITIVE)


def test_feeding_back_nothing_is_attention_without_feeding_back(x64):
    attention = attentions.CATALOGUE.build(dot.Options())
    fed = Unrolled(Options(input_feeding=True), attention)
    plain = Unrolled(Options(), attention)
    lowest, *others = fed.params.layers
    deaf = lowest.replace(W=(lowest.W[0], 0 * lowest.W[1]))
    without = (lowest.replace(W=lowest.W[:1]), *others)
    want, _ = plain.run(fed.params.replace(layers=without, attentional=None))
    got, states = fed.run(fed.params.replace(layers=(deaf, *others)))
    np.testing.assert_allclose(got.context, want.context, **close)
    W_d = fed.params.attentional
    shown = want.state @ W_d.W[0] + want.context @ W_d.W[1] + W_d.b
    np.testing.assert_allclose(got.state, np.tanh(shown), **close)
    np.testing.assert_allclose(states[-1].fed, got.state[:, -1], **close)
    heard, _ = fed.run(fed.params)
    np.testing.assert_allclose(heard.state[:, 0], got.state[:, 0], **close)  # e_0 = 0
    assert not np.allclose(heard.context, want.context)


def test_all_layers_start_alike_and_the_top_is_shown():
    it = Unrolled(Options(layers=3))
    features, states = it.run(it.params)
    start = states[0].hidden
    for hidden, cell in zip(start, states[0].cells, strict=True):
        np.testing.assert_array_equal(hidden, start[0])
        assert not np.any(np.asarray(cell))
    np.testing.assert_allclose(features.state[:, 0], states[1].hidden[-1], rtol=1e-6)
    with pytest.raises(UserError, match="layers is 0 but .* at least 1"):
        Unrolled(Options(layers=0))
