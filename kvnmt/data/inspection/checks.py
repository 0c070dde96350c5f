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
    named,
    told,
)
from kvnmt.data.inspection.scan import WINDOWS, Scan

# Of each kind of odd character: how bad, what it is called, what follows from it.
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
    "byte-order-mark": ("warning", "U+FEFF byte-order mark", _STICKS),
    "control": ("warning", "control character", _STICKS),
    "zero-width": ("note", "zero-width character", "words may differ by them unseen"),
    "tab": ("note", "tab", _JOINS),
    "odd-space": ("note", "space other than the ASCII one", _JOINS),
    WINDOWS: ("note", "carriage return before the line feed", "they are dropped"),
}
_PLURAL = {"odd-space": "spaces other than the ASCII one"} | {
    WINDOWS: "carriage returns before the line feed"
}
MULTIPLIER = np.int64(0x9E3779B97F4A7C15 - (1 << 64))  # odd, its bits well mixed


class Text(NamedTuple):
    """The two sides of a part of the corpus."""

    name: str  # train, valid or test
    source: Scan
    target: Scan

    @property
    def paired(self) -> bool:
        """Whether line n of one can be the translation of line n of the other."""
        return len(self.source) == len(self.target) > 0

    @property
    def whole(self) -> NDArray[np.bool_]:
        """Pairs of which no side is blank."""
        return ~(self.source.blank | self.target.blank)

    @property
    def hashes(self) -> NDArray[np.int64]:
        """One per pair; equal iff both sides are."""
        return self.source.hashes * MULTIPLIER ^ self.target.hashes

    @property
    def files(self) -> str:
        """Both names."""
        return f"{self.source.path} and {self.target.path}"

    def finding(
        self, name: str, severity: Severity, lines: NDArray, what: str, why: str
    ) -> Iterator[Finding]:
        """One of pairs, if there are any; ``lines`` from 0."""
        if not len(lines):
            return
        first = [int(i) + 1 for i in lines[:EXAMPLES]]
        message = f"{self.files}, {told(first, len(lines))}: {what}; {why}."
        places = tuple(Place(self.source.path, line) for line in first)
        yield Finding(name, severity, len(lines), message, places)


def check_file(text: Scan, *, empty: Severity) -> Iterator[Finding]:
    """What is wrong with a file by itself.

    Args:
        text: The file.
        empty: How bad an empty line is.
    """
    if not len(text):
        message = f"{text.path} is empty; it needs one sentence per line."
        yield Finding("empty-file", "error", 1, message)
    if text.undecodable:
        yield _undecodable(text)
    for kind, (severity, one, why) in ODD.items():
        if kind in text.odd:
            line, count = text.odd[kind].line, text.odd[kind].count
            what = named(count, one, _PLURAL.get(kind, ""))
            first = f"first on line {line}" if count > 1 else f"on line {line}"
            message = f"{text.path}: {what}, {first}; {why}."
            yield Finding(kind, severity, count, message, (Place(text.path, line),))
    lines = np.flatnonzero(text.blank)
    if len(lines):
        first = [int(i) + 1 for i in lines[:EXAMPLES]]
        why = "remove the pairs from both files, or train with --data.faulty skip"
        if empty == "note":
            why = "such pairs are skipped in training"
        message = f"{text.path}, {told(first, len(lines))}: nothing but spaces; {why}."
        places = tuple(Place(text.path, line) for line in first)
        yield Finding("empty-line", empty, len(lines), message, places)


def check_counts(text: Text) -> Iterator[Finding]:
    """Whether both sides have as many lines."""
    counts = len(text.source), len(text.target)
    if counts[0] != counts[1]:
        files = text.source.path, text.target.path
        both = (f"{f} has {named(n, 'line')}" for f, n in zip(files, counts))
        message = f"{' but '.join(both)}; line n of one must translate line n of"
        gap = abs(counts[0] - counts[1])
        yield Finding("line-counts", "error", gap, f"{message} the other.")


def check_pairs(text: Text, max_length: int, max_ratio: float) -> Iterator[Finding]:
    """What is wrong with pairs by themselves; both sides must have as many lines."""
    whole, sizes = text.whole, np.stack([text.source.tokens, text.target.tokens])
    longer, shorter = sizes.max(0), sizes.min(0)
    uneven = whole & (longer > max_ratio * np.maximum(shorter, 1))
    what = f"one side has more than {max_ratio:g} times the tokens of the other"
    why = "they may not translate each other"
    yield from text.finding("ratio", "warning", np.flatnonzero(uneven), what, why)
    what = f"more than {max_length} tokens"
    why = "training leaves such pairs out" if text.name == "train" else "look at them"
    long = np.flatnonzero(whole & (longer > max_length))
    yield from text.finding("too-long", "note", long, what, why)
    same = whole & (text.source.hashes == text.target.hashes)
    if text.source.path == text.target.path:  # as for a language model
        same[:] = False
    what, why = "both sides are the same", "look whether they are translated at all"
    yield from text.finding("identical", "warning", np.flatnonzero(same), what, why)
    lines = np.flatnonzero(whole)
    pairs, sources = text.hashes[lines], text.source.hashes[lines]
    again = lines[~_first(pairs)]
    what, why = "an earlier pair again", "it counts as often in training"
    yield from text.finding("duplicate", "note", again, what, why)
    other = lines[_first(pairs) & ~_first(sources)]
    what, why = "an earlier source with another target", "both are trained on"
    if text.name != "train":
        why = "no system can give both"
    yield from text.finding("several-targets", "note", other, what, why)


def check_overlap(train: Text, held: Text) -> Iterator[Finding]:
    """Which pairs and which sources of a held-out part were trained on."""
    lines = np.flatnonzero(~held.source.blank)
    pairs = np.zeros(0, np.int64)
    if train.paired and held.paired:
        whole = np.flatnonzero(held.whole)
        pairs = whole[np.isin(held.hashes[whole], train.hashes[train.whole])]
        what = f"the pair is in {train.source.path} too"
        found = held.finding(
            f"{held.name}-overlap",
            "warning",
            pairs,
            what,
            "a score on it tells nothing of new text; take it out of one of them",
        )
        yield from _also(found, held.hashes, train.hashes, train)
    hashes = held.source.hashes
    seen = lines[np.isin(hashes[lines], train.source.hashes[~train.source.blank])]
    seen = np.setdiff1d(seen, pairs)
    what = f"the source, though not the pair, is in {train.source.path} too"
    name, why = f"{held.name}-source-overlap", "a score on it flatters"
    found = held.finding(name, "note", seen, what, why)
    yield from _also(found, hashes, train.source.hashes, train)


def _also(
    found: Iterator[Finding], held: NDArray, trained: NDArray, train: Text
) -> Iterator[Finding]:
    """Adds to the examples where in the training text they are."""
    for finding in found:
        places = []
        for place in finding.examples:
            line = int(np.flatnonzero(trained == held[place.line - 1])[0]) + 1
            note = f"line {line} of {train.source.path}"
            places.append(place._replace(note=note))
        yield finding._replace(examples=tuple(places))


def _undecodable(text: Scan) -> Finding:
    bad = text.undecodable
    one = bad[0]
    message = (
        f"{text.path}, {told([b.line for b in bad], len(bad))}: not UTF-8; the first "
        f"such byte is byte {one.byte} of line {one.line} (0x{one.value:02x}, byte "
        f"{one.offset} of the file); convert the file, for example with iconv."
    )
    notes = (
        f"byte {b.byte}, 0x{b.value:02x}, byte {b.offset} of the file" for b in bad
    )
    first = zip(bad[:EXAMPLES], notes)
    places = tuple(Place(text.path, b.line, note) for b, note in first)
    return Finding("undecodable", "error", len(bad), message, places)


def _first(values: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which values were not there before."""
    found = np.zeros(len(values), np.bool_)
    found[np.unique(values, return_index=True)[1]] = True
    return found
