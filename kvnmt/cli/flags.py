# SPDX-License-Identifier: Apache-2.0
"""What several commands share: how flags look, and names of runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args, get_type_hints

import tyro

from kvnmt.errors import UserError
from kvnmt.files import check_once, in_file

FLAT = tyro.conf.arg(name="")  # an argument whose fields carry no prefix


def names(paths: Sequence[Path]) -> list[str]:
    """The last parts of paths, as many as tell them apart, in names of files, too.

    Raises:
        UserError: One is named twice, or two would name one file.
    """
    check_once(paths)
    parts = [path.resolve().parts for path in paths]
    for depth in range(1, max(map(len, parts), default=0) + 1):
        told = ["/".join(path[-depth:]) for path in parts]
        if len(set(map(in_file, told))) == len(parts):
            return told
    if parts:
        raise UserError(
            "two of the paths are alike but for '/' and '-', and so would be the files "
            "named after them; call one of the folders otherwise."
        )
    return []


def check_lists(kind: Any, words: Sequence[str]) -> None:
    """Refuses a flag of several values that stands twice: the last alone would count.

    What a file of flags holds may be said anew beside it.

    Args:
        kind: The class of the command.
        words: What was typed.

    Raises:
        UserError: There is one.
    """
    flags = [word.partition("=")[0].replace("_", "-") for word in words]
    for name, hint in get_type_hints(kind).items():
        flag = f"--{name.replace('_', '-')}"
        if ... in get_args(hint) and flags.count(flag) > 1:
            raise UserError(
                f"{flag} stands twice, and the last alone would count; write it once, "
                "and all its values behind it."
            )


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
