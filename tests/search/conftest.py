# SPDX-License-Identifier: Apache-2.0
"""A world that tests of searching share, and how long its sentences may be."""

import numpy as np
import pytest

from tests.search.searching import LENGTH, ROWS, WORDS
from tests.search.worlds import World, random_world


@pytest.fixture(scope="module")
def world() -> World:
    return random_world(1, ROWS, WORDS, LENGTH)


@pytest.fixture(scope="module")
def limits() -> np.ndarray:
    return np.random.default_rng(2).integers(1, LENGTH + 1, ROWS).astype(np.int32)
