# SPDX-License-Identifier: Apache-2.0
"""Settings of all tests: eight devices on any machine, and keys."""

from collections.abc import Iterator

import jax
import pytest

jax.config.update("jax_num_cpu_devices", 8)  # before the first array


@pytest.fixture
def key() -> jax.Array:
    """A fixed random key."""
    return jax.random.key(20180713)


@pytest.fixture
def x64() -> Iterator[None]:
    """Keeps float64 arrays float64 while the test runs."""
    with jax.enable_x64(True):
        yield
