# SPDX-License-Identifier: Apache-2.0
"""A digest of the code of mechanisms that are not kvnmt's own, which a run keeps."""

import ast
import json
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from importlib.util import resolve_name
from pathlib import Path

from kvnmt.console import say
from kvnmt.files import DamagedError, digest, read_small
from kvnmt.model.config import ModelConfig

KEY = "code_of_mechanisms"  # in versions.json
KVNMT = Path(__file__).resolve().parents[1]
OURS = KVNMT, KVNMT.parent / "experiments"  # which their commit tells
PYTHON = Path(sysconfig.get_path("stdlib")).resolve()


@lru_cache(maxsize=64)
def own_code(model: ModelConfig) -> str | None:
    """Tells apart the code of a model's mechanisms; None: kvnmt has them all.

    That is the files of the modules that define their options, all of their packages,
    and what these import from beside them. It is read when this is first asked,
    best soon after the import.
    """
    parts = model.attention, model.decoder, model.target_context
    names = {type(part).__module__ for part in parts}
    names |= {name.split(".")[0] for name in names}
    own = {file for name in names if (file := _file(name))}
    files = own | _taken(names, tuple(file.parent for file in own))
    for file in own:
        files |= {*file.parent.rglob("*.py")} if file.name == "__init__.py" else set()
    with suppress(OSError):  # it may be gone, though it was imported
        texts = sorted(path.read_bytes() for path in files)
        return digest(b"\0".join(texts), 32) if texts else None
    return None


def _taken(names: set[str], places: tuple[Path, ...]) -> set[Path]:
    """The files of modules, and of those in some folders that they import."""
    files, left, seen = set[Path](), [*names], set[str]()
    while left:
        name = left.pop()
        file = None if name in seen else _file(name)
        seen.add(name)
        if not file or not any(map(file.is_relative_to, places)):
            continue
        if "site-packages" in file.parts:  # where other programs stand beside it
            continue
        files.add(file)
        with suppress(OSError, SyntaxError, ValueError, ImportError):  # it has changed
            left += _imports(file, sys.modules[name].__package__ or "")
    return files


def _imports(file: Path, package: str) -> Iterator[str]:
    """What a module may be called that is named in the import statements of a file."""
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            named = "." * node.level + (node.module or "")
            module = resolve_name(named, package) if node.level else named
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def _file(name: str) -> Path | None:
    """Where a module stands that is neither kvnmt's nor Python's."""
    file = getattr(sys.modules.get(name), "__file__", None)
    if not file or name == "__main__":
        return None
    file = Path(file).resolve()
    installed = "site-packages" in file.parts  # which may be inside of Python's folder
    known = any(map(file.is_relative_to, OURS))
    return None if known or (file.is_relative_to(PYTHON) and not installed) else file


def tell_other_code(folder: Path, model: ModelConfig) -> None:
    """Says so in a line if a run was trained with other code of its mechanisms."""
    if not (now := own_code(model)):
        return
    before = None
    with suppress(DamagedError, OSError, ValueError, RecursionError):
        versions = json.loads(read_small(folder / "versions.json"))
        before = versions.get(KEY) if isinstance(versions, dict) else None
    if before and before != now:
        say(
            f"'{folder}' was trained with other code of its mechanisms than stands in "
            "the file now, so that it may compute something else"
        )
