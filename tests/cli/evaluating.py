# SPDX-License-Identifier: Apache-2.0
"""A made-up text with gold links, and the report on systems that translate it."""

import json
from pathlib import Path
from typing import NamedTuple

from tests.helpers import toy_lines

BEAM = ("--search.beam", 1)
LINES = [*toy_lines(9, 5), "", *toy_lines(10, 5)]
GOLD = [" ".join(f"{i}-{i}" for i in range(len(line.split()))) for line in LINES]


class Text(NamedTuple):
    """A test set with alignments, and runs of three systems."""

    folder: Path
    good: Path
    memory: Path  # two rounds, not trained
    looking: Path  # self-attentive, not trained

    @property
    def files(self) -> list[object]:
        """The flags that name the test set."""
        given = self.folder / "test.src", self.folder / "test.ref"
        return ["--source", given[0], "--reference", given[1]]

    @property
    def sides(self) -> list[object]:
        """The same, and how runs translate it."""
        return [*self.files, *BEAM]

    def write(self, name: str, lines: list[str]) -> Path:
        """A further file beside the test set."""
        path = self.folder / name
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return path


def evaluated(kvnmt, *arguments: object) -> dict:
    said = kvnmt("evaluate", *arguments, "--json")
    assert said.status == 0, said.err
    return json.loads(said.out)


def rows(found: dict, measure: str, report: int = 0) -> dict[str, dict]:
    """Rows by system."""
    return {row["system"]: row for row in found[measure][report]["rows"]}
