# SPDX-License-Identifier: Apache-2.0
"""The command that aligns given pairs, and what scoring them needs, too."""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from kvnmt.cli.flags import check_direction, check_reverse
from kvnmt.console import counting, print_json
from kvnmt.data.buckets import BATCH_SIZE, BATCH_TOKENS
from kvnmt.data.links import Links
from kvnmt.data.text import Parallel, clean, count_parallel, parallel_blocks
from kvnmt.data.vocabulary import EOS
from kvnmt.errors import UserError
from kvnmt.fields import check_fields
from kvnmt.inference.config import Count, Total
from kvnmt.inference.forced import Forced, force_lines
from kvnmt.metrics.links import Heuristic, format_pharaoh, invert, symmetrize
from kvnmt.runs.directory import Run, load_aligner

JOINED: Heuristic = "grow-diag-final-and"
WINDOW = 4096  # pairs at a time, ...
ROOM = 2**28  # ... for which source times target characters sum to at most this


@dataclass(frozen=True, kw_only=True)
class Batched:
    """What every command that reads pairs has."""

    batch_size: Count = BATCH_SIZE  # most pairs at a time
    # most positions of their longer sides at a time, padding too
    batch_tokens: Total = BATCH_TOKENS

    @property
    def limits(self) -> tuple[int, int]:
        """Most pairs and most positions at a time."""
        return self.batch_size, self.batch_tokens


@dataclass(frozen=True, kw_only=True)
class Align(Batched):
    """Print word alignments of given pairs, one line of ``source-target`` links each.

    Words are counted from 0. Each target token is linked to the source token that it
    attends to most, if that is not the end of sentence; words are linked if any of
    their pieces are.
    """

    run: tyro.conf.Positional[Path]  # run directory of a trained model
    source: Path  # what is translated
    target: Path  # its translations
    # round of the first run's attention, from 1; default: the last, which is read
    round: int | None = None
    reverse: Path | None = None  # run of the other direction, to join its links with
    # how links are joined; default: grow-diag-final-and
    heuristic: Heuristic | None = None
    json: bool = False  # print JSON lines with the tokens and the soft alignment

    def __call__(self) -> None:
        """Aligns."""
        check_fields(self)
        if self.heuristic and not self.reverse:
            raise UserError(
                "--heuristic joins the links of two runs; name the other with "
                "--reverse."
            )
        run, rounds = load_aligner(self.run)
        count, blocks = read_pairs(run, self.source, self.target, self.batch_size)
        number = rounds if self.round is None else self.round
        if not 1 <= number <= rounds:
            last = f"1 to {rounds}" if rounds > 1 else "1, the only one of this system"
            raise UserError(f"--round is {self.round} but must be {last}.")
        chosen, other = number - 1, self._other(run)
        with counting("aligning", count, [sys.stdout]) as advance:
            for source, target in parts(blocks, self.batch_size):
                forced = force_lines(
                    run, source, target, advance, self.limits, scored=False
                )
                links = [pair.links(chosen) for pair in forced]
                if other:
                    turned = force_lines(
                        other, target, source, limits=self.limits, scored=False
                    )
                    links = self._joined(links, turned)
                for n, (pair, joined) in enumerate(zip(forced, links, strict=True)):
                    if self.json:
                        lines = source[n], target[n]
                        print_json(_record(run, *lines, pair, chosen, joined))
                    else:
                        print(format_pharaoh(joined))

    def _other(self, forward: Run) -> Run | None:
        """The run of the other direction, if links are to be joined."""
        if self.reverse is None:
            return None
        check_reverse(self.reverse, self.run)
        run, _ = load_aligner(self.reverse)
        check_direction(self.reverse, run, forward)
        return run

    def _joined(self, links: list[Links], turned: list[Forced]) -> list[Links]:
        """The links of both directions of pairs."""
        how = self.heuristic or JOINED
        backward = [invert(pair.links()) for pair in turned]
        return [symmetrize(a, b, how) for a, b in zip(links, backward, strict=True)]


def _record(
    run: Run, source: str, target: str, pair: Forced, chosen: int, links: Links
) -> dict[str, Any]:
    """The alignment of two lines in one round, as plain data."""
    words = run.vocabularies
    matrix = pair.scored.alignments[chosen]
    return {
        "links": format_pharaoh(links),
        "source": words.source.pieces([*words.source.encode(source), EOS]),
        "target": words.target.pieces([*words.target.encode(target), EOS]),
        "alignment": [[round(float(a), 6) for a in row] for row in matrix],
    }


def parts(
    texts: Iterable[Parallel], least: int
) -> Iterator[tuple[list[str], list[str]]]:
    """Both sides of all `windows` of the texts, one after the other."""
    for text in texts:
        for part in windows(text, least):
            yield text.source[part], text.target[part]


def windows(text: Parallel, least: int = 0) -> Iterator[slice]:
    """Parts of the text; an alignment is as large as both sides are long.

    Args:
        text: Pairs.
        least: How many may stand together at least, as far as there is room.
    """
    first, room, most = 0, ROOM, max(WINDOW, least)
    for n, (source, target) in enumerate(zip(text.source, text.target)):
        needed = (len(source) + 1) * (len(target) + 1)
        if n > first and (needed > room or n - first == most):
            yield slice(first, n)
            first, room = n, ROOM
        room -= needed
    if first < len(text.target):
        yield slice(first, len(text.target))


def read_pairs(
    run: Run, source: Path | None, target: Path, least: int = 0
) -> tuple[int, Iterator[Parallel]]:
    """How many pairs there are, and the pairs, some thousands at a time.

    A language model's source is what it writes, too. All text is looked at before the
    first pair is given, and none is kept.

    Args:
        run: What reads the pairs.
        source: A file; None for a language model.
        target: A file.
        least: How many pairs may stand together at least.

    Raises:
        UserError: A file cannot be read, or is of no use to the run.
    """
    check_source(run, source)
    files = source or target, target
    count = count_parallel(*files)
    for block in parallel_blocks(*files):
        clean(block, "keep")
    blocks = parallel_blocks(*files, max(WINDOW, least))
    return count, (clean(block, "keep") for block in blocks)


def check_source(run: Run, source: Path | None) -> None:
    """Refuses a source that is not read, and none where one is.

    Raises:
        UserError: It is so.
    """
    if source is None and run.model.reads_source:
        raise UserError("this run's model reads a source; give --source too.")
    if source and not run.model.reads_source:
        raise UserError(
            "this run is a language model, which reads no source; leave --source out."
        )
