# SPDX-License-Identifier: Apache-2.0
"""A digest of the code of mechanisms that are not kvnmt's own, which a run keeps."""

import json
import sys
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from kvnmt.console import say
from kvnmt.files import DamagedError, digest, read_small
from kvnmt.model.config import ModelConfig

KEY = "own_code"  # in versions.json


@lru_cache(maxsize=64)
def own_code(model: ModelConfig) -> str | None:
    """Tells apart the files of a model's mechanisms; None: kvnmt has them all.

    They are those of the modules that define its options and, of a package, what is in
    the same folder. They are read when this is first asked, best soon after the import.
    """
    files = set()
    for part in (model.attention, model.decoder, model.target_context):
        name = type(part).__module__
        module = sys.modules.get(name)
        file = getattr(module, "__file__", None)
        package = getattr(module, "__package__", None)
        if not file or name.split(".")[0] in ("kvnmt", "__main__"):
            continue
        beside = Path(file).parent.glob("*.py") if package else ()
        files |= {Path(file), *beside}
    with suppress(OSError):  # it may be gone, though it was imported
        texts = sorted(path.read_bytes() for path in files)
        return digest(b"\0".join(texts), 32) if texts else None
    return None


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
