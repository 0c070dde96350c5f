# SPDX-License-Identifier: Apache-2.0
"""The command that makes a lexical shortlist."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, TypeAlias

import numpy as np
import tyro
from numpy.typing import NDArray

from kvnmt.console import counting, say
from kvnmt.data.links import links_between
from kvnmt.data.text import Block, clean, count_parallel, parallel_blocks, read_lines
from kvnmt.data.vocabularies import Vocabularies
from kvnmt.errors import UserError, counted
from kvnmt.fields import at_least, check_fields
from kvnmt.files import claim
from kvnmt.inference.shortlist import BEST, COMMON, count_links
from kvnmt.inference.shortlist_file import write_shortlist
from kvnmt.inference.token_links import attended_links, spread_links
from kvnmt.runs.directory import Run, load_aligner, load_settings

PAIRS = 1_000  # that are linked at a time
Linker: TypeAlias = Callable[[Block], NDArray[np.int64]]  # as `count_links` counts


@dataclass(frozen=True)
class Shortlist:
    """Make a table of likely target tokens for every source token, to translate with.

    Each target token of the text is linked to the source token that it attends to
    most, as by kvnmt align; or as an aligner's file of links between words says.
    """

    run: tyro.conf.Positional[Path]  # run directory; its vocabularies are the table's
    source: Path  # text, best what the run was trained on
    target: Path  # its translations
    output: Path  # table to write
    links: Path | None = None  # lines of i-j, between words, instead of the run's own
    best: Annotated[int, at_least(1)] = BEST  # most target tokens of a source token
    common: Annotated[int, at_least(1)] = COMMON  # frequent ones, for every sentence

    def __call__(self) -> None:
        """Makes it."""
        check_fields(self)
        pairs = count_parallel(self.source, self.target)
        claim(self.output, [self.source, self.target, self.links])
        if self.links:
            _, words = load_settings(self.run)
            link = _by_file(words, self.links, pairs)
        else:
            run, _ = load_aligner(self.run)
            words, link = run.vocabularies, partial(_by_attention, run)
        with counting("linking", pairs) as advance:
            shortlist = count_links(
                self._linked(link, advance),
                (len(words.source), len(words.target)),
                self.best,
                self.common,
            )
        write_shortlist(shortlist, words, self.output)
        say(f"{len(shortlist.lexicon.source)} lines are in '{self.output}'.")

    def _linked(
        self, link: Linker, advance: Callable[[int], None]
    ) -> Iterator[NDArray[np.int64]]:
        """The links of some pairs at a time."""
        for block in parallel_blocks(self.source, self.target, PAIRS):
            yield link(block)
            advance(len(block.source))


def _by_attention(run: Run, block: Block) -> NDArray[np.int64]:
    text = clean(block, "keep")
    return attended_links(run, text.source, text.target)


def _by_file(words: Vocabularies, path: Path, pairs: int) -> Linker:
    """What links tokens as a file links words.

    Raises:
        UserError: It cannot be read, or has more or fewer lines than there are pairs.
    """
    lines = read_lines(path)
    if len(lines) != pairs:
        raise UserError(
            f"'{path}' has {counted(len(lines), 'line')} for "
            f"{counted(pairs, 'sentence pair')}; line n must hold the links of pair n."
        )

    def link(block: Block) -> NDArray[np.int64]:
        text = clean(block, "keep")
        links = [
            links_between(pair, lines[number - 1], f"{path}, line {number}")
            for number, pair in enumerate(zip(*text[:2]), block.first)
        ]
        return spread_links(words, text.source, text.target, links)

    return link
