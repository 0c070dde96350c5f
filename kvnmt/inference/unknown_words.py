# SPDX-License-Identifier: Apache-2.0
"""What is written for the unknown words of a translation."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kvnmt.data.text import read_lines
from kvnmt.data.vocabulary import UNK, Words
from kvnmt.data.words import split_words
from kvnmt.errors import UserError
from kvnmt.inference.score import LIMITS, in_parts, rounds_of, score
from kvnmt.inference.trained import Trained


def check_replaceable(run: Trained) -> None:
    """Refuses a run whose unknown words cannot be replaced.

    Raises:
        UserError: Its vocabularies are not of words, or its system does not align.
    """
    words = run.vocabularies
    if not (isinstance(words.source, Words) and isinstance(words.target, Words)):
        raise UserError("only a vocabulary of words has unknown words to replace.")
    if not rounds_of(run.model, run.params):
        raise UserError("the run's system has no attention to replace words by.")


def replace_unknown(
    run: Trained,
    lines: Sequence[str],
    hypotheses: Sequence[Sequence[int]],
    dictionary: Mapping[str, str],
    prefixes: Sequence[str] | None = None,
    limits: tuple[int, int] = LIMITS,
) -> list[str]:
    """Writes translations with something in the place of every unknown word.

    Args:
        run: The trained model, which `check_replaceable` lets pass.
        lines: What was translated.
        hypotheses: The ids of its translations, without EOS.
        dictionary: Translations of source words; see `fill_in`.
        prefixes: What translations begin with; it is written as it stands.
        limits: Most pairs and most source positions that are aligned at a time.
    """
    words = run.vocabularies
    places = [n for n, ids in enumerate(hypotheses) if UNK in ids]
    source = [words.source.encode(lines[n]) for n in places]
    target = [hypotheses[n] for n in places]
    sizes = [(len(x) + 1) * (len(y) + 1) for x, y in zip(source, target)]
    aligned = (
        pair
        for part in in_parts(sizes)
        for pair in score(
            *(run.model, run.params, source[part], target[part]),
            limits=limits,
            scored=False,
        )
    )
    translations = [words.target.decode(ids) for ids in hypotheses]
    for n, pair in zip(places, aligned):
        tokens = words.target.pieces(hypotheses[n])
        unknown = [i == UNK for i in hypotheses[n]]
        begun = split_words(prefixes[n]) if prefixes else []
        tokens[: len(begun)], unknown[: len(begun)] = begun, [False] * len(begun)
        source_words, alignment = split_words(lines[n]), pair.alignments[-1]
        tokens = fill_in(tokens, unknown, source_words, alignment, dictionary)
        translations[n] = " ".join(tokens)
    return translations


def fill_in(
    tokens: Sequence[str],
    unknown: Sequence[bool],
    source: Sequence[str],
    alignment: NDArray[np.floating],
    dictionary: Mapping[str, str],
) -> list[str]:
    """Replaces the unknown tokens of a translation.

    The source word that an unknown word attends to most gives its translation in the
    dictionary, or is copied; where that is the end of sentence, or the dictionary has
    nothing for it, the unknown word is dropped.

    Args:
        tokens: Of the translation.
        unknown: Which of them are unknown.
        source: The words of the source sentence.
        alignment: [tokens, source words], each with a place for EOS.
        dictionary: Translations of source words.
    """
    written = []
    for t, token in enumerate(tokens):
        place = int(alignment[t].argmax())
        if not unknown[t]:
            written.append(token)
        elif place < len(source):
            written.append(dictionary.get(source[place], source[place]))
    return [text for text in written if text]


def read_dictionary(path: Path) -> dict[str, str]:
    """Reads lines of a source word, a tab and its translation; the first of a word.

    Raises:
        UserError: The file cannot be read, or a line has no tab, or several.
    """
    pairs = {}
    for number, line in enumerate(read_lines(path), start=1):
        word, tab, translation = line.partition("\t")
        if not tab or not word or "\t" in translation:
            raise UserError(
                f"{path}, line {number}: a dictionary has a source word, a tab and a "
                "translation on every line, and no other tab."
            )
        pairs.setdefault(word, translation)  # lexicons have the best one first
    return pairs
