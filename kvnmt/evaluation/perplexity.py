# SPDX-License-Identifier: Apache-2.0
"""How probable the references are to every run, and how many words it does not know."""

import math
from collections.abc import Sequence
from itertools import chain

from kvnmt.data.vocabularies import Vocabulary
from kvnmt.data.vocabulary import UNK, Words
from kvnmt.data.words import split_words
from kvnmt.evaluation.base import Column, LackingError, Report, System, Test
from kvnmt.metrics.perplexity import perplexity

COLUMNS = (
    Column("system", "system"),
    Column("perplexity", "per token", "{:.3f}"),
    Column("word_perplexity", "per word", "{:.3f}"),
    Column("tokens", "tokens", "{:,}"),
    Column("unknown_source", "unknown in source", "{:.2%}"),
    Column("unknown_reference", "in reference", "{:.2%}"),
    Column("unknown_output", "in output", "{:.2%}"),
)
NOTE = (
    "EOS counts as a token and as a word; per word compares runs of any vocabularies "
    "that know as many of the words: an unknown one is easily foretold"
)


def check(test: Test, systems: Sequence[System]) -> None:
    """Needs a run."""
    if not any(system.run for system in systems):
        raise LackingError("no system is a run")


def measure(test: Test, systems: Sequence[System]) -> Report:
    """Perplexity of the references and shares of unknown tokens."""
    rows = []
    for system in systems:
        if system.run is None:
            continue
        lines = system.log_probs(test)
        total = math.fsum(chain.from_iterable(lines))
        tokens = sum(map(len, lines))
        words = sum(len(split_words(line)) + 1 for line in test.reference)
        source, target = system.run.vocabularies
        rows.append(
            {
                "system": system.name,
                "perplexity": perplexity(total, tokens),
                "word_perplexity": perplexity(total, words),
                "log_prob": total,
                "tokens": tokens,
                "unknown_source": unknown(source, test.source or []),
                "unknown_reference": unknown(target, test.reference),
                "unknown_output": unknown(target, system.hypotheses)
                if isinstance(target, Words)  # others do not write it as a word
                else None,
            }
        )
    notes = [NOTE, *test.unsegmented]
    return Report("perplexity of the references", COLUMNS, rows, notes)


def unknown(vocabulary: Vocabulary, lines: Sequence[str]) -> float:
    """Share of tokens that the vocabulary does not know."""
    ids = [i for line in lines for i in vocabulary.encode(line)]
    return ids.count(UNK) / len(ids) if ids else 0.0
