# SPDX-License-Identifier: Apache-2.0
"""Scripts that are written without spaces between words."""

import re
from collections.abc import Iterable, Sequence

from kvnmt.data.words import split_words

# Characters of a regular expression: kana and ideographs; these and Thai to Khmer.
_EASTERN = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
UNSPACED = f"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff{_EASTERN}"
LETTERS = 6  # of a word of these scripts on average, at most, where spaces part them
_UNSPACED, _KANA_OR_IDEOGRAPH = (re.compile(f"[{s}]") for s in (UNSPACED, _EASTERN))


def unspaced(lines: Iterable[str]) -> bool:
    """Whether no spaces stand between the words of a text, as in Japanese.

    Most of its characters are of scripts that have none, and its words are long.
    """
    words = [word for line in lines for word in split_words(line)]
    count = sum(map(len, words))
    alone = sum(len(_UNSPACED.findall(word)) for word in words)
    return 2 * alone > count > LETTERS * len(words)


def eastern(lines: Sequence[str]) -> bool:
    """Whether a text without spaces is Chinese or Japanese, and not Thai or the like.

    Where spaces stand between words it may be any.
    """
    alone, kana = (
        sum(len(letter.findall(line)) for line in lines)
        for letter in (_UNSPACED, _KANA_OR_IDEOGRAPH)
    )
    return 2 * kana > alone
