# SPDX-License-Identifier: Apache-2.0
"""What several commands share: how flags look, and names of runs."""

from collections.abc import Iterator, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import tyro

from kvnmt.errors import UserError
from kvnmt.files import check_once, in_file

FLAT = tyro.conf.arg(name="")  # an argument whose fields carry no prefix


def names(paths: Sequence[Path]) -> list[str]:
    r"""The last parts of paths, as many as tell them apart, in names of files, too.

    Bytes that are no UTF-8 are written as ``\udce9``, so that all can be printed.

    Raises:
        UserError: One is named twice, or two would name one file.
    """
    check_once(paths)
    parts = [path.resolve().parts for path in paths]
    for depth in range(1, max(map(len, parts), default=0) + 1):
        told = [
            "/".join(path[-depth:]).encode(errors="backslashreplace").decode()
            for path in parts
        ]
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
        words: What was typed, or what files hold.

    Raises:
        UserError: There is one.
    """
    flags = [word.partition("=")[0].replace("_", "-") for word in words]
    for flag in _lists(kind):
        if flags.count(flag) > 1:
            raise UserError(
                f"{flag} stands twice, and the last alone would count; write it once, "
                "and all its values behind it."
            )


def _lists(kind: Any, prefix: str = "") -> Iterator[str]:
    """The flags of several values of a command, of the configs in it, too."""
    for name, hint in get_type_hints(kind, include_extras=True).items():
        flat = FLAT in getattr(hint, "__metadata__", ())
        bare = get_args(hint)[0] if get_origin(hint) is Annotated else hint
        if is_dataclass(bare):
            yield from _lists(bare, prefix if flat else f"{prefix}{name}.")
        elif ... in get_args(bare):
            yield f"--{prefix}{name}".replace("_", "-")


def check_reverse(reverse: Path, *runs: Path) -> None:
    """Refuses a run as that of its own other direction.

    Raises:
        UserError: It is one of the runs, or a checkpoint of one.
    """
    from kvnmt.runs.directory import chosen  # imports JAX

    if chosen(reverse)[0].resolve() in (chosen(run)[0].resolve() for run in runs):
        raise UserError(
            f"--reverse names '{reverse}', the run itself; name one that was trained "
            "in the other direction."
        )
