# SPDX-License-Identifier: Apache-2.0
"""What is told of text that seems to be of another kind than is meant here."""

from collections.abc import Sequence
from itertools import chain

from kvnmt.data.bpe_dropout import SPACE
from kvnmt.data.codes import MARK
from kvnmt.data.config import DataConfig
from kvnmt.data.encoding import Tokenised
from kvnmt.data.scripts import unspaced
from kvnmt.data.vocabularies import Vocabularies
from kvnmt.data.vocabulary import UNK
from kvnmt.data.words import split_words
from kvnmt.errors import counted, flag

CUT = 0.02  # share of words
JOINER = "\uffed"  # of OpenNMT's tokenizer
FEW, SINGLE = 1_000, 0.2  # subwords, and the share of them that may be characters


def cut_before(vocabularies: Vocabularies, pairs: Sequence[Tokenised]) -> str:
    """A warning of text that another program has cut into subwords."""
    marked = {MARK: 0, SPACE: 0, JOINER: 0}
    words = 0
    for part in pairs:
        for word in chain.from_iterable(map(split_words, chain(*part.text[:2]))):
            words += 1
            marked[MARK] += word.endswith(MARK)
            marked[SPACE] += word.startswith(SPACE)
            marked[JOINER] += JOINER in word
    mark, count = max(marked.items(), key=lambda item: item[1])
    if count <= CUT * words:
        return ""
    told = f"warning: {count / words:.0%} of the words of the validation text are "
    if "words" in vocabularies.kinds:
        return (
            f"{told}pieces of words ({mark}), so what is measured in validation is of "
            "pieces, too, and cannot be compared with scores of whole words."
        )
    joined = {MARK: "sed 's/@@ //g' joins them", SPACE: "join them (spm_decode)"}
    how = joined.get(mark, "join them (detokenize, of pyonmttok)")
    return f"{told}pieces of words ({mark}), which are cut again; {how}."


def of_whole_lines(pairs: Sequence[Tokenised]) -> str:
    """A warning of links between words in text that has no spaces between them."""
    for side in ("source", "target"):
        if unspaced(line for part in pairs for line in getattr(part.text, side)):
            return (
                f"warning: the {side} has no spaces between words, so that links are "
                "of whole lines and guide the attention nowhere; segment the text."
            )
    return ""


def of_other_blanks(pairs: Sequence[Tokenised]) -> str:
    """A warning of links between words in text with blanks that aligners split at."""
    lines = [line for part in pairs for line in chain(*part.text[:2])]
    count = sum(len(line.split()) != len(split_words(line)) for line in lines)
    if not count:
        return ""
    return (
        f"warning: {counted(count, 'line')} of the validation text "
        f"{'has' if count == 1 else 'have'} other blanks than ASCII spaces, such as "
        "no-break ones: many aligners (eflomal, awesome-align) split words there and "
        "kvnmt does not, so that links would be of other words; replace such blanks in "
        "all text."
    )


def mostly_characters(config: DataConfig, vocabularies: Vocabularies) -> str:
    """A warning of subwords that are learnt here and leave few for words."""
    if config.vocabularies or config.vocabulary != "bpe":
        return ""
    if config.character_coverage < 1:
        return ""
    for side, words in vocabularies._asdict().items():
        pieces = words.pieces(range(UNK + 1, len(words)))
        single = sum(len(piece.removeprefix(SPACE)) == 1 for piece in pieces)
        if len(pieces) >= FEW and single > SINGLE * len(pieces):
            return (
                f"warning: {single:,} of the {len(pieces):,} {side} subwords are "
                "single characters; let the rarest be unknown "
                f"({flag('data.character_coverage')} 0.9995), or learn more "
                f"({flag('data.subwords')})"
            )
    return ""
