# SPDX-License-Identifier: Apache-2.0
"""Word alignments as sets of links: files of them, and two directions made one.

A link is (source word, target word), both counted from 0. Two formats are read:

* Pharaoh: one line per sentence pair, ``i-j`` for a sure link, ``i?j`` or ``ipj`` for a
  possible one, counted from 0, or in some files from 1;
* NAACL 2003 (Mihalcea and Pedersen 2003): one line per link, ``sentence source target
  [S|P] [confidence]``, all counted from 1; sure unless it says P.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeAlias

from kvnmt.data.links import Links, outside, parse_links
from kvnmt.data.text import read_lines
from kvnmt.errors import OptionError, UserError, counted

Heuristic: TypeAlias = Literal[
    "intersection", "union", "grow-diag", "grow-diag-final", "grow-diag-final-and"
]

_NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))
_NAACL = re.compile(
    r"([0-9]{1,9})\s+([0-9]{1,9})\s+([0-9]{1,9})"
    r"(?:\s+([SP]))?(?:\s+[0-9.eE+-]+)?"
)


@dataclass(frozen=True)
class Gold:
    """The links that people drew for one sentence pair; possible includes sure."""

    sure: Links
    possible: Links
    place: str = field(default="", compare=False)  # in its file, for people

    def __post_init__(self) -> None:
        if not self.sure <= self.possible:
            raise ValueError("every sure link must be a possible link too")

    def shifted(self) -> "Gold":
        """Links that count words from 0, made from links that count from 1.

        Raises:
            ValueError: A link has a word 0.
        """
        if any(0 in link for link in self.possible):
            raise ValueError("a word has number 0, so words are not counted from 1")
        sure, possible = (
            frozenset((i - 1, j - 1) for i, j in links)
            for links in (self.sure, self.possible)
        )
        return replace(self, sure=sure, possible=possible)

    def inverted(self) -> "Gold":
        """The same links from target to source."""
        return replace(self, sure=invert(self.sure), possible=invert(self.possible))


def invert(links: Links) -> Links:
    """The same links from target to source."""
    return frozenset((j, i) for i, j in links)


def diagonal(source: int, target: int) -> Links:
    """Links each target word to the source word at the same share of the sentence.

    What aligns no better has learnt nothing of words.

    Args:
        source: Number of source words.
        target: Number of target words.
    """
    if not source:
        return frozenset()
    return frozenset(((2 * j + 1) * source // (2 * target), j) for j in range(target))


def read_gold(
    path: Path, sentences: int | None = None, from_one: bool = False
) -> list[Gold]:
    """Reads alignments in either format.

    Args:
        path: The file; a blank line of the Pharaoh format has no links.
        sentences: How many sentence pairs there are. The NAACL format does not tell:
            without this, as many as the greatest number in it.
        from_one: Whether words of the Pharaoh format are counted from 1.

    Raises:
        UserError: The file cannot be read, a line is malformed, or there are more or
            fewer sentences; file and line are named.
    """
    lines = read_lines(path)
    if not any(line.strip() for line in lines):
        raise UserError(f"'{path}' holds no links; give a file of word alignments.")
    if _is_naacl(path, lines):
        if from_one:
            raise OptionError(
                f"'{path}' has the NAACL format, which counts from 1 in any case; "
                "leave out {0}.",
                "from_one",
            )
        return _read_naacl(path, lines, sentences)
    if sentences is not None and len(lines) != sentences:
        raise UserError(
            f"'{path}' has {counted(len(lines), 'line')} for "
            f"{counted(sentences, 'sentence pair')}; line n must hold the links of "
            "pair n."
        )
    gold = []
    for number, line in enumerate(lines, start=1):
        try:
            links = replace(parse_pharaoh(line), place=f"line {number}")
        except ValueError as error:
            raise UserError(
                f"{path}, line {number}: {error}, or in the NAACL format, a link a "
                "line, 'sentence i j' and perhaps S or P."
            ) from None
        try:
            gold.append(links.shifted() if from_one else links)
        except ValueError as error:
            told = f"{path}, line {number}: {error}; leave out {{0}}."
            raise OptionError(told, "from_one") from None
    return gold


def _is_naacl(path: Path, lines: Sequence[str]) -> bool:
    """Whether links stand in the NAACL format.

    Raises:
        UserError: The first line with text is not in that format, but the second is.
    """
    filled = [line for line in lines if line.strip()]
    first, *others = (bool(_NAACL.fullmatch(line.strip())) for line in filled[:2])
    if any(others) and not first:
        raise UserError(
            f"{path}, line {lines.index(filled[0]) + 1} is no link, and what follows "
            "has the NAACL format; mend it, or delete it if it is a heading."
        )
    return first


def parse_pharaoh(line: str) -> Gold:
    """Reads one line; a malformed token raises a ValueError that quotes it."""
    return Gold(*parse_links(line))


def format_pharaoh(links: Iterable[tuple[int, int]]) -> str:
    """Writes links as ``i-j``, sorted by source word, without a line end."""
    return " ".join(f"{i}-{j}" for i, j in sorted(links))


def check_links(
    gold: Sequence[Gold],
    source_lengths: Sequence[int],
    target_lengths: Sequence[int],
    path: Path,
    remedy: str = "",
) -> None:
    """Refuses alignments that cannot belong to these sentences.

    Args:
        gold: As read from `path`.
        source_lengths: Words of each source sentence, without EOS.
        target_lengths: Words of each target sentence, without EOS.
        path: The file to name in the error.
        remedy: What else may help, behind a sentence, in the Pharaoh format.

    Raises:
        UserError: The numbers of lines differ, or a link lies outside its pair.
    """
    if not len(gold) == len(source_lengths) == len(target_lengths):
        raise UserError(
            f"'{path}' has {len(gold)} lines for {len(source_lengths)} source and "
            f"{len(target_lengths)} target sentences; the files must match line by "
            "line."
        )
    sizes = zip(gold, source_lengths, target_lengths, strict=True)
    for number, (sentence, source, target) in enumerate(sizes, start=1):
        place = sentence.place or f"line {number}"
        if wrong := outside(sentence.possible, source, target):
            of_naacl = place.startswith("pair")
            raise UserError(f"{path}, {place}: {wrong}{'' if of_naacl else remedy}.")


def symmetrize(forward: Links, backward: Links, heuristic: Heuristic) -> Links:
    """Makes one alignment of two directions (Och and Ney 2003; Koehn et al. 2005).

    ``grow-diag`` starts with the intersection. For one target word after another, until
    nothing changes, it adds links of the union that are neighbours of an existing link,
    diagonal ones last, if one of their words has no link yet. ``final`` then adds links
    of either direction, the forward one first, if one of their words has no link;
    ``final-and``, only if both have none.

    Args:
        forward: Links (source, target) of one direction.
        backward: Links of the other, in the same order (source, target).
        heuristic: Which.
    """
    if heuristic == "intersection":
        return forward & backward
    if heuristic == "union":
        return forward | backward
    grown = _Growing(forward & backward)
    grown.grow(forward | backward)
    if heuristic != "grow-diag":
        both = heuristic == "grow-diag-final-and"
        for direction in (forward, backward):
            for link in sorted(direction, key=_by_target):
                free = grown.free(link)
                if all(free) if both else any(free):
                    grown.add(link)
    return frozenset(grown.links)


class _Growing:
    """Links that become more, and the words that have one."""

    def __init__(self, start: Links):
        self.links = set(start)
        self.source, self.target = ({link[side] for link in start} for side in (0, 1))

    def free(self, link: tuple[int, int]) -> tuple[bool, bool]:
        """Whether the source word, and whether the target word, has no link."""
        return link[0] not in self.source, link[1] not in self.target

    def add(self, link: tuple[int, int]) -> None:
        self.links.add(link)
        self.source.add(link[0])
        self.target.add(link[1])

    def grow(self, union: Links) -> None:
        """Adds neighbours until there is none to add, those just added counting too."""
        places, before = sorted(union, key=_by_target), -1
        while before < len(self.links):
            before = len(self.links)
            for i, j in places:
                if (i, j) not in self.links:
                    continue
                for link in ((i + a, j + b) for a, b in _NEIGHBOURS):
                    if link in union and any(self.free(link)):
                        self.add(link)


def _by_target(link: tuple[int, int]) -> tuple[int, int]:
    return link[1], link[0]


def _read_naacl(path: Path, lines: list[str], sentences: int | None) -> list[Gold]:
    sure: dict[int, set[tuple[int, int]]] = {}
    possible: dict[int, set[tuple[int, int]]] = {}
    greatest = 0
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        match = _NAACL.fullmatch(line.strip())
        if match is None:
            raise UserError(
                f"{path}, line {number}: {line!r} is not a link; write 'sentence "
                "source target S' or '... P'."
            )
        pair, i, j = (int(match[group]) for group in (1, 2, 3))
        if pair < 1 or (sentences is not None and pair > sentences):
            raise UserError(
                f"{path}, line {number}: there is no sentence pair {pair}; there are "
                f"{sentences or 'pairs from 1 on'}."
            )
        greatest = max(greatest, pair)
        if not (i and j):  # aligned to nothing
            continue
        for links in [possible, sure] if match[4] != "P" else [possible]:
            links.setdefault(pair, set()).add((i - 1, j - 1))
    count = greatest if sentences is None else sentences
    none: Links = frozenset()
    return [
        Gold(
            frozenset(sure.get(n, none)), frozenset(possible.get(n, none)), f"pair {n}"
        )
        for n in range(1, count + 1)
    ]
