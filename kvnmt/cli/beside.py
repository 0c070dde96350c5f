# SPDX-License-Identifier: Apache-2.0
"""Files that have a line for every line of standard input, which comes in windows."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from kvnmt.data.text import read_lines
from kvnmt.errors import UserError, counted


class Beside(NamedTuple):
    """A file with a line for every line of input, after it was read."""

    path: Path
    lines: Sequence[str]

    def window(self, first: int, count: int) -> Sequence[str]:
        """The lines that belong to so many lines of the input.

        Raises:
            UserError: There are not as many left.
        """
        here = self.lines[first : first + count]
        if len(here) < count:
            raise UserError(
                f"'{self.path}' has {counted(len(self.lines), 'line')} but the input "
                "has more; it needs one, perhaps empty, for every line of input."
            )
        return here

    def check_end(self, count: int) -> None:
        """Refuses lines that belong to no line of the input.

        Raises:
            UserError: The input had fewer lines; all of them were answered.
        """
        if len(self.lines) > count:
            raise UserError(
                f"'{self.path}' has {counted(len(self.lines), 'line')} but the input "
                f"{count}; look whether line n of one belongs to line n of the other."
            )


def read_beside(path: Path | None) -> Beside | None:
    """Reads one, if there is one.

    Raises:
        UserError: It cannot be read.
    """
    return Beside(path, read_lines(path)) if path else None
