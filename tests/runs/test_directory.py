# SPDX-License-Identifier: Apache-2.0
"""A run directory that is read while it is trained, and what it tells of itself."""

import errno
import os
import shutil
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import jax
import pytest

import kvnmt
from kvnmt import files
from kvnmt.errors import UserError
from kvnmt.runs import making
from kvnmt.runs.average import average
from kvnmt.runs.config import Experiment
from kvnmt.runs.directory import load_run
from kvnmt.runs.making import check_free
from kvnmt.training.checkpoints.writer import Checkpoints
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
        assert average([run], tmp_path / "mean") == [f"{run}/checkpoints/0"]
    else:
        read(run)
    assert steps == [1, 0]


@pytest.mark.parametrize(
    ("is_run", "told"),
    [
        (False, "run' cannot be made: Permission denied; name another place."),
        (True, "the config in .*run' cannot be written: Permission denied; mend that"),
    ],
)
def test_a_config_that_cannot_be_written_is_told(tmp_path, monkeypatch, is_run, told):
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    if is_run:
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "config.json").write_text("{}")
    monkeypatch.setattr(making, "write_json", refuse)
    with pytest.raises(UserError, match=told):
        making.make_run(tmp_path / "run", Experiment(), None, resume=is_run)


def test_a_run_tells_its_versions_where_kvnmt_is_not_installed(monkeypatch):
    installed = making.version

    def version(name):
        if name == "kvnmt":
            raise PackageNotFoundError(name)
        return installed(name)

    monkeypatch.setattr(making, "version", version)
    versions = making.package_versions()
    assert versions["kvnmt"] == kvnmt.__version__
    assert versions["jax"] == jax.__version__


def test_a_name_that_no_checkpoint_could_be_written_to_is_refused(tmp_path):
    """Before anything is trained, or read as if it were damaged."""
    folder = tmp_path / os.fsdecode(b"m\xfcller")
    for use in (load_run, check_free):
        with pytest.raises(UserError, match="ller' has a name that is not UTF-8"):
            use(folder)
