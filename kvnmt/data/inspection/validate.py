# SPDX-License-Identifier: Apache-2.0
"""Looks a parallel corpus over before anything is trained on it.

Every file is read once, whatever it holds. A finding has one of three severities:

- error: training would stop, or would learn from pairs that are none. Files without
  lines or with different numbers of lines, and where a line is missing; runs of shifted
  lines; bytes that are not UTF-8, and empty lines but in a test set, unless such lines
  are skipped; no pair left to train on.
- warning: most often a mistake. Characters at which other programs end a line, or that
  hide in a word; an empty line of a test set; a target that is its source; lengths too
  different; pairs of one part in another; many unknown words, or no other; two sides
  that hardly go together.
- note: to be known. Pairs that are too long, again there, or have a source with another
  target; sources of one part in another; odd spaces, zero-width characters, line ends
  of Windows; lines that are skipped; lines that are missing at the end, beside the
  error for their number.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kvnmt.data.config import LONGEST
from kvnmt.data.encoding import Dropped
from kvnmt.data.inspection.checks import (
    Part,
    check_counts,
    check_file,
    check_overlap,
    check_pairs,
)
from kvnmt.data.inspection.findings import Finding, Severity
from kvnmt.data.inspection.scan import Index, scan
from kvnmt.data.inspection.shifts import check_shifts
from kvnmt.data.vocabularies import Vocabularies
from kvnmt.data.vocabulary import Words, keep_words
from kvnmt.errors import UserError
from kvnmt.fields import at_least, between, check_fields

PARTS = ("train", "valid", "test")
SIDES = ("source", "target")
Indices: TypeAlias = tuple[Index, Index]
Known: TypeAlias = NDArray[np.bool_]  # by the number of a word


@dataclass(frozen=True)
class ValidateConfig:
    """Parallel text, one sentence per line, and what to expect of it."""

    source: Path  # training text
    target: Path
    valid_source: Path | None = None  # text that chooses the best checkpoint
    valid_target: Path | None = None
    test_source: Path | None = None  # text to be scored on
    test_target: Path | None = None
    # longer pairs (tokens, without EOS) are not trained on; default: 80, or the run's
    max_length: Annotated[int | None, at_least(1)] = None
    # tokens of the longer side to those of the shorter
    max_ratio: Annotated[float, at_least(1)] = 3.0
    # words seen less often are unknown
    min_count: Annotated[int, at_least(1)] = 2
    # at most so many words on each side
    vocabulary_size: Annotated[int | None, at_least(3)] = 30000
    # share of unknown words in a file
    max_unknown: Annotated[float, between(0, 1)] = 0.1
    # what training does with faulty pairs; default: stop, or what the run did
    faulty: Literal["stop", "skip"] | None = None


class FileFigures(NamedTuple):
    """The numbers of lines and tokens of a file."""

    part: str  # train, valid or test
    side: str  # source or target
    file: str
    lines: int
    empty: int  # lines of nothing but spaces
    tokens: int
    unknown: int  # tokens


class Report(NamedTuple):
    """All figures and findings of a corpus."""

    files: list[FileFigures]
    pairs: int | None  # trained on; None: the sides have different numbers of lines
    dropped: Dropped  # uneven ones as the run that counts does
    findings: list[Finding]

    @property
    def serious(self) -> bool:
        """Whether anything is an error."""
        return any(finding.severity == "error" for finding in self.findings)

    def as_plain(self) -> dict[str, Any]:
        """Returns what is written as JSON."""
        kept = {"pairs": self.pairs} | vars(self.dropped)
        return {
            "serious": self.serious,
            "files": [file._asdict() for file in self.files],
            "kept": None if self.pairs is None else kept,
            "findings": [finding.as_plain() for finding in self.findings],
        }


def validate(
    config: ValidateConfig,
    trained: Vocabularies | None = None,
    ratio: float | None = None,
) -> Report:
    """Checks the files of a corpus.

    Args:
        config: Files and what to expect of them.
        trained: Vocabularies that count tokens and unknown words; by default the words
            that training would choose.
        ratio: Most tokens of a side for each token of the other; the run of
            ``trained`` leaves out pairs above it.

    Raises:
        UserError: A file cannot be read, or only one side of a part is named, or a
            number is out of its bounds.
    """
    check_fields(config)
    indices = Index(), Index()
    parts = list(_read(config, indices, trained))
    train = parts[0]
    longest = config.max_length or LONGEST["words"]
    unit = "tokens of the run" if trained else "words"
    findings = [
        finding
        for part in parts
        for finding in _check(part, config, indices, longest, unit)
    ]
    for one, held in combinations(parts, 2):
        findings += check_overlap(one, held)
    known = None if trained else tuple(_known(train, indices, config))
    files = [figures for part in parts for figures in _figures(part, known)]
    findings += _unknown(files, config.max_unknown, trained is None)
    pairs, dropped = _kept(train, longest, ratio)
    findings += [] if pairs or pairs is None else [_nothing_left(train, dropped)]
    order = ("error", "warning", "note")
    findings.sort(key=lambda finding: order.index(finding.severity))
    return Report(files, pairs, dropped, findings)


def _read(
    config: ValidateConfig, indices: Indices, trained: Vocabularies | None
) -> Iterator[Part]:
    vocabularies = trained or (None, None)
    for name, (source, target) in _paths(config).items():
        yield Part(
            name=name,
            source=scan(source, indices[0], vocabularies[0]),
            target=scan(target, indices[1], vocabularies[1]),
        )


def _paths(config: ValidateConfig) -> dict[str, tuple[Path, Path]]:
    parts = {"train": (config.source, config.target)}
    for part in PARTS[1:]:
        paths = getattr(config, f"{part}_source"), getattr(config, f"{part}_target")
        for side, path in zip(SIDES, paths):
            if path is None and paths != (None, None):
                raise UserError(
                    f"only one side of the {part} text is given; give --{part}-{side} "
                    "too."
                )
        if paths != (None, None):
            parts[part] = paths
    return parts


def _check(
    part: Part, config: ValidateConfig, indices: Indices, longest: int, unit: str
) -> Iterator[Finding]:
    """Yields what is wrong with a part by itself."""
    broken: Severity = "note" if config.faulty == "skip" else "error"
    empty = broken
    if part.name == "test":  # of which no pair is left out
        empty, broken = "warning", "error"
    nothing = "nothing but spaces" if unit == "words" else "nothing becomes a token"
    yield from check_counts(part)
    for side in (part.source, part.target):
        yield from check_file(side, empty=empty, broken=broken, nothing=nothing)
    if part.paired:
        yield from check_pairs(part, longest, config.max_ratio, unit)
    if len(part.source) and len(part.target):
        yield from check_shifts(part, indices)


def _known(part: Part, indices: Indices, config: ValidateConfig) -> Iterator[Known]:
    """Yields the words of each side that training would know; none if it refused."""
    used = part.complete if part.paired else None
    for side, index in zip((part.source, part.target), indices):
        words = side.words
        if used is not None:
            words = words[np.repeat(used, np.diff(side.starts))]
        counts = np.bincount(words, minlength=len(index)).tolist()
        try:
            kept = keep_words(
                dict(zip(index, counts)),
                min_count=config.min_count,
                size=config.vocabulary_size,
            )
        except UserError:
            kept = Words(())
        known = np.zeros(len(index), np.bool_)
        known[[index[word] for word in kept.words]] = True
        yield known


def _figures(part: Part, known: tuple[Known, ...] | None) -> Iterator[FileFigures]:
    for i, (name, side) in enumerate(zip(SIDES, (part.source, part.target))):
        unknown = side.unknown
        if known is not None:
            unknown = int(np.count_nonzero(~known[i][side.words]))
        lines, empty = len(side), int(side.blank.sum())
        tokens = int(side.tokens.sum())
        yield FileFigures(part.name, name, side.path, lines, empty, tokens, unknown)


def _unknown(files: list[FileFigures], most: float, chosen: bool) -> Iterator[Finding]:
    """Yields a finding for every file with too many unknown words."""
    for file in files:
        if not file.tokens or file.unknown <= most * file.tokens:
            continue
        share = f"{file.unknown / file.tokens:.1%} of its words are unknown"
        name, why = "unknown-words", "is it tokenised and cased as in training?"
        if file.part == "train" and chosen:
            why = "of subwords, which kvnmt train takes by default, none is."
        if file.part == "train" and file.unknown == file.tokens:
            name, share = "no-vocabulary", "a vocabulary of words would have none of it"
            if not chosen:
                share, why = "the run knows no token", "is it of the same languages?"
        message = f"{file.file}: {share}; {why}"
        yield Finding(name, "warning", file.unknown, message)


def _kept(
    part: Part, max_length: int, ratio: float | None
) -> tuple[int | None, Dropped]:
    if not part.paired:
        return None, Dropped()
    shorter = np.minimum(part.source.tokens, part.target.tokens)
    longer = np.maximum(part.source.tokens, part.target.tokens)
    short = part.complete & (longer <= max_length)
    even = short & (longer <= ratio * shorter) if ratio else short
    return int(even.sum()), Dropped(
        empty=int((~part.complete & ~part.broken).sum()),
        too_long=int((part.complete & ~short).sum()),
        undecodable=int(part.broken.sum()),
        uneven=int((short & ~even).sum()),
    )


def _nothing_left(part: Part, dropped: Dropped) -> Finding:
    message = (
        f"no pair of {part.files} is left to train on: {dropped.empty:,} have an empty "
        f"side, {dropped.too_long:,} are too long, {dropped.undecodable:,} not UTF-8, "
        f"{dropped.uneven:,} uneven."
    )
    return Finding("nothing-left", "error", len(part.source), message)
