# SPDX-License-Identifier: Apache-2.0
"""What the tests of the service share."""

import pytest

from kvnmt.runs.directory import Run, load_ensemble, load_run
from tests.helpers import trained, untrained


@pytest.fixture(scope="module", name="runs")
def _runs(tmp_path_factory) -> dict[str, Run]:
    """One that has learnt, and one with a memory."""
    base = tmp_path_factory.getbasetemp()
    folders = {"plain": trained(base), "memory": untrained(base, "kvmematt-r2")}
    return {name: load_run(folder) for name, folder in folders.items()}


@pytest.fixture(scope="module", name="both")
def _both(tmp_path_factory) -> Run:
    """An ensemble: one with a memory, and one that looks back at its own words."""
    base, names = tmp_path_factory.getbasetemp(), ("kvmematt-r2", "self-attentive-rnn")
    return load_ensemble([untrained(base, name) for name in names])
