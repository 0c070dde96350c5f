# SPDX-License-Identifier: Apache-2.0
"""A digest of the code of mechanisms that are not kvnmt's own, which a run keeps."""

import json
import sys
import sysconfig
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from kvnmt.console import say
from kvnmt.files import DamagedError, digest, read_small
from kvnmt.model.config import ModelConfig

KEY = "own_code"  # in versions.json
KNOWN = {"kvnmt", "experiments", "__main__"}  # told by their commit, or start all
PYTHON = Path(sysconfig.get_path("stdlib")).resolve()


@lru_cache(maxsize=64)
def own_code(model: ModelConfig) -> str | None:
    """Tells apart the code of a model's mechanisms; None: kvnmt has them all.

    That is all of their packages, and what was imported from the folder of a file, but
    not Python itself and what is installed. It is read when this is first asked, best
    soon after the import.
    """
    parts = model.attention, model.decoder, model.target_context
    names = {type(part).__module__ for part in parts}
    names = {name for name in names if _top(name) not in KNOWN}
    modules = _modules() if names else {}
    places = names | {*map(_top, names)}
    own = {modules[name] for name in places if name in modules}
    beside = tuple(file.parent for file in own)
    files = own | {
        file
        for file in modules.values()
        if any(map(file.is_relative_to, beside)) and not _is_installed(file)
    }
    for file in own:
        files |= {*file.parent.rglob("*.py")} if file.name == "__init__.py" else set()
    with suppress(OSError):  # it may be gone, though it was imported
        texts = sorted(path.read_bytes() for path in files)
        return digest(b"\0".join(texts), 32) if texts else None
    return None


def _modules() -> dict[str, Path]:
    """The files of what was imported, by name."""
    loaded = list(sys.modules.items())
    files = {name: getattr(module, "__file__", None) for name, module in loaded}
    return {
        name: Path(file).resolve()
        for name, file in files.items()
        if file and _top(name) not in KNOWN
    }


def _top(module: str) -> str:
    return module.split(".")[0]


def _is_installed(file: Path) -> bool:
    return "site-packages" in file.parts or file.is_relative_to(PYTHON)


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
