# SPDX-License-Identifier: Apache-2.0
"""A file of a user's own is run before a command, and may list a mechanism."""

import sys

import pytest

from kvnmt.attention import CATALOGUE
from kvnmt.runs.directory import load_experiment
from tests.cli.commands import check_sentence
from tests.helpers import toy_data

MINE = """
import sys
from dataclasses import dataclass

from beside import SCALE
from kvnmt.attention import CATALOGUE, additive


@dataclass(frozen=True)
class Options(additive.Options):
    scale: float = SCALE


def build(options):
    return additive.build(options)


CATALOGUE.add("mine", sys.modules[__name__])
"""
OTHER_CODE = "was trained with other code of its mechanisms"
SMALL = """--model.embedding 4 --model.encoder 4 --model.state 4 --training.epochs 1
    --training.shapes 1 --training.batch-size 8 --data.vocabulary words
    --data.min-count 1 --model.initializer wide""".split()


@pytest.fixture(name="mine")
def _mine(tmp_path):
    """A file that lists an attention; what it leaves in this process goes again."""
    path = tmp_path / "my_attention.py"
    path.write_text(MINE)
    (tmp_path / "beside.py").write_text("SCALE = 2.0\n")
    before = list(sys.path)
    yield path
    sys.path[:] = before
    forget()
    sys.modules.pop("beside", None)


def forget() -> None:
    """As another process would begin."""
    sys.modules.pop("my_attention", None)
    if "mine" in CATALOGUE:
        CATALOGUE.remove("mine")


def test_an_attention_of_ones_own_is_trained_and_used(kvnmt, tmp_path, mine):
    data = toy_data(tmp_path / "text")
    text = ["--data.source", data.source, "--data.target", data.target]
    text += ["--data.valid-source", data.valid_source]
    text += ["--data.valid-target", data.valid_target]
    asked = ["train", tmp_path / "run", *text, *SMALL, "--attention", "mine"]
    own = ["--import", mine]
    asked += ["--model.attention.scale", 3]
    said = kvnmt(*asked, *own)
    assert said.status == 0, said.err
    assert f"kvnmt translate {tmp_path / 'run'} --import {mine} <" in said.err
    forget()
    said = kvnmt("translate", tmp_path / "run", given=b"a b\n")
    check_sentence(said, "has 'mine' for attention, which is not listed", "--import")
    said = kvnmt(*own, "translate", tmp_path / "run", given=b"a b\n")
    assert said.status == 0 and said.out.count(b"\n") == 1
    assert load_experiment(tmp_path / "run").model.attention.scale == 3
    assert OTHER_CODE not in said.err
    for file in (mine, tmp_path / "beside.py"):
        text = file.read_text()
        file.write_text(f"{text}# as it was, but for this\n")
        for command in (["translate", tmp_path / "run"], [*asked, "--resume"]):
            forget()
            said = kvnmt(*own, *command, given=b"a b\n")
            assert said.status == 0 and OTHER_CODE in said.err
        file.write_text(text)


@pytest.mark.parametrize(
    ("name", "code", "part"),
    [
        ("broken.py", "a = 1\nb = a / 0\n", "broken.py, line 2: ZeroDivisionError: "),
        ("spelt.py", "a = 1\nif\n", "spelt.py, line 2: SyntaxError: "),
        ("lacking.py", "import no_such_module_here\n", "lacking.py, line 1: ModuleNot"),
        ("apart.py", "import sunk\n", "sunk.py, line 3: NameError: name 'gone'"),
        (
            "late.py",
            "from importlib import import_module as m\nm('x.y')\n",
            "late.py, line 2",
        ),
        ("json.py", "", "there is a module 'json' already; call the file otherwise"),
        ("wave.py", "", "there is a module 'wave' already"),  # not imported yet
        ("notes.txt", "", "is no Python file"),
        (None, "", "there is no file"),
    ],
)
def test_what_cannot_be_imported_is_one_sentence(
    kvnmt, tmp_path, monkeypatch, name, code, part
):
    monkeypatch.chdir(tmp_path)
    before, modules = list(sys.path), {*sys.modules}
    path = tmp_path / (name or "nowhere.py")
    (tmp_path / "sunk.py").write_text("import os\n\ngone\n")
    if name:
        path.write_text(code)
    check_sentence(kvnmt("systems", "--import", path), part)
    assert path.stem in modules or path.stem not in sys.modules
    sys.path[:] = before


@pytest.mark.parametrize("name", ["", "__init__.py"])
@pytest.mark.parametrize("linked", [False, True])
def test_a_package_is_imported_whole(kvnmt, tmp_path, name, linked):
    """By the name that its folder has here, though it is a link to another."""
    before, package = list(sys.path), tmp_path / "my_own"
    if linked:
        (tmp_path / "version_2").mkdir()
        package.symlink_to(tmp_path / "version_2")
    else:
        package.mkdir()
    (package / "__init__.py").write_text("from . import core\n")
    (package / "core.py").write_text("from my_own.core_parts import y\n")
    command = "systems", "--systems", "memdec", "--import", package / name
    said = kvnmt(*command)
    check_sentence(said, f"{package / 'core.py'}, line 1: ModuleNotFoundError")
    sys.modules.pop("my_own.core", None)
    (package / "core_parts.py").write_text("y = 1\n")
    assert kvnmt(*command).status == 0
    assert sys.modules["my_own.core"].y == 1
    for module in [m for m in sys.modules if m.startswith("my_own")]:
        del sys.modules[module]
    sys.path[:] = before


def test_the_flag_needs_a_file(kvnmt):
    check_sentence(kvnmt("systems", "--import"), "--import needs a Python file")
    check_sentence(
        kvnmt("systems", "--program-cache"), "--program-cache needs a folder"
    )
