# SPDX-License-Identifier: Apache-2.0
"""A user's own code, which a command runs first: mechanisms that stand elsewhere.

Only what is named when the command is started is run, nothing that a run names.
"""

import importlib.util
import sys
import traceback
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from kvnmt.errors import UserError

IMPORTED: list[Path] = []  # by this command


def run_first(paths: Iterable[str]) -> None:
    """Imports Python files, in order; they may import what stands beside them.

    Raises:
        UserError: There is no such file, a module of its name is imported already, or
            it fails; the line is named.
    """
    IMPORTED[:] = map(Path, paths)
    for path in IMPORTED:
        name = path.stem
        if not path.is_file():
            raise UserError(f"there is no file '{path}' to import; check the path.")
        if name in sys.modules or _is_taken(name, path):
            raise UserError(
                f"'{path}' cannot be imported: there is a module '{name}' already; "
                "call the file otherwise."
            )
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise UserError(f"'{path}' is no Python file; give one that ends in .py.")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # so that it can list itself
        sys.path.append(str(path.resolve().parent))
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            sys.modules.pop(name, None)
            raise UserError(_told(path, error)) from None


def _is_taken(name: str, path: Path) -> bool:
    """Whether another module of the name would be found, which ours would hide."""
    with suppress(ImportError, ValueError):
        found = importlib.util.find_spec(name)
        if found and found.origin:  # a mere folder of the name has none
            return Path(found.origin).resolve() != path.resolve()
    return False


def _told(path: Path, error: Exception) -> str:
    """What failed, and the last line of the file that led there."""
    line = error.lineno if isinstance(error, SyntaxError) else None
    for frame in traceback.extract_tb(error.__traceback__):
        if Path(frame.filename) == path.resolve() or Path(frame.filename) == path:
            line = frame.lineno
    place = f"{path}, line {line}" if line else str(path)
    reason = " ".join(str(error).split()).rstrip(".")
    return f"{place}: {type(error).__name__}: {reason}; mend the file."
