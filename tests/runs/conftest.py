# SPDX-License-Identifier: Apache-2.0
"""Runs that tests read, share or spoil."""

import shutil
from pathlib import Path

import pytest

import kvnmt
from tests.helpers import trained, untrained


@pytest.fixture(scope="module", name="run")
def _run(tmp_path_factory) -> kvnmt.Run:
    """As notebooks have it."""
    return kvnmt.load(trained(tmp_path_factory.getbasetemp()))


@pytest.fixture(scope="module")
def shared(tmp_path_factory) -> Path:
    """Leave it as it is."""
    return trained(tmp_path_factory.getbasetemp())


@pytest.fixture
def stranger(tmp_path, tmp_path_factory) -> Path:
    """A run directory that may be spoilt."""
    folder = untrained(tmp_path_factory.getbasetemp(), "rnnsearch-star")
    return Path(shutil.copytree(folder, tmp_path / "run"))
