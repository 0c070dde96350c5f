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
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from kvnmt.data.lines import count_lines, read_blocks
from kvnmt.data.outputs import write_lines
from kvnmt.data.text import decode
from kvnmt.data.vocabularies import Vocabularies, Vocabulary, digests
from kvnmt.data.vocabulary import UNK
from kvnmt.errors import UserError
from kvnmt.inference.shortlist import BEST, COMMON, NO_TOKEN, Lexicon, Shortlist

NULL = "NULL"
LINES = 2**20  # that are read at a time
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
    links, headed = _read(path, vocabularies)
    if not len(links.source):
        raise UserError(
            f"'{path}' links no token of the vocabularies to another; every line needs "
            "a target token, a source token and a probability, in this order."
        )
    sizes = len(vocabularies.source), len(vocabularies.target)
    if not headed:
        words = np.arange(UNK + 1, sizes[1])[:COMMON]
        common = Lexicon(np.full_like(words, NO_TOKEN), words, np.zeros(len(words)))
        links = _joined(common, links)
    return Shortlist(links.ranked(), *sizes, digests(vocabularies))


def _read(path: Path | str, vocabularies: Vocabularies) -> tuple[Lexicon, bool]:
    """The links, and whether the first line tells of which vocabularies they are.

    The file is read in blocks: a table of Marian's may have tens of millions of lines.
    """
    links, count, head = _lexicon([]), 0, None
    source_ids, target_ids = map(_ids, vocabularies)
    source_ids.pop(NULL, None)
    for block in read_blocks(path, LINES):
        lines = [
            decode(line, f"{path}, line", number)
            for number, line in enumerate(block, count + 1)
        ]
        if not count and (head := HEAD.fullmatch(lines[0])):
            _check_head(path, head, vocabularies)
            source_ids[NULL] = NO_TOKEN
        ids = source_ids, target_ids
        some = _entries(path, lines, count, ids, head is not None)
        links = _joined(links, some).ranked(np.inf if head else BEST)
        count += len(block)
    return links, head is not None


def _entries(
    path: Path | str,
    lines: Sequence[str],
    before: int,
    ids: tuple[Mapping[str, int], Mapping[str, int]],
    headed: bool,
) -> Lexicon:
    """Source id, target id and probability of lines.

    Args:
        path: For messages.
        lines: Some of the file.
        before: How many there are before them.
        ids: Of the tokens of both sides.
        headed: Whether the first line of the file tells of which vocabularies they are.
            All tokens must then be in them; if not, others are left out.
    """
    entries = []
    skipped = int(headed and not before)
    for number, line in enumerate(lines[skipped:], before + skipped + 1):
        target, source, probability = _columns(line, f"{path}, line {number}")
        if target in ids[1] and source in ids[0]:
            entries.append((ids[0][source], ids[1][target], probability))
        elif headed:
            raise UserError(
                f"{path}, line {number}: the vocabularies have no such tokens, so the "
                "file was changed; make it again with kvnmt shortlist."
            )
    return _lexicon(entries)


def _lexicon(entries: Sequence[tuple[int, int, float]]) -> Lexicon:
    source, target, probability = zip(*entries) if entries else ((), (), ())
    ids = np.array(source, np.int64), np.array(target, np.int64)
    return Lexicon(*ids, np.array(probability, np.float64))


def _joined(one: Lexicon, other: Lexicon) -> Lexicon:
    return Lexicon(
        source=np.concatenate([one.source, other.source]),
        target=np.concatenate([one.target, other.target]),
        probability=np.concatenate([one.probability, other.probability]),
    )


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


def _check_head(
    path: Path | str, head: re.Match[str], vocabularies: Vocabularies
) -> None:
    """Refuses a table of other vocabularies, and one that was cut."""
    *hashes, told = head.groups()
    for theirs, (side, ours) in zip(hashes, digests(vocabularies).items()):
        if theirs != ours:
            raise UserError(
                f"'{path}' was made with another {side} vocabulary ({theirs}) than the "
                f"run's ({ours}); make it again with kvnmt shortlist."
            )
    if int(told) not in (0, count := count_lines(path) - 1):
        raise UserError(
            f"'{path}' has {count:,} of its {int(told):,} entries, so it was cut or "
            "changed; make it again with kvnmt shortlist."
        )


def _tokens(vocabulary: Vocabulary) -> list[str]:
    return vocabulary.pieces(range(len(vocabulary)))


def _ids(vocabulary: Vocabulary) -> dict[str, int]:
    """Of tokens spelt alike the more frequent: a space, not the sign that shows it."""
    ids: dict[str, int] = {}
    for i, token in enumerate(_tokens(vocabulary)):
        ids.setdefault(token, i)
    return ids
