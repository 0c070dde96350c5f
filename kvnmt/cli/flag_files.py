# SPDX-License-Identifier: Apache-2.0
"""Flags that stand in a file, for every command: ``@file`` among what is typed."""

import shlex
from collections.abc import Sequence

from kvnmt.data.text import read_lines
from kvnmt.errors import UserError

FILE = "@"  # begins a word that names a file of flags


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
            typed += shlex.split("\n".join(read_lines(path)), comments=True)
        except ValueError as error:
            reason = str(error).lower()
            raise UserError(
                f"'{path}' holds no flags as a shell reads them: {reason}; mend it."
            ) from None
    return typed
