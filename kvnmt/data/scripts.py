# SPDX-License-Identifier: Apache-2.0
"""Scripts that are written without spaces between words."""

import re
from collections.abc import Iterable

from kvnmt.data.words import split_words

# Characters of a regular expression: Thai to Khmer, kana, ideographs.
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff"
    "\uf900-\ufaff\U00020000-\U0003ffff"
)
LETTERS = 6  # of a word of these scripts on average, at most, where spaces part them
_UNSPACED = re.compile(f"[{UNSPACED}]")


def unspaced(lines: Iterable[str]) -> bool:
    """Whether no spaces stand between the words of a text, as in Japanese.

    Most of its characters are of scripts that have none, and its words are long.
    """
    words = [word for line in lines for word in split_words(line)]
    count = sum(map(len, words))
    alone = sum(len(_UNSPACED.findall(word)) for word in words)
    return 2 * alone > count > LETTERS * len(words)
