# SPDX-License-Identifier: Apache-2.0
"""What several commands share: how flags look, flags in files, and names of runs."""

import shlex
from collections.abc import Sequence
from pathlib import Path

import tyro

from kvnmt.errors import UserError
from kvnmt.files import check_once

FILE = "@"  # begins a word that names a file of flags
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


def expanded(words: Sequence[str]) -> list[str]:
    """What was typed, with the words of a file in the place of ``@file``.

    In a file words stand as in a shell, over any number of lines; ``#`` begins a
    comment.

    Raises:
        UserError: A file cannot be read, or a quote in it is not closed.
    """
    typed: list[str] = []
    for word in words:
        if not word.startswith(FILE) or word == FILE:
            typed.append(word)
            continue
        path = word.removeprefix(FILE)
        try:
            typed += shlex.split(Path(path).read_text("utf-8"), comments=True)
        except OSError as error:
            raise UserError(
                f"the flags in '{path}' cannot be read ({error.strerror}); a word that "
                f"begins with {FILE} names a file of flags."
            ) from None
        except ValueError as error:
            raise UserError(
                f"the flags in '{path}' cannot be read: {str(error).lower()}."
            ) from None
    return typed
