# SPDX-License-Identifier: Apache-2.0
"""What a word of a line is, whatever a vocabulary makes of it.

A word is what stands between ASCII spaces. No other blank ends one: where text was
tokenised by somebody else, an ideographic or a no-break space is part of a word, and
links between words would shift if it split one.
"""

from itertools import accumulate

from kvnmt.data.vocabulary import Vocabulary


def split_words(line: str) -> list[str]:
    """The words of a line."""
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
