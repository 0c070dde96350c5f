# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from functools import cache
from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvnmt import encoder
from kvnmt.encoder import Merge
from kvnmt.layers import gaussian
from kvnmt.typing import Sizes

MASK = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 0, 0]], dtype=bool)


@cache
def encoder_of(merge: Merge) -> Callable[..., jax.Array]:
    C = encoder.annotation_size(merge, 3)
    sizes = Sizes(embedding=2, encoder=3, annotation=C, state=5, alignment=6)
    params = encoder.init(jax.random.key(0), sizes, merge, gaussian(1.0))
    return jax.jit(lambda x: encoder.encode(params, merge, x, jnp.asarray(MASK)))


def encode(merge: Merge, embedded: np.ndarray) -> np.ndarray:
    return np.asarray(encoder_of(merge)(embedded.astype(np.float32)))


def words() -> np.ndarray:
    return np.random.default_rng(1).normal(0, 1, (3, 4, 2))


@pytest.mark.parametrize("merge", get_args(Merge))
def test_padding_gives_zero_and_is_never_read(merge):
    want = encode(merge, words())
    assert want.shape == (3, 4, encoder.annotation_size(merge, 3))
    assert (want[~MASK] == 0).all() and (want[MASK] != 0).all()
    other = np.where(MASK[..., None], words(), 1e3)
    np.testing.assert_array_equal(encode(merge, other), want)


@pytest.mark.parametrize("merge", get_args(Merge))
def test_every_annotation_knows_the_whole_sentence(merge):
    want = encode(merge, words())
    for place in range(4):
        other = words()
        other[0, place] += 1
        moved = np.any(encode(merge, other) != want, axis=-1)
        np.testing.assert_array_equal(moved[0], [True] * 4)
        assert not moved[1:].any()


def test_concat_holds_the_forward_states_first():
    want = encode("concat", words())
    other = words()
    other[0, 3] += 1  # the last word
    got = encode("concat", other)
    np.testing.assert_array_equal(got[0, :3, :3], want[0, :3, :3])  # not read yet
    assert (got[0, :, 3:] != want[0, :, 3:]).all()
