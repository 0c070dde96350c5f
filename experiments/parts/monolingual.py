# SPDX-License-Identifier: Apache-2.0
"""Further English captions, without translations, in the form of Multi30k's.

Teachers translate them, and students learn from that: Zhang and Zong (2016),
"Exploiting Source-side Monolingual Data in Neural Machine Translation"; He et al.
(2020), "Revisiting Self-Training for Neural Sequence Generation". Of text that they
were trained on, teachers know most translations by heart. Of other text they do not.
"""

import re
from collections.abc import Iterable, Sequence

from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

UNKNOWN = 1  # so many words of a caption, at most, does the training text not have
_INSIDE = re.compile(r"(?<=\w)'(?=\w)")  # it's: two tokens
_ENTITY, _WORD = re.compile(r"&\w+;"), re.compile(r"\w+")


def similar_captions(
    lines: Iterable[str], train: Sequence[str], measured: Sequence[str]
) -> list[str]:
    """The lines that are like the training text, but not in it; each once.

    Args:
        lines: English captions in any form.
        train: Source sentences that are trained on.
        measured: Source sentences that are validated or tested on. None of them is
            taken, either, whatever the punctuation.
    """
    words = {word for line in train for word in line.split()}
    others = {_words(line) for line in (*train, *measured)}
    captions = dict.fromkeys(map(as_caption, lines))
    return [
        caption
        for caption in captions
        if caption
        and sum(word not in words for word in caption.split()) <= UNKNOWN
        and _words(caption) not in others
    ]


def as_caption(line: str) -> str:
    """A line in lower case and in tokens, as the captions are.

    Of the 29 000 English training captions, 41 are not their own form: mostly because
    an abbreviation loses its full stop.
    """
    plain = _INSIDE.sub(" '", line.lower().replace("&apos;", "'"))
    tokens = Tokenizer13a()(plain)
    return tokens.replace("'", "&apos;").replace('"', "&quot;")


def _words(line: str) -> str:
    return " ".join(_WORD.findall(_ENTITY.sub(" ", line.lower())))
