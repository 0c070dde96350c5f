# SPDX-License-Identifier: Apache-2.0
"""From text to vocabularies and ids, some thousand pairs at a time.

Neither the text nor, if they are written to files, the ids are ever in memory as a
whole; only counts of words are, and two lengths for every pair.
"""

import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from kvnmt.console import counting
from kvnmt.data.config import DataConfig
from kvnmt.data.pool import in_order
from kvnmt.data.sources import TextReader
from kvnmt.data.subwords import build_subwords, trim
from kvnmt.data.text import (
    Block,
    Faulty,
    Parallel,
    clean,
    faulty_side,
    nothing_left,
)
from kvnmt.data.vocabularies import Vocabularies
from kvnmt.data.vocabulary import (
    EOS,
    AnyVocabulary,
    count_characters,
    count_words,
    keep_characters,
    keep_words,
)

Result = TypeVar("Result")
PAIRS_PER_WORKER = 100_000  # fewer are prepared before a process has begun


class Ids(NamedTuple):
    """Ids of sentences one behind the other, each with EOS, and their lengths."""

    ids: NDArray[np.integer]
    lengths: NDArray[np.int32]


@dataclass
class Dropped:
    """How many pairs were left out, by the first rule that refused them."""

    empty: int = 0
    undecodable: int = 0
    too_long: int = 0
    uneven: int = 0  # one side too many times as long as the other

    def __iadd__(self, other: "Dropped") -> "Dropped":
        """Adds the counts of other pairs."""
        for name, count in vars(other).items():
            setattr(self, name, getattr(self, name) + count)
        return self


class EncodedBlock(NamedTuple):
    """The pairs that are kept of a block of text."""

    source: Ids
    target: Ids
    dropped: Dropped


class Tokenised(NamedTuple):
    """The pairs of a block both of whose sides become tokens."""

    text: Parallel  # these pairs, and how many were left out
    source: list[list[int]]  # ids without EOS
    target: list[list[int]]


def tokenised(vocabularies: Vocabularies, block: Block, faulty: Faulty) -> Tokenised:
    """Turns a block into ids; what becomes no token is as faulty as an empty side.

    Subwords leave out what cannot be seen, zero-width and control characters.

    Raises:
        UserError: A side becomes no token and ``faulty`` is ``stop``; what `clean`
            raises.
    """
    text = clean(block, faulty)
    kept = Tokenised(Parallel([], []), [], [])
    nothing = 0
    for number, pair in enumerate(zip(text.source, text.target), block.first):
        ids = [words.encode(line) for words, line in zip(vocabularies, pair)]
        if not all(ids):
            if faulty == "stop":
                raise faulty_side(
                    block, number, ids.index([]), "holds nothing that becomes a token"
                )
            nothing += 1
            continue
        for lines, line in zip((kept.text.source, kept.text.target), pair):
            lines.append(line)
        kept.source.append(ids[0])
        kept.target.append(ids[1])
    left_out = {"empty": text.empty + nothing, "undecodable": text.undecodable}
    return kept._replace(text=kept.text._replace(**left_out))


@dataclass(frozen=True)
class PairEncoder:
    """Turns blocks of text into ids; another process gets a copy."""

    vocabularies: Vocabularies
    faulty: Faulty  # what to do with pairs that have an empty side or are not UTF-8
    longest: int  # tokens of a side that is kept, at most
    max_ratio: float | None  # of the longer side to the shorter, at most

    def __call__(self, block: Block) -> EncodedBlock:
        """The ids of the pairs that are kept, and how many are not."""
        pairs = tokenised(self.vocabularies, block, self.faulty)
        dropped = Dropped(pairs.text.empty, pairs.text.undecodable)
        sources, targets = [], []
        for source_ids, target_ids in zip(pairs.source, pairs.target):
            short, long = sorted((len(source_ids), len(target_ids)))
            if long > self.longest:
                dropped.too_long += 1
            elif self.max_ratio and long > self.max_ratio * short:
                dropped.uneven += 1
            else:
                sources.append(source_ids)
                targets.append(target_ids)
        return EncodedBlock(
            source=_flat(sources, len(self.vocabularies.source)),
            target=_flat(targets, len(self.vocabularies.target)),
            dropped=dropped,
        )


def encode_text(
    config: DataConfig, vocabularies: Vocabularies, text: TextReader
) -> Iterator[EncodedBlock]:
    """Yields the ids of the text, block by block, showing a bar.

    Raises:
        UserError: What `text.clean` raises.
    """
    encoder = PairEncoder(vocabularies, config.faulty, config.longest, config.max_ratio)
    return _each_block(text, encoder, workers_for(config, text), "ids")


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
        case "bpe":
            return _subwords(config, text)


def workers_for(config: DataConfig, text: TextReader) -> int:
    """How many processes prepare this text."""
    if config.workers is not None:
        return config.workers
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    workers = min(cores, text.pairs // PAIRS_PER_WORKER)
    return workers if workers > 1 else 0


def described(dropped: Dropped, config: DataConfig) -> str:
    """How many pairs were left out and why, for people."""
    reasons = {
        f"longer than {config.longest} tokens": dropped.too_long,
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


def _by_frequency(
    config: DataConfig,
    text: TextReader,
    count: Callable[[Iterable[str]], Counter[str]],
    keep: Callable[..., AnyVocabulary],
) -> Vocabularies:
    """Vocabularies of what occurs most often, by functions to count and to choose."""
    source: Counter[str] = Counter()
    target: Counter[str] = Counter()
    work = partial(_count, count, config.faulty)
    workers = workers_for(config, text)
    for counts in _each_block(text, work, workers, config.vocabulary):
        source.update(counts[0])
        target.update(counts[1])
    if not (source or target):
        raise nothing_left(text.unit)
    least, size = config.min_count, config.vocabulary_size
    return Vocabularies(
        source=keep(source, min_count=least, size=size),
        target=keep(target, min_count=least, size=size),
    )


def _count(
    count: Callable[[Iterable[str]], Counter[str]], faulty: Faulty, block: Block
) -> tuple[Counter[str], Counter[str]]:
    pairs = clean(block, faulty)
    return count(pairs.source), count(pairs.target)


def _subwords(config: DataConfig, text: TextReader) -> Vocabularies:
    source, target = _sample(config, text)
    if config.joint:
        ours = theirs = build_subwords(chain(source, target), config.subwords)
    else:
        ours, theirs = (build_subwords(x, config.subwords) for x in (source, target))
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


def _flat(sentences: list[list[int]], size: int) -> Ids:
    flat: list[int] = []
    for ids in sentences:
        flat += ids
        flat.append(EOS)
    lengths = np.array([len(ids) + 1 for ids in sentences], np.int32)
    return Ids(np.array(flat, id_type(size)), lengths)


def id_type(size: int) -> type[np.integer]:
    """The smallest type for the ids of a vocabulary of this size."""
    return np.uint16 if size <= 1 << 16 else np.int32
