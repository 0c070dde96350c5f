# SPDX-License-Identifier: Apache-2.0
"""What several commands share: how flags look, and names of runs."""

from collections.abc import Sequence
from pathlib import Path

import tyro

from kvnmt.errors import UserError
from kvnmt.files import check_once

FLAT = tyro.conf.arg(name="")  # an argument whose fields carry no prefix


def names(paths: Sequence[Path]) -> list[str]:
    """The last parts of paths, as many as tell them apart.

    Raises:
        UserError: One is named twice.
    """
    check_once(paths)
    parts = [path.resolve().parts for path in paths]
    depth = 1
    while len({path[-depth:] for path in parts}) < len(parts):
        depth += 1
    return ["/".join(path[-depth:]) for path in parts]


def check_reverse(reverse: Path, *runs: Path) -> None:
    """Refuses a run as that of its own other direction.

    Raises:
        UserError: It is one of the runs.
    """
    if reverse.resolve() in (run.resolve() for run in runs):
        raise UserError(
            f"--reverse names '{reverse}', the run itself; name one that was trained "
            "in the other direction."
        )
