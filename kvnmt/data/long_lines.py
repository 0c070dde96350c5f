# SPDX-License-Identifier: Apache-2.0
"""Lines with more tokens than a model should be given: cut between words."""

from kvnmt.data.vocabulary import Vocabulary
from kvnmt.data.words import split_words


def cut(vocabulary: Vocabulary, line: str, limit: int) -> list[str]:
    """Cuts a line into parts of at most ``limit`` tokens, nearly equal in length.

    Cuts are at spaces; only a word that is too long by itself is cut inside. Nothing
    is lost but spaces at the cuts.

    Args:
        vocabulary: Says how many tokens a text has.
        line: What is cut.
        limit: At least 1.
    """
    if len(vocabulary.encode(line)) <= limit:
        return [line]
    words = split_words(line)
    if len(words) == 1:
        middle = len(line) // 2
        if not middle:
            return [line]  # one character that is several tokens
        halves = line[:middle], line[middle:]
        return [part for half in halves for part in cut(vocabulary, half, limit)]
    sizes = [max(len(vocabulary.encode(word)), 1) for word in words]
    parts = -(-sum(sizes) // limit)
    each, found, size = sum(sizes) / parts, [[]], 0.0
    for word, own in zip(words, sizes):
        if found[-1] and (size + own > limit or size >= each):
            found.append([])
            size = 0.0
        found[-1].append(word)
        size += own
    return [piece for some in found for piece in cut(vocabulary, " ".join(some), limit)]
