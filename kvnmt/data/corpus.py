# SPDX-License-Identifier: Apache-2.0
"""From a user's text to what training eats: pairs, vocabularies, ids."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console

from kvnmt.console import error_console
from kvnmt.data import cache, prepare, sources
from kvnmt.data.batches import Encoded, Sentences, encoded
from kvnmt.data.config import DataConfig
from kvnmt.data.prepare import Dropped, EncodedBlock
from kvnmt.data.sources import Text
from kvnmt.data.text import Parallel
from kvnmt.data.vocabularies import Vocabularies, load_vocabularies
from kvnmt.errors import UserError
from kvnmt.files import digest_of


class Prepared(NamedTuple):
    """Training pairs, ready to be trained on."""

    vocabularies: Vocabularies
    train: Encoded
    dropped: Dropped
    folder: Path | None = None  # where they are kept, if they are


class Corpora(NamedTuple):
    """Everything that training needs of the data."""

    vocabularies: Vocabularies
    train: Encoded
    valid: Encoded
    references: list[str]  # target lines of the validation text, as they are
    report: str  # what was read and what was left out, for people


def load_corpora(
    config: DataConfig,
    trained: Vocabularies | None = None,
    console: Console | None = None,
) -> Corpora:
    """Reads the text, builds the vocabularies and encodes the pairs.

    Args:
        config: Where the text is, and choices.
        trained: Vocabularies to use instead of building them.
        console: Where people read.

    Raises:
        UserError: No source of text is given or it cannot be read, or no pair is
            short enough.
    """
    sources.given(config, "train")
    valid = sources.read(config, "valid")  # first, since it is short
    found = prepare_train(config, trained, console)
    words = found.vocabularies
    left_out = Dropped(empty=valid.empty, undecodable=valid.undecodable)
    report = (
        f"{len(found.train.source):,} training pairs (left out: "
        f"{prepare.described(found.dropped, config)}), {len(valid.source):,} "
        f"validation pairs (left out: {prepare.described(left_out, config)}), "
        f"vocabularies of {len(words.source):,} and {len(words.target):,}"
    )
    return Corpora(words, found.train, encode(words, valid), valid.target, report)


def prepare_train(
    config: DataConfig,
    trained: Vocabularies | None = None,
    console: Console | None = None,
) -> Prepared:
    """Prepares the training text, in memory or in the cache that the config names.

    Args:
        config: Where the text is, and choices.
        trained: Vocabularies to use instead of building them.
        console: Where people read.

    Raises:
        UserError: The text cannot be read or is faulty, or no pair is left of it; the
            cache cannot be written.
    """
    text = sources.open_text(config, "train")
    if not trained and config.vocabularies:
        trained = load_vocabularies(config.vocabularies)
    if config.cache:
        return _cached(config, config.cache, text, trained, console or error_console())
    words = trained or prepare.build_vocabularies(config, text)
    return _in_memory(config, text, words)


def encode(words: Vocabularies, text: Parallel) -> Encoded:
    """Turns pairs into ids with EOS."""
    return encoded(
        [words.source.encode(line) for line in text.source],
        [words.target.encode(line) for line in text.target],
    )


def _cached(
    config: DataConfig,
    folder: Path,
    text: Text,
    trained: Vocabularies | None,
    console: Console,
) -> Prepared:
    files = [digest_of(path) for path in text.files]
    if trained:  # perhaps they are those that were built for this very text
        with cache.locked(folder, cache.key_of(config, files, None)) as place:
            found = cache.find(place, console)
        if found and found.vocabularies == trained:
            return Prepared(trained, found.corpus, found.dropped, place)
    with cache.locked(folder, cache.key_of(config, files, trained)) as place:
        found = cache.find(place, console)
        if not found:
            words = trained or prepare.build_vocabularies(config, text)
            blocks = prepare.encode_text(config, words, text)
            blocks = _unchanged(text, files, _some_left(config, blocks))
            cache.write(place, words, blocks)
            found = cache.find(place, console)
            assert found
    return Prepared(found.vocabularies, found.corpus, found.dropped, place)


def _unchanged(
    text: Text, files: list[str], blocks: Iterable[EncodedBlock]
) -> Iterator[EncodedBlock]:
    """Passes blocks on; refuses them if a file is not what it was before."""
    yield from blocks
    for path, before in zip(text.files, files):
        if digest_of(path) != before:
            raise UserError(
                f"'{path}' changed while it was read; start again once nobody changes "
                "it."
            )


def _in_memory(config: DataConfig, text: Text, words: Vocabularies) -> Prepared:
    dropped, sides = Dropped(), ([], [])
    blocks = prepare.encode_text(config, words, text)
    for *both, left_out in _some_left(config, blocks):
        dropped += left_out
        for side, ids in zip(sides, both):
            side.append(ids)
    source, target = (
        Sentences(*(np.concatenate(arrays) for arrays in zip(*side))) for side in sides
    )
    return Prepared(words, Encoded(source, target), dropped)


def _some_left(
    config: DataConfig, blocks: Iterable[EncodedBlock]
) -> Iterable[EncodedBlock]:
    """The blocks; refuses text of which nothing is kept."""
    kept, dropped = 0, Dropped()
    for block in blocks:
        kept += len(block[0].lengths)
        dropped += block[2]
        yield block
    if not kept:
        raise UserError(
            f"no pair of '{sources.name_of(config)}' is left to train on; left out: "
            f"{prepare.described(dropped, config)}; raise --data.max-length, or look "
            "the text over with kvnmt validate."
        )
