# SPDX-License-Identifier: Apache-2.0
"""Lists of the n best translations as Moses and Marian write them.

::

    number ||| translation ||| logP= log-probability ||| score
    number ||| translation ||| logP= log-probability ||| score ||| links
    translation ||| links

Numbers count lines of the input from 0; log-probabilities are in nats, and scores are
what the search ranked by. Links are between words, as Pharaoh writes them: ``0-0 1-2``.
``|||`` in a translation is written ``&#124;&#124;&#124;``, as Moses escapes it.
"""

from collections.abc import Sequence
from typing import NamedTuple

from kvnmt.data.links import Links
from kvnmt.data.words import split_words
from kvnmt.inference.trained import Trained
from kvnmt.inference.translate import Translation
from kvnmt.metrics.links import format_pharaoh

BAR, ESCAPED = "|||", "&#124;" * 3


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


def entries(run: Trained, parts: Sequence[Part]) -> list[Entry]:
    """The translations of a line, best first.

    Of a line that was split, an entry has what stands at its place for every part, the
    last of a part that has fewer, and the sums of the log-probabilities and of the
    scores. Where there was nothing to translate both are 0, where there is no
    translation ``-inf``.

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
