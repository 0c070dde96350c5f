# SPDX-License-Identifier: Apache-2.0
"""The command that writes a page in which systems can be looked at."""

from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import tyro

from kvnmt.cli.ensembling import Ensembling
from kvnmt.cli.flags import check_coverage
from kvnmt.console import say
from kvnmt.data.lines import opened
from kvnmt.data.outputs import claim
from kvnmt.data.text import clean, count_parallel, decode_lines, parallel_blocks
from kvnmt.devices import use_cores
from kvnmt.errors import UserError, counted
from kvnmt.evaluation.exploration import explore
from kvnmt.fields import check_fields
from kvnmt.inference.config import (
    Count,
    SearchConfig,
    check_one,
    check_search,
    check_unsearched,
)


@dataclass(frozen=True, kw_only=True)
class Explore(Ensembling):
    """Write a page to look at systems with: alignments, memories, differences.

    The page is one HTML file that needs no network. Choose a sentence and one or two
    systems, step through the words, and see for each word where the source was read
    and what was rewritten.
    """

    runs: tyro.conf.Positional[tuple[Path, ...]]  # run directories
    source: Path  # what is translated
    search: SearchConfig
    reference: Path | None = None  # translations by people, to compare with
    forced: bool = False  # show how the references are read; translate nothing
    first: Count = 100  # so many sentences; 100 are 1 MB per system and round
    output: Path = Path("explorer.html")  # page to write

    def __call__(self) -> None:
        """Explores."""
        check_fields(self)
        check_search(self.search)
        if self.forced and not self.reference:
            raise UserError("--forced reads the references; give --reference.")
        use_cores()
        runs = self.load(self.runs)
        check_coverage(0 if self.forced else self.search.coverage, runs)
        source, reference = self._read()
        claim(self.output, [self.source, self.reference])
        forced = " (nothing is translated, references are read)" if self.forced else ""
        explorer = explore(
            runs,
            source,
            reference,
            self.search,
            forced=self.forced,
            title=f"{self.source.name}: {', '.join(runs)}{forced}",
        )
        explorer.write(self.output)
        count = len(explorer.data["sentences"])
        size = self.output.stat().st_size / 1e6
        say(
            f"{counted(count, 'sentence')} in {self.output} ({size:.1f} MB); "
            "open it in a browser."
        )

    def _read(self) -> tuple[list[str], list[str] | None]:
        """The first lines, of however large a text."""
        if self.reference:
            count_parallel(self.source, self.reference)
            blocks = parallel_blocks(self.source, self.reference, self.first)
            text = clean(next(blocks), "keep")
            return text.source, text.target
        with opened(self.source) as file:
            source = decode_lines(islice(file, self.first), str(self.source))
        if not source:
            raise UserError(f"'{self.source}' is empty; there is nothing to look at.")
        return source, None

    def check_given(self, start: "Explore") -> None:
        """Refuses what no search is for, and several translations: one is shown."""
        check_one(self.search, start.search, "shown")
        if self.forced and self.reference:
            why = "{0} is for translating, and --forced only reads; leave one out."
            check_unsearched(self.search, start.search, why, reads=True)
