# SPDX-License-Identifier: Apache-2.0
"""Padding and the other rows of a batch never reach a sentence."""

import jax
import numpy as np
import pytest

from tests.laws import cases
from tests.laws.cases import SOURCE, TARGET
from tests.laws.test_model import MEMBERS, NAMES


@pytest.mark.parametrize("name", MEMBERS)
def test_wider_padding_changes_nothing(name, x64):
    forward = cases.forward(cases.CONFIGS[name])
    params = cases.params(cases.CONFIGS[name], "float64")
    wider_source = np.pad(SOURCE, ((0, 0), (0, 3)), constant_values=-1)
    wider_target = np.pad(TARGET, ((0, 0), (0, 2)), constant_values=-1)
    want = jax.device_get(forward(params, SOURCE, TARGET))
    got = jax.device_get(forward(params, wider_source, wider_target))
    S, T = SOURCE.shape[1], TARGET.shape[1]
    np.testing.assert_allclose(got.logits[:, :T], want.logits, atol=1e-12)
    alignments = want.features.alignments
    for wide, narrow in zip(got.features.alignments, alignments, strict=True):
        np.testing.assert_allclose(wide[:, :T, :S], narrow, atol=1e-12)
        assert (wide[:, :, S:] == 0).all()


@pytest.mark.parametrize("name", NAMES)
def test_rows_do_not_know_each_other(name, x64):
    forward = cases.forward(cases.CONFIGS[name])
    params = cases.params(cases.CONFIGS[name], "float64")
    want = np.asarray(forward(params, SOURCE, TARGET).logits)
    order = [3, 1, 1, 0]  # row 2 leaves, row 1 comes twice
    got = forward(params, SOURCE[order], TARGET[order]).logits
    np.testing.assert_allclose(got, want[order], atol=1e-12)
