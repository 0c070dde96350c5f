# SPDX-License-Identifier: Apache-2.0
"""Texts and runs that tests of the command share."""

from pathlib import Path

import pytest

from kvnmt.runs.directory import Run, load_run
from tests.cli.evaluating import GOLD, LINES, Text
from tests.cli.starts import MINE, OTHER, THIRD, WAITING, saved
from tests.helpers import toy_lines, trained, untrained


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> Text:
    """What `kvnmt evaluate` is asked about."""
    base = tmp_path_factory.getbasetemp()
    folder = tmp_path_factory.mktemp("evaluated")
    names = "kvmematt-r2", "self-attentive-residual"
    made = Text(folder, trained(base), *(untrained(base, name) for name in names))
    made.write("test.src", LINES)
    made.write("test.ref", [line.upper() for line in LINES])
    made.write("test.align", GOLD)
    return made


@pytest.fixture(scope="module")
def texts(tmp_path_factory) -> Path:
    """A folder with a test set of seven lines, one of them empty."""
    folder = tmp_path_factory.mktemp("text")
    lines = [*toy_lines(9, 3), "", *toy_lines(10, 3)]
    (folder / "test.src").write_text("".join(f"{line}\n" for line in lines))
    (folder / "test.ref").write_text("".join(f"{line.upper()}\n" for line in lines))
    (folder / "short.ref").write_text("A\n")
    (folder / "empty").write_text("")
    (folder / "latin").write_bytes(b"a\ncaf\xe9\nb\n")
    (folder / "hole").write_text("a\n\nb\n")
    return folder


@pytest.fixture(scope="module", name="run")
def _run(folder) -> Run:
    return load_run(folder)


@pytest.fixture(name="places")
def _places(tmp_path) -> dict[str, Path]:
    (tmp_path / "file").write_text("a\n")
    mine = saved(tmp_path / "mine", MINE, "mematt")
    (mine / "checkpoints" / "5").mkdir(parents=True)
    return {
        "CHECKPOINT": mine / "checkpoints" / "5",
        "MINE": mine,
        "OTHER": saved(tmp_path / "other", OTHER),
        "THIRD": saved(tmp_path / "third", THIRD),
        "WAITING": saved(tmp_path / "waiting", 1, **WAITING),
        "FILE": tmp_path / "file",
    }
