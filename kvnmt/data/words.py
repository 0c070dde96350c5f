# SPDX-License-Identifier: Apache-2.0
"""What a word of a line is, whatever a vocabulary makes of it.

A word is what stands between ASCII spaces. No other blank ends one: where text was
tokenised by somebody else, an ideographic or a no-break space is part of a word, and
links between words would shift if it split one.
"""

from itertools import accumulate

from kvnmt.data.vocabulary import Vocabulary


def split_words(line: str) -> list[str]:
    """Returns the words of a line."""
    return [word for word in line.split(" ") if word]


def word_numbers(vocabulary: Vocabulary, line: str) -> list[int]:
    """For every token of a line the number of its word, from 0.

    A subword model may write a word as several, or as none; the pieces still belong to
    the word of the line.
    """
    words = [vocabulary.encode(word) for word in split_words(line)]
    ids, whole = vocabulary.encode(line), line.strip(" ")
    if [i for pieces in words for i in pieces] != ids:  # characters: spaces are tokens
        if len(ids) != len(whole):
            return vocabulary.words_of(ids)
        begins = (a == " " != b for a, b in zip(" " + whole, whole))
        return [number - 1 for number in accumulate(begins)]
    return [number for number, pieces in enumerate(words) for _ in pieces]


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
    mean, groups, total = sum(sizes) / parts, [[]], 0.0
    for word, size in zip(words, sizes):
        if groups[-1] and (total + size > limit or total >= mean):
            groups.append([])
            total = 0.0
        groups[-1].append(word)
        total += size
    lines = (" ".join(group) for group in groups)
    return [part for line in lines for part in cut(vocabulary, line, limit)]
