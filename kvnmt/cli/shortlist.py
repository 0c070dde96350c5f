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

from kvnmt.cli.pairs import Batched, parts
from kvnmt.console import counting, say
from kvnmt.data.config import DataConfig, longest
from kvnmt.data.encoding import tokenised
from kvnmt.data.outputs import claim
from kvnmt.data.sources import TextReader, open_text
from kvnmt.data.text import Block, clean
from kvnmt.data.vocabularies import Vocabularies
from kvnmt.errors import UserError, counted
from kvnmt.fields import at_least, check_fields
from kvnmt.inference.score import LIMITS
from kvnmt.inference.shortlist import BEST, COMMON, count_links
from kvnmt.inference.shortlist_file import write_shortlist
from kvnmt.inference.token_links import attended_links, counted_links
from kvnmt.runs.directory import Run, load_aligner, load_settings

PAIRS = 1_000  # that are linked at a time
Linker: TypeAlias = Callable[[Block], NDArray[np.int64]]  # as `count_links` counts


@dataclass(frozen=True, kw_only=True)
class Shortlist(Batched):
    """Make a table of likely target tokens for every source token, to translate with.

    Each target token of the text is linked to the source token that it attends to
    most, as in kvnmt align; pairs longer than the run was trained on are left out. With
    --links, an aligner's file gives the links between words instead. Faulty pairs are
    left out, too.
    """

    run: tyro.conf.Positional[Path]  # run directory; its vocabularies are the table's
    source: Path  # text, ideally the run's training text
    target: Path  # its translations
    output: Path  # table to write
    links: Path | None = None  # file of links i-j between words, instead of the run's
    best: Annotated[int, at_least(1)] = BEST  # most target tokens per source token
    common: Annotated[int, at_least(1)] = COMMON  # frequent tokens for all sentences

    def __call__(self) -> None:
        """Makes it."""
        check_fields(self)
        if self.links and self.limits != LIMITS:
            raise UserError(
                "--batch-size and --batch-tokens are for a run that links, and --links "
                "has the links; leave them out."
            )
        claim(self.output, [self.source, self.target, self.links])
        config = DataConfig(source=self.source, target=self.target, links=self.links)
        text, left_out = open_text(config, "train"), _LeftOut()
        if self.links:
            _, words = load_settings(self.run)
            link = partial(_by_file, words, left_out)
        else:
            run, _ = load_aligner(self.run)
            link = partial(_by_attention, run, self.limits, left_out)
            words = run.vocabularies
        with counting("linking", text.pairs) as advance:
            shortlist = count_links(
                _linked(text, link, max(PAIRS, self.batch_size), advance),
                (len(words.source), len(words.target)),
                self.best,
                self.common,
            )
        for why, pairs in (
            ("longer than the run was trained on", left_out.long),
            ("with a side that is blank or not UTF-8", left_out.faulty),
        ):
            if pairs:
                were = "was" if pairs == 1 else "were"
                say(f"warning: {counted(pairs, 'pair')} {why} {were} left out.")
        if left_out.long + left_out.faulty == text.pairs:
            raise UserError("no pair is left to link; split or mend the lines.")
        count = write_shortlist(shortlist, words, self.output)
        say(f"{count:,} entries are in '{self.output}'.")


@dataclass
class _LeftOut:
    """How many pairs are not linked."""

    long: int = 0
    faulty: int = 0


def _linked(
    text: TextReader, link: Linker, pairs: int, advance: Callable[[int], None]
) -> Iterator[NDArray[np.int64]]:
    """The links of so many pairs at a time."""
    for block in text.blocks(pairs):
        yield link(block)
        advance(len(block.source))


def _by_attention(
    run: Run, limits: tuple[int, int], left_out: _LeftOut, block: Block
) -> NDArray[np.int64]:
    text = clean(block, "skip")
    left_out.faulty += len(block.source) - len(text.source)
    limit = longest(run.experiment.data, run.vocabularies.kinds)
    links = [np.zeros((0, 2), np.int64)]  # perhaps no pair is left of the block
    for pairs in parts([text], limits[0]):
        some, long = attended_links(run, *pairs, limit, limits)
        links.append(some)
        left_out.long += long
    return np.concatenate(links)


def _by_file(
    words: Vocabularies, left_out: _LeftOut, block: Block
) -> NDArray[np.int64]:
    """The links between tokens whose words a file links."""
    pairs = tokenised(words, block, "skip")
    left_out.faulty += len(block.source) - len(pairs.source)
    return counted_links(pairs.source, pairs.target, pairs.links)
