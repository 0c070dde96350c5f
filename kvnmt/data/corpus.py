# SPDX-License-Identifier: Apache-2.0
"""From a user's files to what training eats: pairs, vocabularies, ids."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from kvnmt.data import vocabulary as vocabularies
from kvnmt.data.batches import Encoded, with_end
from kvnmt.data.text import Parallel, read_parallel
from kvnmt.data.vocabulary import AnyVocabulary
from kvnmt.errors import UserError


@dataclass(frozen=True)
class DataConfig:
    """Parallel text, one sentence per line, and how it becomes ids."""

    source: Path | None = None  # training text
    target: Path | None = None
    valid_source: Path | None = None  # text that chooses the best checkpoint
    valid_target: Path | None = None
    vocabulary: Literal["words", "bpe"] = "words"
    min_count: int = 2  # words seen less often are unknown
    vocabulary_size: int | None = 30000  # at most so many words on each side
    subwords: int = 8000  # pieces to learn, with bpe
    joint: bool = False  # bpe: one vocabulary for both sides
    max_length: int = 80  # longer pairs (in tokens, without EOS) are not trained on
    empty: Literal["stop", "skip"] = "stop"  # what to do with an empty line


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
    """Reads the files, builds the vocabularies and encodes the pairs.

    Args:
        config: Files and choices.
        trained: Vocabularies to use instead of building them.

    Raises:
        UserError: A file is not given or not as `read_parallel` wants it, or no pair
            is short enough.
    """
    train = _read(config, "source", "target")
    valid = _read(config, "valid_source", "valid_target")
    words = trained or build_vocabularies(config, train)
    pairs = encode(words, train)
    kept = _short(pairs, config.max_length)
    if not kept.source:
        raise UserError(
            f"every pair of '{config.source}' has more than {config.max_length} "
            "tokens; raise --data.max-length."
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


def _read(config: DataConfig, *sides: str) -> Parallel:
    paths = [getattr(config, side) for side in sides]
    for side, path in zip(sides, paths):
        if path is None:
            raise UserError(
                f"no --data.{side.replace('_', '-')} is given; name a text file."
            )
    return read_parallel(*paths, empty=config.empty)


def _short(pairs: Encoded, limit: int) -> Encoded:
    both = zip(pairs.source, pairs.target)
    kept = [pair for pair in both if max(map(len, pair)) <= limit + 1]
    return Encoded([s for s, _ in kept], [t for _, t in kept])
