# SPDX-License-Identifier: Apache-2.0
"""Compiled programs are kept; a bad cache costs time and nothing else."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kvnmt.cli import program_cache, train
from kvnmt.cli.program_cache import (
    agree_on_programs,
    default_folder,
    keep_programs,
    machine_folder,
    prune,
    writable,
)
from kvnmt.errors import UserError
from kvnmt.runs.config import Experiment
from tests.training.pretended import in_both, pretend_two

# Compiles, and tells where programs are kept.
CODE = """
import sys
from kvnmt.cli.program_cache import keep_programs
keep_programs(sys.argv[1] if len(sys.argv) > 1 else None)
import jax
print(jax.jit(lambda x: x * 3 + 1)(jax.numpy.arange(3)))
print(jax.config.jax_compilation_cache_dir)
"""


def compiles(*arguments: object, **variables: object) -> str:
    """Where a process that compiles keeps its programs; it must say nothing else."""
    names = ("KVNMT_PROGRAM_CACHE", "XDG_CACHE_HOME")
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in names and not name.startswith("JAX_")
    }
    environment |= {name: str(value) for name, value in variables.items()}
    found = subprocess.run(
        [sys.executable, "-c", CODE, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment | {"JAX_PLATFORMS": "cpu"},
    )
    assert (found.returncode, found.stderr) == (0, "")
    result, folder = found.stdout.splitlines()
    assert result == "[1 4 7]"
    return folder


def programs(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*-cache")}


def test_programs_are_kept_where_one_says(tmp_path):
    mine, other, jax = (tmp_path / name for name in ("mine", "other", "jax"))
    assert compiles(XDG_CACHE_HOME=tmp_path) == str(
        machine_folder(tmp_path / "kvnmt" / "programs")
    )
    assert programs(tmp_path / "kvnmt")
    assert compiles(KVNMT_PROGRAM_CACHE=other) == str(machine_folder(other))
    assert compiles(mine, KVNMT_PROGRAM_CACHE=other) == str(machine_folder(mine))
    told = {"JAX_COMPILATION_CACHE_DIR": jax, "KVNMT_PROGRAM_CACHE": other}
    assert compiles(**told) == str(jax)
    assert compiles(mine, **told) == str(machine_folder(mine))


def test_programs_can_be_kept_nowhere(tmp_path):
    assert compiles(KVNMT_PROGRAM_CACHE="none", XDG_CACHE_HOME=tmp_path) == "None"
    told = {"JAX_COMPILATION_CACHE_DIR": tmp_path, "XDG_CACHE_HOME": tmp_path}
    assert compiles("none", **told) == "None"
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_none(tmp_path):
    (tmp_path / "file").write_text("here")
    assert writable(str(tmp_path / "file")) is None
    assert writable(str(tmp_path / "file" / "below")) is None
    assert (tmp_path / "file").read_text() == "here"


@pytest.mark.parametrize("told", ["--program-cache", "KVNMT_PROGRAM_CACHE"])
def test_a_named_folder_that_cannot_be_made_is_told_of(told, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("here")
    by_flag = told.startswith("--")
    base = tmp_path / "good" if by_flag else tmp_path / "file"
    monkeypatch.setenv("KVNMT_PROGRAM_CACHE", str(base))
    unset = SimpleNamespace(jax_compilation_cache_dir=None)
    monkeypatch.setattr(program_cache, "jax", SimpleNamespace(config=unset))
    with pytest.raises(UserError, match=f"{told} names '.*/file'.* or 'none'"):
        keep_programs(str(tmp_path / "file") if by_flag else None)


def test_a_default_folder_that_cannot_be_made_is_none(tmp_path):
    (tmp_path / "file").write_text("here")
    assert compiles(XDG_CACHE_HOME=tmp_path / "file") == "None"


def test_a_user_without_a_home_keeps_none():
    for base in ("~no-such-user-here/programs", f"{chr(0)}"):
        assert writable(base) is None


def test_what_cannot_be_read_is_compiled_anew(tmp_path):
    compiles(tmp_path)
    kept = programs(tmp_path)
    assert kept
    compiles(tmp_path)
    assert programs(tmp_path) == kept
    for path, data in kept.items():
        path.write_bytes(data[: len(data) // 2])
    compiles(tmp_path)
    healed = programs(tmp_path)
    assert healed.keys() == kept.keys()  # those were asked for
    for path, data in kept.items():
        assert len(healed[path]) > 0.9 * len(data)


def test_half_a_program_of_a_process_that_was_killed_is_removed(tmp_path):
    old, new = (tmp_path / "machine-a" / f"{name}-cache.7.new" for name in "ab")
    old.parent.mkdir()
    for path in (old, new):
        path.touch()
    os.utime(old, (0, 0))
    prune(tmp_path)
    assert new.exists() and not old.exists()


def test_a_folder_of_the_name_of_a_program_is_no_error(tmp_path):
    compiles(tmp_path)
    for path in programs(tmp_path):
        path.unlink()
        path.mkdir()
    compiles(tmp_path)


def test_another_processor_has_another_folder(tmp_path, monkeypatch):
    def folder(flags: str, speed: int) -> Path:
        info = tmp_path / "cpuinfo"
        info.write_text(f"model name : x\ncpu MHz : {speed}\nflags : {flags}\n")
        monkeypatch.setattr(program_cache, "INFO", info)
        return machine_folder(tmp_path)

    assert folder("fma", 1) == folder("fma", 2)
    assert folder("fma", 1) != folder("fma avx512", 1)


def test_xdg_folders_are_absolute(tmp_path, monkeypatch):
    """A relative one is to be ignored, say the rules."""
    monkeypatch.setenv("HOME", str(tmp_path))
    expected = tmp_path / ".cache" / "kvnmt" / "programs"
    for value in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert Path(default_folder()).expanduser() == expected


def test_the_programs_used_longest_ago_go_first(tmp_path):
    folders = [tmp_path / "machine-a", tmp_path / "machine-b"]
    for folder in folders:
        folder.mkdir()
    paths = [folders[n % 2] / f"jit_{n}-cache" for n in range(6)]
    for age, path in enumerate(paths):
        path.write_bytes(bytes(100))
        os.utime(path, (1000 - age, 10))
    others = [tmp_path / "my-cache", folders[0] / "notes"]
    for path in others:
        path.write_bytes(bytes(1000))
    prune(tmp_path, most=600)
    assert all(path.exists() for path in paths)
    prune(tmp_path, most=350)
    assert [path.exists() for path in paths] == [True] * 3 + [False] * 3
    assert all(path.exists() for path in others)


def agreed(patch: pytest.MonkeyPatch, *bases: object) -> list[str | None]:
    """Where each of two processes keeps programs after they have agreed."""
    places: list[Any] = [base and str(base) for base in bases]

    class Config:
        """That of the process of this thread."""

        @property
        def jax_compilation_cache_dir(self):
            return places[program_cache.number()[0]]

        def update(self, name, value):
            assert name == "jax_compilation_cache_dir"
            places[program_cache.number()[0]] = value

    with patch.context() as within:
        pretend_two(within)
        within.setattr(program_cache, "jax", SimpleNamespace(config=Config()))
        within.setattr(program_cache, "LOOK_FOR", 0.01)
        assert in_both(lambda number: agree_on_programs()) == [[], []]
    return places


def test_processes_keep_programs_where_all_find_the_same(tmp_path, monkeypatch, capsys):
    shared = tmp_path / "shared"
    for _ in range(2):
        assert agreed(monkeypatch, shared, shared) == [str(shared)] * 2
        (shared / "jit_f-cache").touch()
    assert agreed(monkeypatch, None, None) == [None, None]
    assert agreed(monkeypatch, "gs://a/b", "gs://a/b") == ["gs://a/b"] * 2
    assert capsys.readouterr().err == ""
    assert [path.name for path in shared.iterdir()] == ["jit_f-cache"]


def test_processes_that_find_other_programs_keep_none(tmp_path, monkeypatch, capsys):
    """The first alone would write, and the others compile what it has already."""
    first, other = tmp_path / "first", tmp_path / "other"
    told = "compiled programs are not kept: the processes do not find the same ones"
    assert agreed(monkeypatch, first, other) == [None, None]  # both are empty
    assert capsys.readouterr().err.count(told) == 1
    (first / "jit_f-cache").touch()
    for bases in ((first, other), (first, None), (None, first), ("gs://a", "gs://b")):
        assert agreed(monkeypatch, *bases) == [None, None]
        assert capsys.readouterr().err.count(told) == 1


def test_a_training_in_one_process_keeps_its_programs(monkeypatch):
    config = SimpleNamespace(jax_compilation_cache_dir="/some/where")  # has no update
    monkeypatch.setattr(program_cache, "jax", SimpleNamespace(config=config))
    agree_on_programs()


def test_a_training_agrees_before_all_else(monkeypatch):
    def agree() -> None:
        raise UserError("agreed first.")

    monkeypatch.setattr(train, "agree_on_programs", agree)
    with pytest.raises(UserError, match="agreed first"):
        train.Train(Path("never made"), Experiment())()
