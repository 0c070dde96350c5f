# SPDX-License-Identifier: Apache-2.0
"""What the tests of the service share."""

from collections.abc import Iterator

import pytest

from kvnmt.runs.directory import Run, load_ensemble, load_run
from tests.browser import open_tab, watched
from tests.helpers import trained, untrained
from tests.serve.serving import Started, started
from tests.serve.typed import LONG


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


@pytest.fixture(scope="module", name="service")
def _service(runs) -> Iterator[Started]:
    with started(runs) as service:
        yield service


@pytest.fixture(scope="module", name="patient")
def _patient(runs) -> Iterator[Started]:
    """A service that takes and writes longer lines."""
    with started(runs, search=LONG, tokens=40) as service:
        yield service


@pytest.fixture(scope="module", name="tab")
def _tab() -> Iterator:
    """One page of one browser."""
    with open_tab() as tab:
        tab.set_default_timeout(30_000)  # a program may be compiled
        yield tab


@pytest.fixture(name="page")
def _page(tab, patient) -> Iterator:
    """The page of the service, which asks nothing of anybody else."""
    with watched(tab, "status of 413") as requests:
        tab.goto(patient.url)
        yield tab
        tab.goto("about:blank")
    own = (f"{patient.url}/", f"{patient.url}/explore", "data:", "about:")
    assert all(url.startswith(own) for url in requests), requests
