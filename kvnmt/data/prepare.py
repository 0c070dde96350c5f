# SPDX-License-Identifier: Apache-2.0
"""From text to vocabularies and ids, some thousand pairs at a time.

Neither the text nor, if they are written to files, the ids are in memory as a whole;
only counts of words are, two lengths for every pair, and the pairs that subwords are
learnt from: two million at most, unless `subword_sentences` is another number.
"""

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TypeVar

from kvnmt.console import counting
from kvnmt.data.codes import Codes, keep_pieces, read_codes
from kvnmt.data.config import OF_MERGES, DataConfig, Kind, longest
from kvnmt.data.encoding import Dropped, EncodedBlock, PairEncoder
from kvnmt.data.lines import disguise
from kvnmt.data.pool import in_order
from kvnmt.data.sources import TextReader
from kvnmt.data.subwords import build_subwords, trim
from kvnmt.data.text import Block, Faulty, clean, nothing_left
from kvnmt.data.vocabularies import LARGEST, Vocabularies, Vocabulary
from kvnmt.data.vocabulary import (
    count_characters,
    count_words,
    keep_characters,
    keep_words,
)
from kvnmt.errors import OptionError, reason_of
from kvnmt.files import DamagedError, read_small
from kvnmt.machine import cores

Result = TypeVar("Result")
PAIRS_PER_WORKER = 100_000  # fewer are prepared before a process has begun


def encode_text(
    config: DataConfig, vocabularies: Vocabularies, text: TextReader
) -> Iterator[EncodedBlock]:
    """Yields the ids of the text, block by block, showing a bar.

    Raises:
        UserError: What `text.clean` raises.
    """
    encoder = PairEncoder(
        vocabularies,
        config.faulty,
        longest=longest(config, vocabularies.kinds),
        max_ratio=config.max_ratio,
        subword_dropout=config.subword_dropout,
        segmentations=config.ways,
    )
    return _each_block(text, encoder, workers_for(config, text), "ids")


def check_cut(config: DataConfig, kinds: Collection[Kind]) -> None:
    """Refuses subword dropout without merges.

    Args:
        config: The choices.
        kinds: Of the vocabularies.

    Raises:
        OptionError: Merges are to be left out where there are none.
    """
    if config.subword_dropout and not OF_MERGES & {*kinds}:
        instead, remedy = "vocabulary", "{1} to bpe or codes"
        if config.vocabularies:
            instead, remedy = "vocabularies", "give {1} of subwords"
        raise OptionError(
            f"{{0}} leaves out merges of subwords; set it to 0, or {remedy}.",
            *("data.subword_dropout", f"data.{instead}"),
        )


def build_vocabularies(config: DataConfig, text: TextReader) -> Vocabularies:
    """Builds the vocabularies of training text.

    Raises:
        UserError: The text is faulty or too small.
    """
    match config.vocabulary:
        case "words":
            return _by_frequency(config, text, count_words, keep_words)
        case "characters":
            return _by_frequency(config, text, count_characters, keep_characters)
        case "codes":
            keeps = [partial(keep_pieces, codes) for codes in _codes(config)]
            return _by_frequency(config, text, count_words, *keeps)
        case "bpe":
            return _subwords(config, text)


def workers_for(config: DataConfig, text: TextReader) -> int:
    """How many processes prepare this text."""
    if config.workers is not None:
        return config.workers
    workers = min(cores(), text.pairs // PAIRS_PER_WORKER)
    return workers if workers > 1 else 0


def described(dropped: Dropped, config: DataConfig, kinds: Collection[Kind]) -> str:
    """How many pairs were left out and why, for people."""
    reasons = {
        f"longer than {longest(config, kinds)} tokens": dropped.too_long,
        "with an empty side": dropped.empty,
        "not UTF-8": dropped.undecodable,
        f"with a side {config.max_ratio or 0:g} times the other": dropped.uneven,
    }
    return ", ".join(f"{n:,} {why}" for why, n in reasons.items() if n) or "none"


def _each_block(
    text: TextReader, work: Callable[[Block], Result], workers: int, what: str
) -> Iterator[Result]:
    """Yields the results of work on every block, showing a bar called ``what``."""
    sizes: deque[int] = deque()  # of the blocks that are being worked on

    def blocks() -> Iterator[Block]:
        for block in text.blocks():
            sizes.append(len(block.source))
            yield block

    with counting(what, text.pairs) as advance:
        for result in in_order(work, blocks(), workers):
            advance(sizes.popleft())
            yield result


def _codes(config: DataConfig) -> list[Codes]:
    """The merges of both sides, or of each if they differ.

    Raises:
        OptionError: None are given, or a file cannot be read or holds none; file and
            line are named.
    """
    if config.codes is None:
        raise OptionError(
            "with {0} codes, {1} names the merges: a file of subword-nmt or fastBPE.",
            *("data.vocabulary", "data.codes"),
        )
    paths = {"codes": config.codes, "target_codes": config.target_codes}
    return [_read(name, path) for name, path in paths.items() if path]


def _read(name: str, path: Path) -> Codes:
    try:
        content = read_small(path, LARGEST)
        if remedy := disguise(content):
            raise DamagedError(remedy)
        return read_codes(content)
    except (DamagedError, OSError, ValueError) as error:
        raise OptionError(
            f"{{0}} '{path}' holds no merges of subword-nmt or fastBPE: "
            f"{reason_of(error)}.",
            f"data.{name}",
        ) from None


def _by_frequency(
    config: DataConfig,
    text: TextReader,
    count: Callable[[Iterable[str]], Counter[str]],
    keep: Callable[..., Vocabulary],
    keep_target: Callable[..., Vocabulary] | None = None,
) -> Vocabularies:
    """Vocabularies of what occurs most often.

    Args:
        config: How many tokens are kept, and whether both sides have one vocabulary.
        text: The training text.
        count: Counts tokens in lines.
        keep: Makes a vocabulary of the counts.
        keep_target: That of the target, if it is another: then there are two.
    """
    source: Counter[str] = Counter()
    target: Counter[str] = Counter()
    work = partial(_count, count, config.faulty)
    workers = workers_for(config, text)
    for counts in _each_block(text, work, workers, config.vocabulary):
        source.update(counts[0])
        target.update(counts[1])
    if not (source or target):
        raise nothing_left(text.unit)
    kept = {"min_count": config.min_count, "size": config.vocabulary_size}
    if config.joint and not (config.trimmed or keep_target):
        ours = keep(source + target, **kept)
        return Vocabularies(ours, ours)
    return Vocabularies(keep(source, **kept), (keep_target or keep)(target, **kept))


def _count(
    count: Callable[[Iterable[str]], Counter[str]], faulty: Faulty, block: Block
) -> tuple[Counter[str], Counter[str]]:
    pairs = clean(block, faulty)
    return count(pairs.source), count(pairs.target)


def _subwords(config: DataConfig, text: TextReader) -> Vocabularies:
    source, target = _sample(config, text)
    learn = partial(
        build_subwords,
        size=config.subwords,
        normalization=config.normalization,
        coverage=config.character_coverage,
        symbols=config.symbols,
    )
    if config.joint:
        ours = theirs = learn(chain(source, target))
    else:
        ours, theirs = learn(source), learn(target)
    if config.trimmed:
        ours, theirs = trim(ours, source), trim(theirs, target)
    return Vocabularies(ours, theirs)


def _sample(config: DataConfig, text: TextReader) -> tuple[list[str], list[str]]:
    """Pairs at even distances, as many as subwords are learnt from at most."""
    distance = max(text.pairs / config.subword_sentences, 1.0)
    position, passed = 0.0, 0  # of the next pair to take; pairs of earlier blocks
    source, target = [], []
    for block in _each_block(text, partial(clean, faulty=config.faulty), 0, "text"):
        while position < passed + len(block.source):
            i = int(position) - passed
            source.append(block.source[i])
            target.append(block.target[i])
            position += distance
        passed += len(block.source)
    if not passed:
        raise nothing_left(text.unit)
    return source, target
