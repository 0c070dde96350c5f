# SPDX-License-Identifier: Apache-2.0
"""The text of these tests is short: no epoch of it pays for the program of a shape."""

from collections.abc import Iterator

import pytest

from kvnmt.data import shapes


@pytest.fixture(scope="module", autouse=True)
def every_shape_from_the_start() -> Iterator[None]:
    """As with long text."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shapes, "COMPILE_COST", 0)
        yield
