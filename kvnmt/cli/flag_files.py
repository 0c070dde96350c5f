# SPDX-License-Identifier: Apache-2.0
"""What may stand among the words of every command: ``@file``, and two flags."""

import argparse
import re
import shlex
from collections.abc import Sequence

from kvnmt.data.text import read_lines
from kvnmt.errors import UserError

FILE = "@"  # begins a word that names a file of flags
# A word, or else a comment; `shlex` would begin a comment within a word, too.
_QUOTED = r"""'[^']*'|"(?:\\.|[^"\\])*"|\\[^\n]"""
_WORD = rf"""(?:{_QUOTED}|[^\s'"\\#])(?:{_QUOTED}|[^\s'"\\])*"""
_COMMENT = re.compile(rf"({_WORD})|#[^\n]*|\\\n", re.S)


def expanded(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """What was typed, with the words of a file in the place of ``@file``.

    In a file words are quoted as in a shell, over any number of lines, which may end in
    a backslash; ``#`` begins a comment where a word would begin. ``~`` and ``$NAME``
    stay as they are.

    Returns:
        All words, and those of files alone.

    Raises:
        UserError: A file cannot be read, or a quote in it is not closed.
    """
    everything: list[str] = []
    filed: list[str] = []
    for word in words:
        if not word.startswith(FILE) or word == FILE:
            everything.append(word)
            continue
        path = word.removeprefix(FILE)
        try:
            text = "".join(f"{line}\n" for line in read_lines(path))
            inside = shlex.split(_COMMENT.sub(lambda part: part[1] or "", text))
        except ValueError as error:
            reason = str(error).lower()
            raise UserError(
                f"'{path}' holds no flags as a shell reads them: {reason}; mend it."
            ) from None
        if any("\0" in each for each in inside):
            raise UserError(f"'{path}' has a NUL character in a flag; take it out.")
        everything += inside
        filed += inside
    return everything, filed


def common_flags(words: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """The flags of all commands, which stand anywhere, and all other words."""
    parser = argparse.ArgumentParser(
        add_help=False, allow_abbrev=False, exit_on_error=False
    )
    parser.add_argument("--program-cache")
    parser.add_argument("--import", action="append", default=[], dest="own_code")
    try:
        return parser.parse_known_args(list(words))
    except argparse.ArgumentError as error:
        needs = {
            "--program-cache": "a folder, or none",
            "--import": "a Python file or package",
        }
        flag = str(error.argument_name)
        raise UserError(f"{flag} needs {needs[flag]}.") from None
