# SPDX-License-Identifier: Apache-2.0
"""Alignment error on other text, for rows whose own text nobody aligned.

It is measured after a row is trained, as a row of its own, so that finished runs need
not be trained again for it.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from experiments.harness.results import Figures
from experiments.harness.rows import OtherRow, Row
from kvnmt.data.vocabulary import UNK
from kvnmt.errors import UserError
from kvnmt.evaluation import System, Test, alignment
from kvnmt.evaluation.base import Column
from kvnmt.evaluation.inputs import TestFiles, read_test
from kvnmt.runs.directory import load_run

COLUMNS = (
    Column("aer", "AER, other text", "{:.1%}"),
    Column("unknown", "its unknown words", "{:.1%}"),
)
SHOWN = [column.key for column in COLUMNS]


class Aligned(NamedTuple):
    """Text that people aligned: ``dev.SOURCE``, ``dev.TARGET`` and ``dev.align``.

    The name of the folder ends with the two languages, as ``bicici-deen``, in the order
    of the links.
    """

    folder: Path
    source: str  # languages
    target: str

    @property
    def files(self) -> tuple[Path, Path, Path]:
        """Source, target and links."""
        folder = self.folder
        source, target = folder / f"dev.{self.source}", folder / f"dev.{self.target}"
        return source, target, folder / "dev.align"

    def read(self) -> Test:
        """Reads it.

        Raises:
            UserError: It cannot be read, or does not say which way its links go.
        """
        source, target, gold = self.files
        name, ways = self.folder.resolve().name, (self.source, self.target)
        ends = "".join(ways), "".join(reversed(ways))
        if not name.endswith(ends):
            raise UserError(
                f"the name of '{self.folder}' ends neither with {ends[0]} nor with "
                f"{ends[1]}, which would say from which side its links go; rename it."
            )
        swap = name.endswith(ends[1])
        files = TestFiles(reference=target, source=source, gold=gold, swap=swap)
        return read_test(files)


def aligned_row(row: Row, aligned: Aligned) -> OtherRow:
    """The row that reads aligned text with the run of another row."""
    return OtherRow(
        folder=row.folder.with_name(f"{row.folder.name}-aligned"),
        system=row.system,
        work=partial(measure, row, aligned),
        data=row.data,
        after=(row.folder,),
        tests=aligned.files,
    )


def measure(row: Row, aligned: Aligned) -> Figures:
    """AER of the last round, if it aligns, and how many words it does not know."""
    run, test = load_run(row.folder), aligned.read()
    system = System("system", list, run)
    figures: Figures = {"start": row.start, "seed": row.experiment.training.seed}
    if system.rounds:
        figures["aer"] = alignment.error_of(system, test)
    words = run.vocabularies
    ids = [
        *(i for line in test.source or [] for i in words.source.encode(line)),
        *(i for line in test.reference for i in words.target.encode(line)),
    ]
    return figures | {"unknown": ids.count(UNK) / len(ids)}


def joined(results: Sequence[Figures]) -> list[Figures]:
    """The results of the rows that were trained, with what was read with their runs."""

    def name(result: Figures) -> tuple[object, ...]:
        return tuple(result.get(key) for key in ("system", "start", "seed", "data"))

    read = {
        name(r): {key: r[key] for key in SHOWN if key in r}
        for r in results
        if "unknown" in r
    }
    return [r | read.get(name(r), {}) for r in results if "unknown" not in r]
