# SPDX-License-Identifier: Apache-2.0
"""Mistakes are told by the field in Python and by the flag on the command line."""

import ast
import errno
import os
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import jax
import pytest

import kvnmt
from kvnmt.data.config import DataConfig
from kvnmt.errors import (
    OptionError,
    StoppedError,
    UserError,
    run_program,
    unknown_name,
)
from kvnmt.inference.config import SearchConfig, check_asked
from kvnmt.model.config import ModelConfig
from kvnmt.runs.config import Experiment
from kvnmt.runs.run import Run
from tests.helpers import FullDisk, tiny

PACKAGE = Path(kvnmt.__file__).parent
# What only the commands reach, and so may speak of flags.
OF_COMMANDS = (
    "benchmark",
    "cli",
    "compiling",
    "data/inspection",
    "evaluation",
    "serve",
)
OTHERS = {"companions.py": "coordinator"}


def calls(name: str) -> Iterator[tuple[str, ast.Call]]:
    """Where such an error is made, by the path of the file."""
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE).as_posix()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                if node.func.id == name:
                    yield place, node


def texts(node: ast.AST) -> list[str]:
    """The strings within a call."""
    found = (one.value for one in ast.walk(node) if isinstance(one, ast.Constant))
    return [value for value in found if isinstance(value, str)]


def test_the_library_names_no_flag():
    for place, call in calls("UserError"):
        said = " ".join(texts(call))
        if "--" in said and not place.startswith(OF_COMMANDS):
            assert OTHERS.get(place, "none of these") in said, f"{place}: {said}"


def test_the_fields_that_are_named_exist():
    count = 0
    for place, call in calls("OptionError"):
        known = Experiment()
        if "model." in texts(call):
            known = ModelConfig()
        for text in texts(call)[1:]:
            first, _, rest = text.partition(".")
            if rest and " " not in text and first in known.__dataclass_fields__:
                count += 1
                one = getattr(known, first)
                # Of a mechanism another may be chosen than the default.
                assert known == ModelConfig() or hasattr(one, rest), (place, text)
    assert count >= 14


def test_a_sentence_keeps_its_braces_and_passes_between_processes():
    error = OptionError("'{x}{' is no {0}; set {1}", "a.b", "c_d", prefix="e.")
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == "'{x}{' is no a.b; set c_d"
    assert again.by_flag == "'{x}{' is no --e.a.b; set --e.c-d"


def test_what_ends_by_a_signal_passes_between_processes():
    """A pool that could not read it would wait for ever, or end the others."""
    error = StoppedError("stopped.", 15)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.status) == ("stopped.", 143)


def test_a_mistake_is_told_by_field_and_by_flag(tmp_path):
    (tmp_path / "{x}").mkdir()
    (tmp_path / "{x}" / "config.json").touch()
    exp = tiny(DataConfig(source=Path("never read")))
    with pytest.raises(OptionError) as error:
        kvnmt.train(exp, tmp_path / "{x}")
    assert "pass resume to go on" in str(error.value)
    assert "pass --resume to go on" in error.value.by_flag
    model = ModelConfig(cell="transformer", merge="sum")
    with pytest.raises(OptionError) as error:
        kvnmt.build(model, 9, 9).init(jax.random.key(0))
    assert str(error.value).endswith("set merge forward.")
    assert error.value.by_flag.endswith("set --model.merge forward.")


def test_what_does_nothing_is_told_by_its_field():
    """And only if neither the defaults nor the run have it so."""
    model = SimpleNamespace(reads_source=True)
    of_run = SearchConfig(temperature=0.5)
    run = Run(Experiment(search=of_run), None, model, None)
    with pytest.raises(OptionError, match="^temperature is for drawing .* give sample"):
        run.translate(["a"], SearchConfig(temperature=2.0))
    for search in (of_run, SearchConfig(), SearchConfig(temperature=2.0, sample=True)):
        check_asked(search, SearchConfig(), of_run)


def test_nobody_needs_to_read_errors(monkeypatch):
    """Standard error may be closed, or its disk be full: the status tells, too."""

    def mistaken() -> None:
        raise UserError("a mistake.")

    for stream in (None, FullDisk()):
        monkeypatch.setattr(sys, "stderr", stream)
        with pytest.raises(SystemExit) as ended:
            run_program("kvnmt", mistaken)
        assert ended.value.code == 2
        sys.stderr.close()


def test_a_path_that_is_out_of_reach_is_told(capsys):
    def forbidden() -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "/home/x")

    for work, said in (
        (Path("x" * 300).stat, "xxx' is out of reach: File name too long; name"),
        (forbidden, "kvnmt: '/home/x' is out of reach: Permission denied; name"),
    ):
        with pytest.raises(SystemExit) as ended:
            run_program("kvnmt", work)
        assert ended.value.code == 2
        assert said in capsys.readouterr().err


def test_a_current_folder_that_is_gone_is_told(tmp_path, monkeypatch, capsys):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(SystemExit) as exit:
        run_program("kvnmt", Path("run").absolute)
    assert exit.value.code == 2
    said = "kvnmt: the current folder is gone; change to another.\n"
    assert capsys.readouterr().err == said
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError):
        run_program("kvnmt", (tmp_path / "gone").read_text)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("KVMemAtt-R2", "kvmematt-r2"),
        ("temp", "temperature"),
        ("beam_size", "beam"),
        ("text", None),
        ("", None),
        ("nbest", None),
    ],
)
def test_a_near_name_is_suggested_and_a_far_one_is_not(written, meant):
    known = ["kvmematt-r2", "temperature", "beam", "lines", "system"]
    said = str(unknown_name("option", written, known))
    assert said.startswith(f"there is no option '{written}'")
    assert (f"; did you mean '{meant}'?" in said) == (meant is not None)
    assert ("did you mean" in said) == (meant is not None)
