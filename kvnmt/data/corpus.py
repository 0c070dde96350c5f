# SPDX-License-Identifier: Apache-2.0
"""From a user's text to what training eats: pairs, vocabularies, ids."""

from pathlib import Path
from typing import NamedTuple

from kvnmt.data import sources
from kvnmt.data import vocabulary as vocabularies
from kvnmt.data.batches import Encoded, with_end
from kvnmt.data.config import DataConfig
from kvnmt.data.text import Parallel
from kvnmt.data.vocabulary import AnyVocabulary
from kvnmt.errors import UserError


class Vocabularies(NamedTuple):
    """One for each side; the same object where they are joint."""

    source: AnyVocabulary
    target: AnyVocabulary


class Corpora(NamedTuple):
    """Everything that training needs of the data."""

    vocabularies: Vocabularies
    train: Encoded
    valid: Encoded
    references: list[str]  # target lines of the validation text, as they are
    report: str  # what was read and what was left out, for people


def load_corpora(config: DataConfig, trained: Vocabularies | None = None) -> Corpora:
    """Reads the text, builds the vocabularies and encodes the pairs.

    Args:
        config: Where the text is, and choices.
        trained: Vocabularies to use instead of building them.

    Raises:
        UserError: No source of text is given or it cannot be read, or no pair is
            short enough.
    """
    train = sources.read(config, "train")
    valid = sources.read(config, "valid")
    words = trained or build_vocabularies(config, train)
    pairs = encode(words, train)
    kept = _short(pairs, config.max_length)
    if not kept.source:
        raise UserError(
            f"every pair of '{sources.name_of(config)}' has more than "
            f"{config.max_length} tokens; raise --data.max-length."
        )
    dropped = len(pairs.source) - len(kept.source)
    report = (
        f"{len(kept.source)} training pairs ({dropped} too long, {train.empty} empty), "
        f"{len(valid.source)} validation pairs, vocabularies of "
        f"{len(words.source)} and {len(words.target)}"
    )
    return Corpora(words, kept, encode(words, valid), valid.target, report)


def build_vocabularies(config: DataConfig, text: Parallel) -> Vocabularies:
    """Builds the vocabularies of training text."""
    if config.vocabulary == "words":
        size = config.vocabulary_size
        return Vocabularies(
            *(
                vocabularies.build_words(lines, min_count=config.min_count, size=size)
                for lines in (text.source, text.target)
            )
        )
    if config.joint:
        joint = vocabularies.build_subwords(text.source + text.target, config.subwords)
        return Vocabularies(joint, joint)
    return Vocabularies(
        vocabularies.build_subwords(text.source, config.subwords),
        vocabularies.build_subwords(text.target, config.subwords),
    )


def encode(words: Vocabularies, text: Parallel) -> Encoded:
    """Turns pairs into ids with EOS."""
    return Encoded(
        [with_end(words.source.encode(line)) for line in text.source],
        [with_end(words.target.encode(line)) for line in text.target],
    )


def save_vocabularies(words: Vocabularies, folder: Path) -> None:
    """Writes both sides into a folder."""
    vocabularies.save(words.source, folder, "source")
    vocabularies.save(words.target, folder, "target")


def load_vocabularies(folder: Path) -> Vocabularies:
    """Reads what `save_vocabularies` wrote."""
    return Vocabularies(
        vocabularies.load(folder, "source"), vocabularies.load(folder, "target")
    )


def _short(pairs: Encoded, limit: int) -> Encoded:
    both = zip(pairs.source, pairs.target)
    kept = [pair for pair in both if max(map(len, pair)) <= limit + 1]
    return Encoded([s for s, _ in kept], [t for _, t in kept])
