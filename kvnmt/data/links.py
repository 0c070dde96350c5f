# SPDX-License-Identifier: Apache-2.0
"""Links between the words of a pair: read, and handed to the tokens of the words.

A link is (source word, target word), both counted from 0. In the Pharaoh format a line
has the links of a pair, ``i-j``, or ``i?j``, or ``ipj``, where people thought one
possible.
"""

import re
from collections.abc import Sequence
from typing import TypeAlias

from kvnmt.data.vocabularies import Vocabularies, Vocabulary
from kvnmt.data.words import split_words, word_numbers
from kvnmt.errors import UserError

Links: TypeAlias = frozenset[tuple[int, int]]

_PHARAOH = re.compile(r"([0-9]{1,9})([-?p])([0-9]{1,9})")


def parse_links(line: str) -> tuple[Links, Links]:
    """Reads a line of the Pharaoh format: its sure links, and all of them.

    Raises:
        ValueError: A token is no link; it is quoted.
    """
    sure, possible = set(), set()
    for token in line.split():
        match = _PHARAOH.fullmatch(token)
        if match is None:
            raise ValueError(f"{token!r} is not a link; write 'i-j', 'i?j' or 'ipj'")
        link = (int(match[1]), int(match[3]))
        possible.add(link)
        if match[2] == "-":
            sure.add(link)
    return frozenset(sure), frozenset(possible)


def outside(links: Links, source: int, target: int) -> str:
    """Tells of a link that lies outside a pair of so many words; empty: none does."""
    for i, j in sorted(links):
        if i >= source or j >= target:
            return (
                f"link {i}-{j} lies outside a pair of {source} source and {target} "
                "target words (counted from 0); check that the sides are not swapped, "
                "and that what is linked is words between ASCII spaces: no pieces, and "
                "no words that other blanks part"
            )
    return ""


def links_between(pair: Sequence[str], line: str, place: str) -> Links:
    """Reads all links of a pair, possible ones too.

    Args:
        pair: Both sides.
        line: Of the Pharaoh format.
        place: Where it stands, for people: ``train.links, line 3``.

    Raises:
        UserError: It is malformed, or a link lies outside the pair.
    """
    try:
        _, links = parse_links(line)
    except ValueError as error:
        raise UserError(f"{place}: {error}.") from None
    source, target = (len(split_words(side)) for side in pair)
    if wrong := outside(links, source, target):
        raise UserError(f"{place}: {wrong}.")
    return links


def token_links(
    vocabularies: Vocabularies,
    pair: Sequence[str],
    ids: Sequence[Sequence[int]],
    links: Links,
) -> Links:
    """Links all tokens of words that are linked.

    Args:
        vocabularies: Of both sides.
        pair: Both sides.
        ids: Their tokens, without EOS.
        links: Between the words.
    """
    source, target = map(_by_word, vocabularies, pair, ids)
    return frozenset(
        (a, b) for i, j in links for a in source.get(i, ()) for b in target.get(j, ())
    )


def _by_word(
    vocabulary: Vocabulary, line: str, ids: Sequence[int]
) -> dict[int, list[int]]:
    """The places of the tokens of every word that has some."""
    places: dict[int, list[int]] = {}
    for place, word in enumerate(word_numbers(vocabulary, line, ids)):
        places.setdefault(word, []).append(place)
    return places
