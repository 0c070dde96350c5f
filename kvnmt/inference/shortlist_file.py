# SPDX-License-Identifier: Apache-2.0
"""Files of lexical shortlists.

They have the three columns of Marian's lexical tables, with a space between: target
token, source token, probability of the first given the second::

    # kvnmt:9f86d081884c7d65:60303ae22b998861 3
    the NULL 0.0712
    house Haus 0.91
    home Haus 0.04

The source token ``NULL`` stands for none: its target tokens may be written whatever
the source is. The first line names the vocabularies and the number of lines behind it;
0, of former versions, is any. A file without it, such as one of
Marian's, may have tokens that the vocabularies lack, which are left out, as its
``NULL`` is: the first tokens of the vocabulary may always be written then.
"""

import math
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from kvnmt.data.text import read_lines
from kvnmt.data.vocabularies import Vocabularies, digests
from kvnmt.data.vocabulary import UNK, Vocabulary
from kvnmt.errors import UserError
from kvnmt.files import write_lines
from kvnmt.inference.shortlist import BEST, COMMON, NO_TOKEN, Lexicon, Shortlist

NULL = "NULL"
HEAD = re.compile(r"# kvnmt:([0-9a-f]+):([0-9a-f]+) ([0-9]{1,12})")


def write_shortlist(
    shortlist: Shortlist, vocabularies: Vocabularies, path: Path
) -> int:
    """Writes a file; returns how many entries it has.

    Raises:
        UserError: It cannot be written.
    """
    hashes = digests(vocabularies)
    lines: list[str] = []
    source, target = map(_tokens, vocabularies)
    for i, j, probability in zip(*map(np.ndarray.tolist, shortlist.lexicon)):
        token = NULL if i == NO_TOKEN else source[i]
        if i == NO_TOKEN or token != NULL:  # a word that is spelt so has no lines
            lines.append(f"{target[j]} {token} {probability:.4g}")
    head = f"# kvnmt:{hashes['source']}:{hashes['target']} {len(lines)}"
    write_lines(path, [head, *lines])
    return len(lines)


def read_shortlist(path: Path | str, vocabularies: Vocabularies) -> Shortlist:
    """Reads what `write_shortlist` wrote, or a lexical table of Marian's.

    Marian's own tables have every link that was ever seen. Of these the `BEST` target
    tokens of each source token count.

    Args:
        path: The file, plain or compressed with gzip.
        vocabularies: Of the model that is to translate with it.

    Raises:
        UserError: The file cannot be read, a line is malformed, or the tokens are of
            other vocabularies; file and line are named.
    """
    lines = read_lines(path)
    head = HEAD.fullmatch(lines[0]) if lines else None
    if head:
        *hashes, count = head.groups()
        _check_hashes(path, hashes, vocabularies)
        if int(count) not in (0, len(lines) - 1):
            raise UserError(
                f"'{path}' has {len(lines) - 1:,} of its {int(count):,} entries, so it "
                "was cut or changed; make it again with kvnmt shortlist."
            )
    entries = _entries(path, lines, vocabularies, headed=bool(head))
    if not entries:
        raise UserError(
            f"'{path}' links no token of the vocabularies to another; every line needs "
            "a target token, a source token and a probability, in this order."
        )
    sizes = len(vocabularies.source), len(vocabularies.target)
    if not head:
        words = range(UNK + 1, sizes[1])
        entries += [(NO_TOKEN, word, 0.0) for word in words[:COMMON]]
    source, target, probability = zip(*entries)
    lexicon = Lexicon(np.array(source), np.array(target), np.array(probability))
    ranked = lexicon.ranked() if head else lexicon.ranked(BEST)
    return Shortlist(ranked, *sizes, digests(vocabularies))


def _entries(
    path: Path | str,
    lines: Sequence[str],
    vocabularies: Vocabularies,
    headed: bool,
) -> list[tuple[int, int, float]]:
    """Source id, target id and probability of every line.

    Args:
        path: For messages.
        lines: Of the file.
        vocabularies: Of both sides.
        headed: Whether the first line tells of which vocabularies they are. All tokens
            must then be in them; if not, others are left out, and so is ``NULL``.
    """
    source_ids, target_ids = map(_ids, vocabularies)
    source_ids.pop(NULL, None)
    if headed:
        source_ids[NULL] = NO_TOKEN
    entries = []
    for number, line in enumerate(lines[headed:], start=headed + 1):
        target, source, probability = _columns(line, f"{path}, line {number}")
        if target in target_ids and source in source_ids:
            entries.append((source_ids[source], target_ids[target], probability))
        elif headed:
            raise UserError(
                f"{path}, line {number}: the vocabularies have no such tokens, so the "
                "file was changed; make it again with kvnmt shortlist."
            )
    return entries


def _columns(line: str, place: str) -> tuple[str, str, float]:
    """Target token, source token, probability; no token holds a space."""
    try:
        target, source, number = line.split(" " if line.count(" ") == 2 else "\t")
        probability = float(number)
    except ValueError:
        target, source, probability = "", "", math.nan
    if not 0 <= probability <= 1:
        raise UserError(
            f"{place}: a shortlist has a target token, a source token and a "
            "probability on every line, with a space between; make one with kvnmt "
            "shortlist."
        )
    return target, source, probability


def _check_hashes(
    path: Path | str, hashes: Sequence[str], vocabularies: Vocabularies
) -> None:
    for theirs, (side, ours) in zip(hashes, digests(vocabularies).items()):
        if theirs != ours:
            raise UserError(
                f"'{path}' was made with another {side} vocabulary ({theirs}) than the "
                f"run's ({ours}); make it again with kvnmt shortlist."
            )


def _tokens(vocabulary: Vocabulary) -> list[str]:
    return vocabulary.pieces(range(len(vocabulary)))


def _ids(vocabulary: Vocabulary) -> dict[str, int]:
    """Of tokens spelt alike the more frequent: a space, not the sign that shows it."""
    ids: dict[str, int] = {}
    for i, token in enumerate(_tokens(vocabulary)):
        ids.setdefault(token, i)
    return ids
