# SPDX-License-Identifier: Apache-2.0
"""A user's own code, which a command runs first: mechanisms that stand elsewhere.

Only what is named when the command is started is run, nothing that a run names.
"""

import importlib.util
import os
import sys
import sysconfig
import traceback
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from kvnmt.errors import UserError

IMPORTED: list[Path] = []  # by this command
PACKAGE = "__init__.py"  # the file that makes a folder a package
KVNMT = Path(__file__).parents[1]
PYTHON = Path(sysconfig.get_path("stdlib"))


def run_first(paths: Iterable[str]) -> None:
    """Imports Python files and packages, in order.

    They may import what stands beside them.

    Raises:
        UserError: There is no such file, a module of its name is imported already, or
            it fails; the line is named.
    """
    IMPORTED[:] = map(Path, paths)
    for path in IMPORTED:
        file = path / PACKAGE if (path / PACKAGE).is_file() else path
        if not file.is_file():
            raise UserError(
                f"there is no file '{file}' to import; check the path (a package is a "
                f"folder with {PACKAGE})."
            )
        # As it is called here: what it is a link to may be called otherwise.
        inside = Path(os.path.abspath(file)).parent if file.name == PACKAGE else None
        name = inside.name if inside else file.stem
        if name in sys.modules or _is_taken(name, file):
            raise UserError(
                f"'{path}' cannot be imported: there is a module '{name}' already; "
                f"call the {'folder' if inside else 'file'} otherwise."
            )
        places = [str(inside)] if inside else None
        spec = importlib.util.spec_from_file_location(
            name, file, submodule_search_locations=places
        )
        if spec is None or spec.loader is None:
            raise UserError(f"'{path}' is no Python file; give one that ends in .py.")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # so that it can list itself
        beside = inside.parent if inside else file.resolve().parent
        sys.path.append(str(beside))
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            sys.modules.pop(name, None)
            raise UserError(_told(file, beside, error)) from None


def _is_taken(name: str, path: Path) -> bool:
    """Whether another module of the name would be found, which ours would hide."""
    with suppress(ImportError, ValueError):
        found = importlib.util.find_spec(name)
        if found and found.origin:  # a mere folder of the name has none
            return Path(found.origin).resolve() != path.resolve()
    return False


def _told(path: Path, beside: Path, error: Exception) -> str:
    """What failed, and the last line of the user's own that led there.

    Args:
        path: The file that was imported.
        beside: The folder in which stands what it may import.
        error: What it failed with.
    """
    steps = traceback.extract_tb(error.__traceback__)
    named = (step for step in steps if not step.filename.startswith("<"))
    places = [(_path(step.filename), step.lineno) for step in named]
    if isinstance(error, SyntaxError) and error.filename:
        places.append((_path(error.filename), error.lineno))
    own = [
        (file, line)
        for file, line in places
        if beside in (*file.parents, *file.resolve().parents)
        and "site-packages" not in file.parts
        and not file.is_relative_to(KVNMT)
        and not file.is_relative_to(PYTHON)
    ]
    place = str(path)
    if own:
        file, line = own[-1]
        place = f"{path if file.resolve() == path.resolve() else file}, line {line}"
    reason = " ".join(str(error).split()).rstrip(".")
    return f"{place}: {type(error).__name__}: {reason}; mend the file."


def _path(name: str) -> Path:
    return Path(os.path.abspath(name))
