# SPDX-License-Identifier: Apache-2.0
"""What the tests of experiments share."""

import jax
import pytest


@pytest.fixture(autouse=True)
def rows_share_programs(monkeypatch) -> None:
    """Rows of tests are few and alike: each would compile what others have."""
    monkeypatch.setattr(jax, "clear_caches", lambda: None)
