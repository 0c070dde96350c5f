# SPDX-License-Identifier: Apache-2.0
"""Word alignments read from attention, and their error against people's.

Alignment error rate (Och and Ney 2003). People mark a link as sure (S) or as possible
(P, which includes S); of a hypothesis A

    precision = |A ∩ P| / |A|          recall = |A ∩ S| / |S|
    AER       = 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|)

with every count summed over the corpus before the one division.

A link is (source word, target word), both counted from 0. Files are in the Pharaoh
format: one line per sentence pair, ``i-j`` for a sure link, ``i?j`` for a possible one.
"""

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kvnmt.errors import UserError

Links = frozenset[tuple[int, int]]

_TOKEN = re.compile(r"([0-9]+)([-?])([0-9]+)")


@dataclass(frozen=True)
class Gold:
    """The links that people drew for one sentence pair; possible includes sure."""

    sure: Links
    possible: Links

    def __post_init__(self) -> None:
        if not self.sure <= self.possible:
            raise ValueError("every sure link must be a possible link too")


@dataclass(frozen=True)
class AlignmentScore:
    """Corpus figures as fractions, not percent.

    A share of nothing is 1: a hypothesis without links has precision 1 (and AER 1,
    if there are sure links to find).
    """

    aer: float
    precision: float
    recall: float


def hard_links(alignment: np.ndarray, source_length: int, target_length: int) -> Links:
    """Links each target word to the source word that it attends to most.

    The EOS row gives no link, nor does a target word that attends most to EOS: the
    model read nothing for it. Of equal weights the first counts.

    Args:
        alignment: [T, S], one row per target word; EOS is row `target_length` and
            column `source_length`. What lies beyond them is padding.
        source_length: Source words without EOS.
        target_length: Target words without EOS.
    """
    rows, columns = alignment.shape
    if rows <= target_length or columns <= source_length:
        raise ValueError(
            f"an alignment of shape {alignment.shape} has no room for {target_length} "
            f"target and {source_length} source words, each with EOS"
        )
    real = alignment[:target_length, : source_length + 1]
    if not np.isfinite(real).all():
        raise ValueError("the alignment holds values that are not finite")
    chosen = real.argmax(axis=1).tolist()
    return frozenset((i, j) for j, i in enumerate(chosen) if i != source_length)


def word_links(
    links: Links, source_words: Sequence[int], target_words: Sequence[int]
) -> Links:
    """Turns links between subwords into links between words.

    Two words are linked if any of their pieces are.

    Args:
        links: Links between pieces.
        source_words: For each source piece, the number of the word it belongs to.
        target_words: The same for the target.
    """
    return frozenset((source_words[i], target_words[j]) for i, j in links)


def alignment_error_rate(
    hypotheses: Sequence[Links], gold: Sequence[Gold]
) -> AlignmentScore:
    """Scores hard links, sentence by sentence in the order of the gold file."""
    if len(hypotheses) != len(gold):
        raise UserError(
            f"there are links for {len(hypotheses)} sentences but gold alignments for "
            f"{len(gold)}; they must match line by line"
        )
    in_sure = sum(len(a & g.sure) for a, g in zip(hypotheses, gold, strict=True))
    in_possible = sum(
        len(a & g.possible) for a, g in zip(hypotheses, gold, strict=True)
    )
    proposed = sum(map(len, hypotheses))
    sure = sum(len(g.sure) for g in gold)
    return AlignmentScore(
        aer=1.0 - _share(in_sure + in_possible, proposed + sure),
        precision=_share(in_possible, proposed),
        recall=_share(in_sure, sure),
    )


def parse_pharaoh(line: str) -> Gold:
    """Reads one line; a malformed token raises a ValueError that quotes it."""
    sure, possible = set(), set()
    for token in line.split():
        match = _TOKEN.fullmatch(token)
        if match is None:
            raise ValueError(f"{token!r} is not a link; write 'i-j' or 'i?j'")
        link = (int(match[1]), int(match[3]))
        possible.add(link)
        if match[2] == "-":
            sure.add(link)
    return Gold(frozenset(sure), frozenset(possible))


def format_pharaoh(links: Iterable[tuple[int, int]]) -> str:
    """Writes links as ``i-j``, sorted by source word, without a line end."""
    return " ".join(f"{i}-{j}" for i, j in sorted(links))


def read_pharaoh(path: str | os.PathLike[str]) -> list[Gold]:
    """Reads gold alignments, one sentence pair per line; a blank line has no links."""
    try:
        lines = Path(path).read_bytes().split(b"\n")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    if not lines[-1]:
        lines.pop()
    gold = []
    for number, line in enumerate(lines, start=1):
        try:
            gold.append(parse_pharaoh(line.decode()))
        except UnicodeDecodeError as error:
            raise UserError(f"{path}:{number}: not UTF-8 ({error.reason})") from error
        except ValueError as error:
            raise UserError(f"{path}:{number}: {error}") from error
    return gold


def check_links(
    gold: Sequence[Gold],
    source_lengths: Sequence[int],
    target_lengths: Sequence[int],
    path: str | os.PathLike[str],
) -> None:
    """Refuses gold alignments that cannot belong to these sentences.

    Args:
        gold: As read from `path`.
        source_lengths: Words of each source sentence, without EOS.
        target_lengths: Words of each target sentence, without EOS.
        path: The file to name in the error.
    """
    if not len(gold) == len(source_lengths) == len(target_lengths):
        raise UserError(
            f"{path} has {len(gold)} lines for {len(source_lengths)} source and "
            f"{len(target_lengths)} target sentences; the files must match line by line"
        )
    sizes = zip(gold, source_lengths, target_lengths, strict=True)
    for number, (sentence, source, target) in enumerate(sizes, start=1):
        for i, j in sorted(sentence.possible):
            if i >= source or j >= target:
                raise UserError(
                    f"{path}:{number}: link {i}-{j} lies outside a pair of {source} "
                    f"source and {target} target words (counted from 0); check that "
                    "the sides are not swapped"
                )


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 1.0
