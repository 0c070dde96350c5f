# SPDX-License-Identifier: Apache-2.0
"""Checks of one file, and of two whose lines translate each other."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvnmt.data.inspection.findings import (
    EXAMPLES,
    Finding,
    Place,
    Severity,
    line_numbers,
)
from kvnmt.data.inspection.scan import LOST, WINDOWS, Scan
from kvnmt.errors import counted

# Of each kind of odd character: its severity, its name and what follows from it.
_SPLITS = "other programs end a line there, kvnmt does not; replace or remove them"
_STICKS = "they become part of a word; remove them"
_JOINS = "words are what ASCII spaces separate, so they join two words into one"
ODD: dict[str, tuple[Severity, str, str]] = {
    "carriage-return": ("warning", "carriage return", _SPLITS),
    "line-separator": ("warning", "U+2028 line separator", _SPLITS),
    "paragraph-separator": ("warning", "U+2029 paragraph separator", _SPLITS),
    "next-line": ("warning", "U+0085 next-line character", _SPLITS),
    "form-feed": ("warning", "form feed", _SPLITS),
    "vertical-tab": ("warning", "vertical tab", _SPLITS),
    "information-separator": ("warning", "U+001C to U+001E separator", _SPLITS),
    "byte-order-mark": ("warning", "U+FEFF byte-order mark", _STICKS),
    "control": ("warning", "control character", _STICKS),
    LOST: (
        "warning",
        "U+FFFD replacement character",
        "another program could not decode what was there; make the text again",
    ),
    "zero-width": ("note", "zero-width character", "words may differ by them unseen"),
    "tab": ("note", "tab", _JOINS),
    "odd-space": ("note", "space other than the ASCII one", _JOINS),
    WINDOWS: ("note", "carriage return before the line feed", "they are dropped"),
}
_PLURAL = {
    "odd-space": "spaces other than the ASCII one",
    WINDOWS: "carriage returns before the line feed",
}
# What to do about an empty line, by how severe it is.
EMPTY: dict[Severity, str] = {
    "error": "remove the pairs from both files, or train with --data.faulty skip",
    "warning": "remove the pairs from both files",
    "note": "such pairs are skipped in training",
}
WORD = 12  # characters, on average: where words have more, spaces do not part them
MULTIPLIER = np.int64(0x9E3779B97F4A7C15 - (1 << 64))  # odd, its bits well mixed


class Part(NamedTuple):
    """A part of the corpus: the scans of its two sides."""

    name: str  # train, valid or test
    source: Scan
    target: Scan

    @property
    def paired(self) -> bool:
        """Whether line n of one side can be the translation of line n of the other."""
        return len(self.source) == len(self.target) > 0

    @property
    def complete(self) -> NDArray[np.bool_]:
        """Pairs of which no side is blank or broken."""
        return ~(self.source.blank | self.target.blank | self.broken)

    @property
    def broken(self) -> NDArray[np.bool_]:
        """Pairs of which a side is not UTF-8."""
        return self.source.broken | self.target.broken

    @property
    def hashes(self) -> NDArray[np.int64]:
        """One hash per pair; of equal pairs it is equal."""
        return self.source.hashes * MULTIPLIER ^ self.target.hashes

    @property
    def files(self) -> str:
        """The names of both files."""
        return f"{self.source.path} and {self.target.path}"

    def finding(
        self, name: str, severity: Severity, lines: NDArray, what: str, why: str
    ) -> Iterator[Finding]:
        """Yields a finding about the pairs of these lines, from 0, if there are any."""
        if not len(lines):
            return
        first = [int(i) + 1 for i in lines[:EXAMPLES]]
        message = f"{self.files}, {line_numbers(first, len(lines))}: {what}; {why}."
        places = tuple(Place(self.source.path, line) for line in first)
        yield Finding(name, severity, len(lines), message, places)


def check_file(
    text: Scan, *, empty: Severity, broken: Severity, nothing: str
) -> Iterator[Finding]:
    """Yields what is wrong with a file by itself.

    Args:
        text: The file.
        empty: The severity of an empty line.
        broken: That of one that is not UTF-8.
        nothing: What an empty line is, for people.
    """
    if not len(text):
        message = f"{text.path} is empty; it needs one sentence per line."
        yield Finding("empty-file", "error", 1, message)
    if text.undecodable:
        yield _undecodable(text, broken)
    for kind, (severity, noun, why) in ODD.items():
        if kind in text.odd:
            line, count = text.odd[kind].line, text.odd[kind].count
            what = counted(count, noun, _PLURAL.get(kind, ""))
            first = f"first on line {line}" if count > 1 else f"on line {line}"
            message = f"{text.path}: {what}, {first}; {why}."
            yield Finding(kind, severity, count, message, (Place(text.path, line),))
    lines = np.flatnonzero(text.blank)
    if len(lines):
        first = [int(i) + 1 for i in lines[:EXAMPLES]]
        why = EMPTY[empty]
        numbers = line_numbers(first, len(lines))
        message = f"{text.path}, {numbers}: {nothing}; {why}."
        places = tuple(Place(text.path, line) for line in first)
        yield Finding("empty-line", empty, len(lines), message, places)


def check_counts(part: Part) -> Iterator[Finding]:
    """Yields a finding if the sides differ in their numbers of lines."""
    source, target = part.source, part.target
    if len(source) != len(target):
        message = (
            f"{source.path} has {counted(len(source), 'line')} but {target.path} has "
            f"{counted(len(target), 'line')}; line n of one must translate line n "
            "of the other."
        )
        gap = abs(len(source) - len(target))
        yield Finding("line-counts", "error", gap, message)


def check_pairs(
    part: Part, max_length: int, max_ratio: float, unit: str = "words"
) -> Iterator[Finding]:
    """Yields what is wrong with pairs; both sides must have as many lines.

    Args:
        part: The pairs.
        max_length: Most tokens of a side.
        max_ratio: Most tokens of the longer side for each of the shorter.
        unit: What is counted, for people.
    """
    complete = part.complete
    longer = np.maximum(part.source.tokens, part.target.tokens)
    uneven, what = _uneven(part, max_ratio, unit)
    why = "they may not translate each other"
    yield from part.finding("ratio", "warning", np.flatnonzero(uneven), what, why)
    what, why = f"more than {max_length} {unit}", "look at them"
    if part.name == "train":
        why = f"training on {unit} leaves such pairs out"
    long = np.flatnonzero(complete & (longer > max_length))
    yield from part.finding("too-long", "note", long, what, why)
    same = complete & (part.source.hashes == part.target.hashes)
    if part.source.path == part.target.path:  # as for a language model
        same[:] = False
    what, why = "both sides are the same", "look whether they are translated at all"
    yield from part.finding("identical", "warning", np.flatnonzero(same), what, why)
    lines = np.flatnonzero(complete)
    pairs, sources = part.hashes[lines], part.source.hashes[lines]
    again = lines[~_first(pairs)]
    what, why = "an earlier pair again", "it counts as often in training"
    yield from part.finding("duplicate", "note", again, what, why)
    other = lines[_first(pairs) & ~_first(sources)]
    what, why = "an earlier source with another target", "both are trained on"
    if part.name != "train":
        why = "no system can give both"
    yield from part.finding("several-targets", "note", other, what, why)


def check_overlap(train: Part, held: Part) -> Iterator[Finding]:
    """Yields the pairs and sources of a held-out part that another part has, too.

    Args:
        train: That other part; it may be held out itself, as valid beside test.
        held: The part.
    """
    lines = np.flatnonzero(~held.source.blank)
    pairs = np.zeros(0, np.int64)
    if train.paired and held.paired:
        complete = np.flatnonzero(held.complete)
        trained = train.hashes[train.complete]
        pairs = complete[np.isin(held.hashes[complete], trained)]
        what = f"the pair is in {train.source.path} too"
        findings = held.finding(
            f"{held.name}-overlap",
            "warning",
            pairs,
            what,
            "a score on it tells nothing of new text; take it out of one of them",
        )
        yield from _with_training_lines(findings, held.hashes, train.hashes, train)
    hashes = held.source.hashes
    seen = lines[np.isin(hashes[lines], train.source.hashes[~train.source.blank])]
    seen = np.setdiff1d(seen, pairs)
    what = f"the source, though not the pair, is in {train.source.path} too"
    name, why = f"{held.name}-source-overlap", "a score on it flatters"
    findings = held.finding(name, "note", seen, what, why)
    yield from _with_training_lines(findings, hashes, train.source.hashes, train)


def _with_training_lines(
    findings: Iterator[Finding], held: NDArray, trained: NDArray, train: Part
) -> Iterator[Finding]:
    """Adds the line of the training text to every example."""
    for finding in findings:
        places = []
        for place in finding.examples:
            line = int(np.flatnonzero(trained == held[place.line - 1])[0]) + 1
            note = f"line {line} of {train.source.path}"
            places.append(place._replace(note=note))
        yield finding._replace(examples=tuple(places))


def _uneven(part: Part, most: float, unit: str) -> tuple[NDArray[np.bool_], str]:
    """Which pairs have sides of very different length, and what is said of them.

    Where a side has hardly any spaces, as Japanese, a line is one word. Then characters
    are compared, by how many more of them that side usually has.
    """
    both = part.source, part.target
    letters = [side.letters[part.complete].sum() for side in both]
    words = [max(side.tokens[part.complete].sum(), 1) for side in both]
    if unit == "words" and max(n / w for n, w in zip(letters, words)) > WORD:
        usual = letters[0] / max(letters[1], 1)
        source, target = part.source.letters, usual * part.target.letters
        what = f"one side has {most:g} times as many characters as usual for the other"
    else:
        source, target = part.source.tokens, part.target.tokens
        what = f"one side has more than {most:g} times the tokens of the other"
    longer, shorter = np.maximum(source, target), np.minimum(source, target)
    uneven = part.complete & (longer > most * np.maximum(shorter, 1))
    return uneven, what


def _undecodable(text: Scan, severity: Severity) -> Finding:
    faults = text.undecodable
    first = faults[0]
    lines = line_numbers([fault.line for fault in faults], len(faults))
    message = (
        f"{text.path}, {lines}: not UTF-8; the first such byte is byte {first.byte} of "
        f"line {first.line} (0x{first.value:02x}, byte {first.offset} of the file); "
        "convert the file, for example with iconv."
    )
    places = tuple(
        Place(
            file=text.path,
            line=fault.line,
            note=f"byte {fault.byte}, 0x{fault.value:02x}, byte {fault.offset} of the "
            "file",
        )
        for fault in faults[:EXAMPLES]
    )
    return Finding("undecodable", severity, len(faults), message, places)


def _first(values: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which values do not occur before."""
    first = np.zeros(len(values), np.bool_)
    first[np.unique(values, return_index=True)[1]] = True
    return first
