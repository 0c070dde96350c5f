# SPDX-License-Identifier: Apache-2.0
"""A model that tests of searching share."""

import numpy as np
import pytest

from kvnmt.model.assembly import Model, Params
from tests.inference.translating import WORDS, build


@pytest.fixture(scope="module")
def talker() -> tuple[Model, Params]:
    """The system with most to carry; others differ in nothing that shows here."""
    return build("kvmematt-r2")


@pytest.fixture(scope="module")
def sentences() -> list[list[int]]:
    random = np.random.default_rng(4)
    sizes = [3, 7, 1, 5, 2, 7, 4, 6, 1, 3]
    return [random.integers(1, WORDS, n).tolist() for n in sizes]
