# SPDX-License-Identifier: Apache-2.0
"""What is known of a program that trains and translates, and what it is asked to do.

A program is run by its own command line, in a Python environment of its own. It reads
the same text, is given the same sizes, and its speed is read off what it prints.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

from kvnmt.errors import UserError

Arguments: TypeAlias = tuple[str, ...]  # behind `python`


@dataclass(frozen=True)
class Task:
    """What is trained: the text and the sizes."""

    text: Path  # folder of {train,valid}.{source,target}, words with spaces between
    source: str  # how the names of files end
    target: str
    pairs: int  # to train on
    longest: int  # words of any sentence
    system: str  # which of ours
    embedding: int
    encoder: int  # in each direction
    state: int
    embedding_dropout: float
    output_dropout: float
    batch_size: int  # sentences
    epochs: int
    threads: int
    seed: int

    @property
    def steps(self) -> int:
        """Updates of an epoch."""
        return -(-self.pairs // self.batch_size)


@dataclass(frozen=True)
class Search:
    """How lines are translated: by exact search, unless a shortlist is given."""

    beam: int
    batch_size: int
    longest: int  # words of a translation
    shortlist: Path | None = None  # which this program alone takes


class Program(NamedTuple):
    """One program, described: what to type, and what to read in what it prints.

    The folder is where the trained model is. `train` may write a config beside it. What
    `translate` names reads lines from standard input and writes as many to standard
    output. What was printed is both outputs in training, standard error in translating.
    """

    name: str
    module: str  # that its Python can import if it is installed
    install: str  # what to type for that
    train: Callable[[Task, Path], list[Arguments]]
    speed: Callable[[str], float]  # target tokens a second, EOS counted
    translate: Callable[[Path, Search], Arguments]
    seconds: Callable[[str], float]  # that translating took, the model loaded
    environment: Mapping[str, str] = {}
    # Refuses by a UserError what it cannot train as the task says.
    check: Callable[[Task], None] = lambda task: None


def numbers(pattern: str, log: str, program: str) -> list[tuple[float, ...]]:
    """The groups of a pattern wherever a log has it, as numbers.

    Raises:
        UserError: The log has it nowhere.
    """
    rows = re.findall(pattern, log)
    if not rows:
        raise UserError(
            f"what {program} printed does not tell its speed; is it the version that "
            "docs/benchmark.md names?"
        )
    rows = [row if isinstance(row, tuple) else (row,) for row in rows]
    return [tuple(float(part.replace(",", "")) for part in row) for row in rows]
