# SPDX-License-Identifier: Apache-2.0
from typing import get_args

import jax.numpy as jnp
import numpy as np
import pytest

from kvnmt.decoder import conditional
from kvnmt.decoder.start import Initial
from kvnmt.errors import UserError
from tests.decoder.unrolled import B, T, Unrolled

close = {"rtol": 1e-5, "atol": 1e-6}


def start(it: Unrolled, params) -> np.ndarray:
    source = it.decoder.prepare(params, it.source)
    return np.asarray(it.decoder.initial_state(params, source, T).state)


@pytest.mark.parametrize("initial", get_args(Initial))
def test_a_sentence_starts_somewhere_and_an_empty_one_from_the_bias(initial):
    it = Unrolled(conditional.Options(initial=initial))
    if initial == "zero":
        assert it.params.initial is None
        np.testing.assert_array_equal(start(it, it.params), np.zeros((B, 6)))
        return
    bias = jnp.linspace(-1.0, 1.0, 6)
    params = it.params.replace(initial=it.params.initial.replace(b=bias))
    got = start(it, params)
    np.testing.assert_allclose(got[2], np.tanh(bias), **close)
    W = np.asarray(params.initial.W[0])
    annotations = np.asarray(it.source.annotations)
    seen = {
        "mean": [annotations[0].mean(axis=0), annotations[1, :2].mean(axis=0)],
        "last": [annotations[0, 3], annotations[1, 1]],
        "backward": list(np.asarray(it.source.backward_first)[:2]),
    }.get(initial)
    if seen is not None:
        np.testing.assert_allclose(got[:2], np.tanh(seen @ W + bias), **close)
    assert not np.allclose(got[0], got[1]) and not np.allclose(got[0], got[2])


def test_no_backward_encoder_to_start_from():
    it = Unrolled(conditional.Options(initial="backward"))
    forward = it.source.replace(backward_first=None)
    with pytest.raises(UserError, match="another decoder.initial or another merge"):
        it.decoder.prepare(it.params, forward)
