# SPDX-License-Identifier: Apache-2.0
"""The findings of a check of text, each with a sentence for a person."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

EXAMPLES = 5  # places that are named

Severity = Literal["error", "warning", "note"]


class Place(NamedTuple):
    """A line of a file."""

    file: str
    line: int  # from 1
    note: str = ""  # what else a person should know about it


class Finding(NamedTuple):
    """One kind of fault in one file or in one pair of files."""

    name: str
    severity: Severity
    count: int  # how many lines, pairs, characters or words have it
    message: str  # one sentence for a person
    examples: tuple[Place, ...] = ()  # the first `EXAMPLES`

    def as_plain(self) -> dict[str, Any]:
        """Returns what is written as JSON."""
        examples = [place._asdict() for place in self.examples]
        return self._asdict() | {"examples": examples}


def line_numbers(numbers: Sequence[int], count: int) -> str:
    """The first of ``count`` line numbers in words: ``lines 1, 4 and 3 more``."""
    first = [str(n) for n in numbers[:EXAMPLES]]
    if count > len(first):
        return f"lines {', '.join(first)} and {count - len(first):,} more"
    if len(first) == 1:
        return f"line {first[0]}"
    return f"lines {', '.join(first[:-1])} and {first[-1]}"
