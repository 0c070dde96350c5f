# SPDX-License-Identifier: Apache-2.0
"""Translations with all that is known of them, for people's and machines' use."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvnmt.data.text import read_lines
from kvnmt.data.vocabulary import EOS, UNK, Words
from kvnmt.data.words import split_words
from kvnmt.errors import UserError
from kvnmt.inference.program import SearchConfig
from kvnmt.inference.score import align, score
from kvnmt.inference.trained import Trained
from kvnmt.inference.translate import Translation, translate, translate_nbest
from kvnmt.metrics.alignment import hard_links, word_links
from kvnmt.metrics.links import format_pharaoh


def write(
    run: Trained,
    lines: Sequence[str],
    config: SearchConfig,
    dictionary: Mapping[str, str] | None = None,
    advance: Callable[[int], None] = lambda sentences: None,
    **where: Any,
) -> list[str]:
    """Translates lines to lines.

    Args:
        run: The trained model.
        lines: What is translated.
        config: How to search.
        dictionary: Translations of source words, for unknown words; see
            `replace_unknown`. None: unknown words are left as they are.
        advance: Told of every batch how many sentences it held.
        where: As of `translate_nbest`.
    """
    words = run.vocabularies
    ids = [words.source.encode(line) for line in lines]
    found = translate(run.model, run.params, ids, config, advance, **where)
    if dictionary is not None:
        return replace_unknown(run, lines, found, dictionary)
    return [words.target.decode(one.ids) for one in found]


def describe(
    run: Trained,
    lines: Sequence[str],
    config: SearchConfig,
    advance: Callable[[int], None] = lambda sentences: None,
    **where: Any,
) -> list[dict[str, Any]]:
    """Translates lines and tells everything about the result, as plain data.

    Alignments and the log-probabilities of tokens come from forced decoding of the
    translation found, so they are those of `score` and `align`. Arguments as of
    `write`.
    """
    words = run.vocabularies
    source = [words.source.encode(line) for line in lines]
    found = translate_nbest(run.model, run.params, source, config, advance, **where)
    best = [one[0].ids for one in found]
    scored = score(run.model, run.params, source, best)
    described = []
    for x, ways, one in zip(source, found, scored):
        tokens = words.target.pieces([*ways[0].ids, EOS])
        told: dict[str, Any] = {**_told(run, ways[0]), "tokens": tokens}
        told["token_log_probs"] = one.token_log_probs
        if one.alignments and x:
            read = one.alignments[-1]
            links = hard_links(read, len(x), len(ways[0].ids))
            sides = (words.source.words_of(x), words.target.words_of(ways[0].ids))
            told["links"] = format_pharaoh(word_links(links, *sides))
            told["alignment"] = [[round(float(a), 6) for a in row] for row in read]
        if config.nbest > 1:
            told["nbest"] = [_told(run, way) for way in ways]
        described.append(told)
    return described


def join(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What is told of a line that was split; of a whole one what `describe` says."""
    if len(parts) == 1:
        return parts[0]
    return {
        "translation": " ".join(filter(None, (one["translation"] for one in parts))),
        "log_prob": sum(one["log_prob"] for one in parts),
        "parts": list(parts),
    }


def replace_unknown(
    run: Trained,
    lines: Sequence[str],
    found: Sequence[Translation],
    dictionary: Mapping[str, str],
) -> list[str]:
    """Writes something for every unknown word of translations.

    The source word that the unknown word attends to most gives its translation in the
    dictionary, or is copied; where that is the end of sentence the unknown word is
    dropped.

    Args:
        run: The trained model; its vocabularies are of words.
        lines: What was translated.
        found: Its translations.
        dictionary: Translations of source words.

    Raises:
        UserError: The vocabularies are not of words, or the system does not align.
    """
    words = run.vocabularies
    if not (isinstance(words.source, Words) and isinstance(words.target, Words)):
        raise UserError("only a vocabulary of words has unknown words to replace.")
    places = [n for n, one in enumerate(found) if UNK in one.ids]
    source = [words.source.encode(lines[n]) for n in places]
    target = [found[n].ids for n in places]
    rounds = align(run.model, run.params, source, target)
    if any(not matrices for matrices in rounds):
        raise UserError("the run's system has no attention to replace words by.")
    result = [words.target.decode(one.ids) for one in found]
    for n, matrices in zip(places, rounds):
        tokens = split_words(lines[n])
        result[n] = " ".join(
            _written(words.target, found[n].ids, tokens, matrices[-1], dictionary)
        )
    return result


def read_dictionary(path: Path) -> dict[str, str]:
    """Reads lines of a source word, a tab and its translation.

    Raises:
        UserError: The file cannot be read, or a line has no tab.
    """
    pairs = {}
    for number, line in enumerate(read_lines(path), start=1):
        word, tab, translation = line.partition("\t")
        if not tab or not word:
            raise UserError(
                f"{path}, line {number}: a dictionary has a source word, a tab and a "
                "translation on every line."
            )
        pairs[word] = translation
    return pairs


def _written(
    target: Words,
    ids: Sequence[int],
    source: Sequence[str],
    alignment: NDArray[np.floating],
    dictionary: Mapping[str, str],
) -> list[str]:
    written = []
    for t, word in enumerate(ids):
        place = int(alignment[t].argmax())
        if word != UNK:
            written += target.pieces([word])
        elif place < len(source):
            written.append(dictionary.get(source[place], source[place]))
    return written


def _told(run: Trained, one: Translation) -> dict[str, Any]:
    text = run.vocabularies.target.decode(one.ids)
    return {"translation": text, "score": one.score, "log_prob": one.log_prob}
