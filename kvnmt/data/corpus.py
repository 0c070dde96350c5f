# SPDX-License-Identifier: Apache-2.0
"""From a user's text to what training eats: pairs, vocabularies, ids."""

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console

from kvnmt.console import people_console
from kvnmt.data import advice, cache, prepare, sources
from kvnmt.data.batches import EncodedCorpus, Sentences, encoded
from kvnmt.data.cache import Prepared
from kvnmt.data.config import DataConfig, longest
from kvnmt.data.encoding import Dropped, EncodedBlock, tokenised
from kvnmt.data.sources import TextReader
from kvnmt.data.text import collect, nothing_left
from kvnmt.data.vocabularies import Vocabularies, check_merges, load_vocabularies
from kvnmt.errors import OptionError, UserError, counted, reason_of
from kvnmt.files import check_local, digest_of


class Corpora(NamedTuple):
    """Everything that training needs of the data."""

    vocabularies: Vocabularies
    train: EncodedCorpus
    valid: EncodedCorpus
    references: list[str]  # target lines of the validation text, as they are
    report: str  # what was read and what was left out, for people
    warnings: list[str]  # of text that seems to be of another kind than is meant here


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
    sources.required_values(config, "train")  # complain before anything is read
    text = sources.open_text(config, "valid")
    blocks = list(text.blocks())
    collect(blocks, config.faulty, text.unit)  # first, since it is short
    prepared = prepare_train(config, trained, console)
    vocabularies = prepared.vocabularies
    pairs = [tokenised(vocabularies, one, config.faulty) for one in blocks]
    references = [line for part in pairs for line in part.text.target]
    if not references:
        raise nothing_left(text.unit)
    left_out = Dropped(
        empty=sum(part.text.empty for part in pairs),
        undecodable=sum(part.text.undecodable for part in pairs),
    )
    valid = encoded(
        source=chain.from_iterable(part.source for part in pairs),
        target=chain.from_iterable(part.target for part in pairs),
    )
    limits = config, vocabularies.kinds
    ways = f" in {config.ways} segmentations" * (config.ways > 1)
    report = (
        f"{len(prepared.train.source):,} training pairs{ways} (left out: "
        f"{prepare.described(prepared.dropped, *limits)}"
        f"{_linked(config, prepared.train)}), {len(references):,} "
        f"validation pairs (left out: {prepare.described(left_out, *limits)}"
        f"{_longer(valid, longest(*limits))}), "
        f"vocabularies of {len(vocabularies.source):,} and {len(vocabularies.target):,}"
    )
    warnings = [advice.cut_before(vocabularies, pairs)]
    if config.links:
        warnings += [advice.of_whole_lines(pairs), advice.of_other_blanks(pairs)]
    if trained is None:
        warnings.append(advice.mostly_characters(config, vocabularies))
    return Corpora(
        vocabularies=vocabularies,
        train=prepared.train,
        valid=valid,
        references=references,
        report=report,
        warnings=[*filter(None, warnings)],
    )


def _linked(config: DataConfig, train: EncodedCorpus) -> str:
    """What is told of links; refuses a file without any."""
    if train.links is None:
        return ""
    count = len(train.links.ids) // 2
    if not count:
        raise OptionError(
            f"'{config.links}' links no word of a pair that is trained on, so that "
            "nothing would be guided; leave {0} and {1} out.",
            *("data.links", "objective.guided"),
        )
    return f"; {counted(count, 'link')} between tokens"


def _longer(valid: EncodedCorpus, longest: int) -> str:
    """What is told of validation pairs that would be too long to train on.

    They are kept: without them the score would be that of another text.
    """
    tokens = np.maximum(valid.source.lengths, valid.target.lengths) - 1  # without EOS
    long = int((tokens > longest).sum())
    if not long:
        return ""
    return (
        f"; {long:,} longer than {longest} tokens, up to {tokens.max():,}, are kept "
        "and take time and memory in every validation"
    )


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
    if config.cache:
        check_local(config.cache)
    text = sources.open_text(config, "train")
    if not trained and config.vocabularies:
        if config.vocabularies.is_file():
            raise OptionError(
                f"'{config.vocabularies}' is a file, and {{0}} takes a folder; put it "
                "there for each side, as source.model and target.model or, if it is a "
                "list of words, source.words and target.words.",
                "data.vocabularies",
            )
        if not config.vocabularies.is_dir():
            raise OptionError(
                f"there is no folder '{config.vocabularies}' to take vocabularies "
                "from; let {0} name a run.",
                "data.vocabularies",
            )
        trained = load_vocabularies(config.vocabularies)
    if trained and config.subword_dropout:
        check_merges(trained)
    # Before all words are counted.
    prepare.check_cut(config, trained.kinds if trained else {config.vocabulary})
    if config.cache:
        return _cached(config, config.cache, text, trained, console or people_console())
    vocabularies = trained or prepare.build_vocabularies(config, text)
    return _in_memory(config, text, vocabularies)


def _cached(
    config: DataConfig,
    folder: Path,
    text: TextReader,
    trained: Vocabularies | None,
    console: Console,
) -> Prepared:
    files = [_digest_of(path) for path in text.files]
    if trained:  # perhaps they are those that were built for this very text
        entry = cache.read(folder, cache.key_of(config, files, None), console)
        if entry and entry.vocabularies == trained:
            return entry
    key = cache.key_of(config, files, trained)
    if entry := cache.read(folder, key, console):
        return entry
    with cache.locked(folder, key) as place:
        entry = cache.find(place, console)
        if not entry:
            vocabularies = trained or prepare.build_vocabularies(config, text)
            blocks = _some_left(config, vocabularies, text)
            cache.write(place, vocabularies, _unchanged(text, files, blocks))
            entry = cache.find(place, console)
            assert entry
    return entry


def _in_memory(
    config: DataConfig, text: TextReader, vocabularies: Vocabularies
) -> Prepared:
    blocks = list(_some_left(config, vocabularies, text))
    dropped = Dropped()
    for block in blocks:
        dropped += block.dropped
    names = blocks[0].parts
    parts = {name: _joined([block.parts[name] for block in blocks]) for name in names}
    return Prepared(vocabularies, EncodedCorpus(**parts, reopen=None), dropped)


def _joined(blocks: list[Sentences]) -> Sentences:
    ids = np.concatenate([block.ids for block in blocks])
    return Sentences(ids, np.concatenate([block.lengths for block in blocks]))


def _some_left(
    config: DataConfig, vocabularies: Vocabularies, text: TextReader
) -> Iterator[EncodedBlock]:
    """Encodes the text; refuses text of which no pair is kept."""
    kept, dropped = 0, Dropped()
    for block in prepare.encode_text(config, vocabularies, text):
        kept += len(block.source.lengths)
        dropped += block.dropped
        yield block
    if kept:
        return
    if not (dropped.too_long or dropped.uneven):
        raise nothing_left(text.unit)
    left_out = prepare.described(dropped, config, vocabularies.kinds)
    raise OptionError(
        f"no pair of '{text.name}' is left to train on; left out: {left_out}; raise "
        "{0}, or look the text over with kvnmt validate.",
        "data.max_length" if dropped.too_long else "data.max_ratio",
    )


def _unchanged(
    text: TextReader, files: list[str], blocks: Iterable[EncodedBlock]
) -> Iterator[EncodedBlock]:
    """Passes blocks on; refuses them if a file is not what it was before."""
    yield from blocks
    for path, before in zip(text.files, files):
        if _digest_of(path) != before:
            raise UserError(
                f"'{path}' changed while it was read; start again once nobody changes "
                "it."
            )


def _digest_of(path: Path) -> str:
    try:
        return digest_of(path)
    except OSError as error:
        raise UserError(
            f"'{path}' can no longer be read: {reason_of(error)}."
        ) from None
