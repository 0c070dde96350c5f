# SPDX-License-Identifier: Apache-2.0
"""What several commands share: how flags look, and names of runs."""

from collections.abc import Sequence
from pathlib import Path

import tyro

from kvnmt.errors import UserError

FLAT = tyro.conf.arg(name="")  # an argument whose fields carry no prefix


def names(paths: Sequence[Path]) -> list[str]:
    """The last parts of paths, as many as tell them apart.

    Raises:
        UserError: One is named twice.
    """
    parts = [path.resolve().parts for path in paths]
    for n, path in enumerate(parts):
        if path in parts[:n]:
            raise UserError(f"'{paths[n]}' is named twice; once is enough.")
    depth = 1
    while len({path[-depth:] for path in parts}) < len(parts):
        depth += 1
    return ["/".join(path[-depth:]) for path in parts]
