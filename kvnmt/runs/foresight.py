# SPDX-License-Identifier: Apache-2.0
"""Why a model may learn less than it seems to be given, told before a training."""

from collections.abc import Iterator
from itertools import islice

import numpy as np

from kvnmt.data.batches import Sentences
from kvnmt.data.config import DataConfig
from kvnmt.data.corpus import Corpora
from kvnmt.data.vocabulary import UNK
from kvnmt.errors import flag
from kvnmt.inference.config import longest
from kvnmt.metrics.bleu import corpus_bleu, mistaken
from kvnmt.runs.config import Experiment

LINES = 2000  # of the validation text that are written in tokens, the first
LOW = 99.0  # BLEU of them, below which it is told
SHORT = 0.01  # share of references, above which it is told
STRANGE = 0.1  # share of source tokens that are unknown, above which it is told


def warnings(corpora: Corpora, experiment: Experiment) -> Iterator[str]:
    """Sentences on why BLEU may be low, or mean little, however long is trained.

    Args:
        corpora: The validation text, and the vocabularies.
        experiment: Bounds the length of translations, and has the tokenizer of BLEU.
    """
    if not experiment.model.reads_source:
        return  # nothing is translated
    search, tokenize = experiment.search, experiment.training.bleu_tokenize
    if mistake := mistaken(corpora.references, tokenize):
        what, instead = mistake
        name = flag("training.bleu_tokenize")
        yield f"warning: {what}; give {name} {instead}"
    yield from _unknown(corpora.valid.source, experiment.data)
    references, target = corpora.references[:LINES], corpora.vocabularies.target
    written = [target.decode(ids) for ids in islice(corpora.valid.target, LINES)]
    best, whole = (
        corpus_bleu(lines, references, tokenize=tokenize).score
        for lines in (written, references)
    )
    if whole < LOW:
        yield (
            "warning: hardly a reference has four tokens, so that BLEU is 0 whatever "
            f"is learnt; give {flag('training.metric')} chrf"
        )
    elif best < LOW:
        yield (
            f"the references themselves have BLEU {best:.1f} when they are written in "
            "tokens: some of their words are unknown, or characters are normalised "
            f"({flag('data.normalization')})"
        )
    lengths = corpora.valid.source.lengths
    most = longest(search, lengths.max())[lengths - 1]  # EOS is in the lengths
    if (share := np.mean(corpora.valid.target.lengths > most)) > SHORT:
        bounds = ["length_ratio"] + ["max_length"] * (search.max_length is not None)
        names = " or ".join(flag(f"search.{name}") for name in bounds)
        yield (
            f"warning: {share:.0%} of the references are longer than a translation may "
            f"be, which lowers BLEU; give a greater {names}"
        )


def _unknown(source: Sentences, data: DataConfig) -> Iterator[str]:
    """Tells of source words that are of another language, perhaps, or cut otherwise."""
    remedy = f"; {flag('data.vocabulary')} bpe leaves few" * (
        data.vocabulary == "words"
    )
    if data.vocabularies:
        remedy = (
            "; is the vocabulary of this language, and of text that is cut and cased "
            "in this way?"
        )
    words = len(source.ids) - len(source)  # without EOS
    if (share := np.sum(source.ids == UNK) / max(words, 1)) > STRANGE:
        yield (
            f"warning: {share:.0%} of the source tokens of the validation text are "
            f"unknown{remedy}"
        )
