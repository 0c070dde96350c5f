# SPDX-License-Identifier: Apache-2.0
"""What several commands share: how flags look, and names of runs."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import tyro

from kvnmt.data.outputs import in_file
from kvnmt.errors import UserError
from kvnmt.files import check_once

FLAT = tyro.conf.arg(name="")  # an argument whose fields carry no prefix


def names(paths: Sequence[Path]) -> list[str]:
    r"""Names for paths: as many last parts as tell them apart, in file names, too.

    Bytes that are no UTF-8 are written as ``\udce9``, so that all can be printed.

    Raises:
        UserError: One is named twice, or two would name one file.
    """
    check_once(paths)
    # As they were written: a link such as "current" keeps its name.
    parts = [Path(os.path.abspath(path)).parts for path in paths]
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
    """Refuses a flag of several values that is given twice: only the last would count.

    The command line may repeat a flag that a file of flags holds.

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


def check_coverage(coverage: float, runs: Mapping[str, Any]) -> None:
    """Refuses a penalty for unread words if a run has no attention.

    Args:
        coverage: Its weight.
        runs: What translates, by name.

    Raises:
        UserError: A run has no attention.
    """
    from kvnmt.inference.score import rounds_of  # imports JAX

    for name, run in runs.items():
        if coverage and not rounds_of(run.model, run.params):
            raise UserError(
                f"--search.coverage needs attention, and '{name}' has none; give 0, or "
                "name another run."
            )


def check_direction(path: Path, reverse: Any, run: Any) -> None:
    """Refuses a reverse run that translates in the same direction as the run.

    Args:
        path: Of the run that is to have the other direction.
        reverse: That run.
        run: The run whose other direction is asked for.

    Raises:
        UserError: Both read the one vocabulary and write the other.
    """
    from kvnmt.data.vocabularies import digests

    here, there = digests(run.vocabularies), digests(reverse.vocabularies)
    if here == there and here["source"] != here["target"]:
        raise UserError(
            f"--reverse names '{path}', which translates in the same direction; name "
            "a run that was trained in the other one."
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
    """Refuses a run as its own reverse run.

    Raises:
        UserError: It is one of the runs, or a checkpoint of one.
    """
    from kvnmt.runs.directory import chosen  # imports JAX

    first, *others = (os.path.realpath(chosen(run)[0]) for run in (reverse, *runs))
    if first in others:
        raise UserError(
            f"--reverse names '{reverse}', the run itself; name one that was trained "
            "in the other direction."
        )
