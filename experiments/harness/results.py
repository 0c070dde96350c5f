# SPDX-License-Identifier: Apache-2.0
"""What a row leaves behind: its figures, and what they were measured with.

A result stands as ``result.json`` in the run directory. Those that the tables of
experiments/findings/ are made from are kept under ``experiments/results/TABLE/``. A
result with ``rows`` stands for several: each has its own figures and shares the rest.
"""

import json
import platform
import shlex
import subprocess
import sys
from contextlib import suppress
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

from experiments.harness.settings import check_same_rows
from kvnmt.errors import UserError, reason_of
from kvnmt.files import make_folder, write_json
from kvnmt.runs.making import package_versions

RESULT = "result.json"
HERE = Path(__file__).parents[1]
CPUS = Path("/proc/cpuinfo")
KEPT = HERE / "results"
# What figures depend on: not pages, nor results that were kept.
CODE = ":/kvnmt/*.py", ":/experiments/*.py", ":/requirements.txt", ":/pyproject.toml"
Figures = dict[str, Any]


def read_result(folder: Path) -> Figures | None:
    """The figures of a row; None: it is not measured yet.

    Raises:
        UserError: The file holds something else.
    """
    path = folder / RESULT
    return read_file(path) if path.exists() else None


def write_result(folder: Path, figures: Figures) -> Figures:
    """Writes the figures of a row with what they were measured with; gives both.

    Raises:
        UserError: They cannot be written.
    """
    make_folder(folder)
    result = figures | provenance()
    try:
        write_json(folder / RESULT, result)
    except OSError as error:
        why = reason_of(error)
        raise UserError(f"'{folder / RESULT}' cannot be written: {why}.") from None
    return result


def provenance() -> Figures:
    """What figures that are measured now are measured with."""
    versions = package_versions()
    device = versions.pop("device")
    return {
        "measured": date.today().isoformat(),
        "device": f"{device} ({processor()})" if " cpu" in device else device,
        "commit": commit(),
        "versions": versions,
        "command": _command(),
    }


def told_apart(result: Figures) -> str:
    """The config, text, code and training of a result; what it does not tell is empty.

    The loss tells two trainings of one config apart.
    """
    parts = (result.get(what) for what in ("config", "text", "own_code", "valid_loss"))
    return ":".join("" if part is None else str(part) for part in parts)


def collect(workdir: Path, name: str, kept: Path = KEPT) -> list[Path]:
    """Copies the results of a table to where they are kept.

    Args:
        workdir: Has the run directories.
        name: Of the table.
        kept: Has a folder for every table.

    Returns:
        What was written.

    Raises:
        UserError: There is no result, one cannot be read, comes from others than are
            there, or would take the place of another setting's.
    """
    paths = list(workdir.glob(f"*/{RESULT}"))
    results = {path.parent.name: _measured(path) for path in paths}
    if not results:
        raise UserError(
            f"'{workdir}' has no result; name the folder that the runs of a table are "
            "in, once one of them is measured."
        )
    written = {kept / name / f"{row}.json": results[row] for row in sorted(results)}
    for path, result in written.items():
        based_on = result.get("based_on") or {}
        there = {row: told_apart(results.get(row, {})) for row in based_on}
        check_same_rows(based_on, there, workdir / path.stem)
        _check_same_setting(path, result)
    make_folder(kept / name)
    for path, result in written.items():
        write_json(path, result)
    return list(written)


def _check_same_setting(path: Path, result: Figures) -> None:
    """Makes sure that a kept result may be overwritten."""
    if not path.exists() or (before := read_file(path)) == result:
        return
    noted = ("setting", "text", "own_code")
    if not result.get("setting"):  # of a row that trains nothing, what else there is
        noted += ("config", "system", "parameters")
        noted += () if result.get("config") else ("command",)
    losses = before.get("valid_loss"), result.get("valid_loss")
    is_other = None not in losses and losses[0] != losses[1]
    if is_other or any(before.get(key) != result.get(key) for key in noted):
        of_it = _made_of(path)
        more = f" and what was made of it ({', '.join(of_it)})" if of_it else ""
        raise UserError(
            f"'{path}' is of another setting, text or training, or of a version that "
            f"noted none; delete it{more} if the new result is to take its place."
        )


def _made_of(path: Path) -> list[str]:
    """The kept results that came of one, and of those, and so on."""
    others = {
        other: {*(read_file(other).get("based_on") or {})}
        for other in path.parent.glob("*.json")
    }
    names, before = {path.stem}, set[str]()
    while names != before:
        before = set(names)
        names |= {other.stem for other, rows in others.items() if rows & before}
    return [f"'{name}.json'" for name in sorted(names - {path.stem})]


def kept_results(name: str, kept: Path = KEPT) -> list[Figures]:
    """The results that are kept for a table, one for each row and seed.

    Each names its ``file``.

    Raises:
        UserError: A file is no result.
    """
    rows = []
    for path in sorted((kept / name).glob("*.json")):
        result = _measured(path)
        shared = {key: value for key, value in result.items() if key != "rows"}
        of_file = shared | {"file": f"{name}/{path.name}"}
        rows += [of_file | row for row in result.get("rows") or [{}]]
    return rows


def _measured(path: Path) -> Figures:
    """Reads a result that says where it comes from."""
    result = read_file(path)
    if "measured" not in result or "device" not in result:
        raise UserError(
            f"'{path}' does not say when and on what it was measured; delete it, and "
            "the run is measured again."
        )
    return result


def read_file(path: Path) -> Figures:
    """Reads a result.

    Raises:
        UserError: The file holds something else, or cannot be read.
    """
    try:
        figures = json.loads(path.read_text())
    except ValueError:
        figures = None
    except OSError as error:
        raise UserError(f"'{path}' cannot be read: {reason_of(error)}.") from None
    if not isinstance(figures, dict) or not figures:
        raise UserError(
            f"'{path}' holds no figures; delete it, and the run is measured again."
        )
    return figures


def processor() -> str:
    """The model of the CPU."""
    with suppress(OSError):
        for line in CPUS.read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


@cache
def commit() -> str | None:
    """The commit of this code, and whether files differ from it; None: unknown.

    Asked first when a table is launched: the files may be others in the end.
    """
    if not (HERE.parent / ".git").exists():
        return None

    def git(*words: str) -> list[str]:
        told = subprocess.run(
            ["git", *words], cwd=HERE, capture_output=True, text=True, check=True
        )
        return told.stdout.splitlines()

    try:
        (head,) = git("rev-parse", "HEAD")
        files = git("status", "--porcelain", "--untracked-files=all", "--", *CODE)
    except (OSError, ValueError, subprocess.CalledProcessError):
        return None
    return f"{head}-dirty" if files else head


def _command() -> str | None:
    """The command that this process is, if it is an experiment."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is None or not spec.name.startswith("experiments."):
        return None
    return shlex.join(["python", "-m", spec.name, *sys.argv[1:]])
