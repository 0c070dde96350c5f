# SPDX-License-Identifier: Apache-2.0
"""Own code of a table: imported first, and known to its results."""

import dataclasses
import sys
from pathlib import Path
from types import ModuleType

import pytest

from experiments.harness import rows
from experiments.harness.results import write_result
from experiments.harness.settings import config_digest
from kvnmt.attention import kv_memory
from kvnmt.errors import UserError
from kvnmt.runs import own_code
from kvnmt.runs.config import Experiment
from tests.experiments.saying import told


def test_own_code_is_imported_first(call, tmp_path):
    (tmp_path / "my_systems.py").write_text("print('mine')\n")
    out, _ = call("--list", "--import", str(tmp_path / "my_systems.py"))
    assert out.startswith("mine") and "de-en-rnnencdec-scratch-1" in out


def imported(monkeypatch, **files: Path) -> None:
    for name, path in files.items():
        module = ModuleType(name)
        module.__file__ = str(path)
        monkeypatch.setitem(sys.modules, name, module)


def test_own_code_is_neither_python_nor_the_table(tmp_path, monkeypatch):
    """Which may stand in the same folder, and of which more is imported later."""
    (tmp_path / "mine.py").write_text("rate = 1\n")
    monkeypatch.setattr(kv_memory.Options, "__module__", "mine")
    monkeypatch.setattr(own_code, "PYTHON", tmp_path / "lib")
    imported(monkeypatch, mine=tmp_path / "mine.py")
    model = dataclasses.replace(Experiment().model, attention=kv_memory.Options())
    before = told(model)
    for name, place in (("csv", "lib/csv.py"), ("__main__", "table.py")):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_text("")
        imported(monkeypatch, **{name: tmp_path / place})
    assert told(model) == before
    (tmp_path / "beside.py").write_text("")
    assert told(model) == before
    imported(monkeypatch, beside=tmp_path / "beside.py")
    assert told(model) == before  # the mechanism takes nothing of it
    (tmp_path / "mine.py").write_text("import csv\nrate = 1\n")
    before = told(model)
    (tmp_path / "beside.py").write_text("rate = 2\n")
    assert told(model) == before
    for line in ("import beside", "from beside import rate"):
        (tmp_path / "mine.py").write_text(f"{line}\n")
        (tmp_path / "beside.py").write_text("rate = 2\n")
        before = told(model)
        (tmp_path / "beside.py").write_text("rate = 3\n")
        assert told(model) != before


def test_a_result_knows_the_code_of_its_mechanism(tmp_path, monkeypatch):
    """But not that of other rows."""
    package = tmp_path / "mine"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "tired.py").write_text("rate = 1\n")
    monkeypatch.setattr(kv_memory.Options, "__module__", "mine.tired")
    plain = Experiment()
    model = dataclasses.replace(plain.model, attention=kv_memory.Options())
    of_it = dataclasses.replace(plain, model=model)
    assert told(plain.model) is told(model) is None
    imported(monkeypatch, mine=package / "__init__.py")
    before = told(model)
    assert told(plain.model) is None and before
    (package / "tired.py").write_text("rate = 2\n")
    assert told(model) not in (None, before)
    row = rows.Row(
        folder=tmp_path / "row", system="tired", experiment=of_it, measure=lambda _: {}
    )
    noted = {"config": config_digest(of_it), "based_on": {}, "own_code": before}
    write_result(row.folder, noted)
    with pytest.raises(UserError, match="measured with other code than --import"):
        row.result()
    (package / "tired.py").write_text("rate = 1\n")
    assert told(model) == before and row.result()
