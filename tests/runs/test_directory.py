# SPDX-License-Identifier: Apache-2.0
"""A run directory that is read while it is trained, and what it tells of itself."""

import shutil
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import jax
import pytest

import kvnmt
from kvnmt import files
from kvnmt.runs import directory
from kvnmt.runs.average import average
from kvnmt.runs.directory import load_run
from kvnmt.training.checkpoint import Checkpoints
from tests.helpers import untrained


@pytest.mark.parametrize("read", [load_run, "average"])
def test_a_checkpoint_that_goes_while_it_is_read_is_not_missed(
    read, tmp_path, tmp_path_factory, monkeypatch
):
    folder = untrained(tmp_path_factory.getbasetemp(), "rnnsearch-star")
    run = Path(shutil.copytree(folder, tmp_path / "run"))
    best = Path(shutil.copytree(run / "checkpoints/0", run / "checkpoints/1"))
    plain = files.read_manifest(best) | {"step": 1, "score": 9.0}
    files.write_manifest(best, plain)
    steps, restore = [], Checkpoints.restore_params

    def removed_first(self, like, step):
        steps.append(step)
        shutil.rmtree(best, ignore_errors=True)
        return restore(self, like, step)

    monkeypatch.setattr(Checkpoints, "restore_params", removed_first)
    if read == "average":
        assert average([run], tmp_path / "mean") == [f"{run}/0"]
    else:
        read(run)
    assert steps == [1, 0]


def test_a_run_tells_its_versions_where_kvnmt_is_not_installed(monkeypatch):
    installed = directory.version

    def version(name):
        if name == "kvnmt":
            raise PackageNotFoundError(name)
        return installed(name)

    monkeypatch.setattr(directory, "version", version)
    versions = directory.package_versions()
    assert versions["kvnmt"] == kvnmt.__version__
    assert versions["jax"] == jax.__version__
