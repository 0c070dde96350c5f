# SPDX-License-Identifier: Apache-2.0
"""Lists of the n best translations as Moses and Marian write them.

::

    number ||| translation ||| logP= log-probability ||| score
    number ||| translation ||| logP= log-probability ||| score ||| links
    translation ||| links

Numbers count lines of the input from 0; log-probabilities are in nats, and scores are
what the search ranked by. Links are between words, as Pharaoh writes them: ``0-0 1-2``.
``|||`` in a translation is written ``&#124;&#124;&#124;``, as Moses escapes it. Lists
of other programs are read, too: they may have more features, or none, and links or
``WordScores=`` before the features, as Marian writes them.
"""

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from kvnmt.data.links import Links
from kvnmt.data.text import read_lines
from kvnmt.data.words import split_words
from kvnmt.errors import UserError, counted
from kvnmt.inference.trained import Trained
from kvnmt.inference.translate import Translation
from kvnmt.metrics.links import format_pharaoh

BAR, ESCAPED = "|||", "&#124;" * 3
# What may stand before the features.
_BEFORE = re.compile(r"(\d+-\d+( \d+-\d+)*)?|WordScores=.*")


class Part(NamedTuple):
    """A line, or a part of one that was split, with its translations, best first."""

    words: Sequence[int]  # the number that each of its words has in the whole line
    ways: Sequence[Translation]
    links: Sequence[Links] | None = None  # of each of them, where they are asked for


class Entry(NamedTuple):
    """A translation of a whole line."""

    text: str
    log_prob: float
    score: float
    links: str | None

    def __str__(self) -> str:
        """All but the number."""
        scores = f"{self.text} ||| logP= {self.log_prob:.6f} ||| {self.score:.6f}"
        return scores if self.links is None else f"{scores} ||| {self.links}"


class Listed(NamedTuple):
    """An entry of a list that was read, in the fields that it has."""

    number: int  # of its line, from 0
    fields: tuple[str, ...]  # translation, features, score; others before and behind
    score: float = 0.0  # what its list is ranked by

    @property
    def text(self) -> str:
        """The translation, nothing escaped."""
        return self.fields[0].replace(ESCAPED, BAR)

    @property
    def features(self) -> str:
        """Names and values, as they stand; empty where there are none."""
        place = _features(self.fields)
        return self.fields[place] if self.fields[place:] else ""

    def also(self, feature: str, value: float, more: float | None) -> "Listed":
        """The entry with one more feature.

        Args:
            feature: What it is called.
            value: Its value.
            more: What is added to the score, if it is to change.
        """
        features = f"{self.features} {feature}= {value:.6f}".strip()
        place = _features(self.fields)
        score, others = self.score, [*self.fields[place + 1 :]]
        if more is not None:
            score += more
            others[:1] = [f"{score:.6f}"]
        return Listed(self.number, (*self.fields[:place], features, *others), score)

    def __str__(self) -> str:
        """As a line."""
        return " ||| ".join((str(self.number), *self.fields))


def read_lists(path: Path, lines: int | None = None) -> Iterator[Listed]:
    """Reads n-best lists, entry by entry.

    Args:
        path: Of a file, plain or compressed with gzip.
        lines: How many lines were translated, if that is known.

    Raises:
        UserError: The file cannot be read, is empty, or a line of it is no entry, or
            one of a line that there is not.
    """
    texts = read_lines(path)
    if not texts:
        raise UserError(f"'{path}' is empty; it needs n-best lists in Moses' format.")
    for place, line in enumerate(texts, 1):
        where = f"{path}, line {place}"
        number, *fields = (field.strip(" ") for field in line.split(BAR))
        if not (fields and re.fullmatch("[0-9]{1,9}", number)):
            raise UserError(
                f"{where}: an entry of an n-best list is 'number ||| translation ||| "
                f"features ||| score', numbers from 0; this is {line[:60]!r}."
            )
        if lines is not None and int(number) >= lines:
            raise UserError(
                f"{where}: number {number} is of a line that the source has not: there "
                f"{'is' if lines == 1 else 'are'} {counted(lines, 'line')}, counted "
                "from 0."
            )
        yield Listed(int(number), tuple(fields), _score(fields, where))


def _score(fields: Sequence[str], where: str) -> float:
    """What an entry is ranked by: 0 where it has none."""
    place = _features(fields) + 1
    if len(fields) <= place:
        return 0.0
    try:
        score = float(fields[place])
    except ValueError:
        score = math.nan
    if math.isnan(score):
        raise UserError(
            f"{where}: the score {fields[place]!r} of the entry is no number."
        )
    return score


def _features(fields: Sequence[str]) -> int:
    """Where the features stand: behind the translation, and what Marian puts there."""
    others = (n for n, x in enumerate(fields) if n and not _BEFORE.fullmatch(x))
    place = next(others, 1)
    return place if "= " in "".join(fields[place : place + 1]) else 1


def entries(run: Trained, parts: Sequence[Part]) -> list[Entry]:
    """The translations of a line, best first.

    If the line was split, entry n joins the n-th translations of all parts, or the last
    one of a part that has fewer, and sums their log-probabilities and scores. Both are
    0 where there was nothing to translate, and ``-inf`` where there is no translation.

    Args:
        run: The trained model.
        parts: Of the line, with one translation at least for each.
    """
    return [_entry(run, parts, n) for n in range(max(len(part.ways) for part in parts))]


def _entry(run: Trained, parts: Sequence[Part], place: int) -> Entry:
    places = [min(place, len(part.ways) - 1) for part in parts]
    ways = [part.ways[n] for part, n in zip(parts, places)]
    texts = [run.vocabularies.target.decode(way.ids) for way in ways]
    links = [part.links[n] for part, n in zip(parts, places) if part.links is not None]
    return Entry(
        " ".join(filter(None, texts)).replace(BAR, ESCAPED),
        sum(way.log_prob for way in ways),
        sum(way.score for way in ways),
        _joined(parts, texts, links) if links else None,
    )


def _joined(parts: Sequence[Part], texts: Sequence[str], links: Sequence[Links]) -> str:
    """The links of a whole line; translated words count on from part to part."""
    joined, before = set[tuple[int, int]](), 0
    for part, text, own in zip(parts, texts, links):
        joined |= {(part.words[i], before + j) for i, j in own}
        before += len(split_words(text))
    return format_pharaoh(joined)
