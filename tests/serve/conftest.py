# SPDX-License-Identifier: Apache-2.0
"""What the tests of the service share."""

import pytest

from kvnmt.runs.directory import Run, load_run
from tests.helpers import trained, untrained


@pytest.fixture(scope="module", name="runs")
def _runs(tmp_path_factory) -> dict[str, Run]:
    """One that has learnt, and one with a memory."""
    base = tmp_path_factory.getbasetemp()
    folders = {"plain": trained(base), "memory": untrained(base, "kvmematt-r2")}
    return {name: load_run(folder) for name, folder in folders.items()}
