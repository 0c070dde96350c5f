# SPDX-License-Identifier: Apache-2.0
"""From text to vocabularies and ids, some thousand pairs at a time.

Neither the text nor, if they are written to files, the ids are ever in memory as a
whole; only counts of words are, and two lengths for every pair.
"""

import os
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kvnmt.console import counting
from kvnmt.data import vocabulary as vocabularies
from kvnmt.data.config import DataConfig
from kvnmt.data.pool import in_order
from kvnmt.data.sources import Text
from kvnmt.data.text import Block, Faulty, clean, nothing_left
from kvnmt.data.vocabularies import Vocabularies
from kvnmt.data.vocabulary import EOS

PAIRS_PER_WORKER = 100_000  # fewer are prepared before a process has begun


class Ids(NamedTuple):
    """Ids of sentences one behind the other, each with EOS, and their lengths."""

    ids: NDArray[np.integer]
    lengths: NDArray[np.int32]


@dataclass
class Dropped:
    """How many pairs were left out, by the first rule that said so."""

    empty: int = 0
    undecodable: int = 0
    too_long: int = 0
    uneven: int = 0  # one side too many times as long as the other

    def __iadd__(self, other: "Dropped") -> "Dropped":
        """Counts on."""
        for name, count in vars(other).items():
            setattr(self, name, getattr(self, name) + count)
        return self


EncodedBlock: TypeAlias = tuple[Ids, Ids, Dropped]


@dataclass(frozen=True)
class Encoder:
    """Turns blocks of text into ids; another process gets a copy."""

    words: Vocabularies
    faulty: Faulty
    longest: int
    max_ratio: float | None

    def __call__(self, block: Block) -> EncodedBlock:
        """The ids of the pairs that are kept, and how many are not."""
        text = clean(block, self.faulty)
        dropped = Dropped(text.empty, text.undecodable)
        kept: tuple[list[list[int]], list[list[int]]] = [], []
        for source, target in zip(text.source, text.target):
            pair = self.words.source.encode(source), self.words.target.encode(target)
            short, long = sorted(map(len, pair))
            if long > self.longest:
                dropped.too_long += 1
            elif not short and self.faulty != "keep":  # nothing that can be seen
                dropped.empty += 1
            elif self.max_ratio and long > self.max_ratio * short:
                dropped.uneven += 1
            else:
                for side, ids in zip(kept, pair):
                    side.append(ids)
        source, target = (_flat(s, len(v)) for s, v in zip(kept, self.words))
        return source, target, dropped


def encode_text(
    config: DataConfig, words: Vocabularies, text: Text
) -> Iterator[EncodedBlock]:
    """Yields the ids of the text, block by block, showing a bar.

    Raises:
        UserError: What `text.clean` raises.
    """
    work = Encoder(words, config.faulty, config.longest, config.max_ratio)
    return _over(text, work, workers_for(config, text), "ids")


def build_vocabularies(config: DataConfig, text: Text) -> Vocabularies:
    """Builds the vocabularies of training text.

    Raises:
        UserError: The text is faulty or too small.
    """
    if config.vocabulary == "bpe":
        return _subwords(config, text)
    keep = {
        "words": vocabularies.keep_words,
        "characters": vocabularies.keep_characters,
    }[config.vocabulary]
    counts: tuple[Counter[str], Counter[str]] = Counter(), Counter()
    work = partial(_count, config.vocabulary, config.faulty)
    for found in _over(text, work, workers_for(config, text), config.vocabulary):
        for own, more in zip(counts, found):
            own.update(more)
    if not any(counts):
        raise nothing_left(text.whole)
    limits = {"min_count": config.min_count, "size": config.vocabulary_size}
    source, target = (keep(own, **limits) for own in counts)
    return Vocabularies(source, target)


def workers_for(config: DataConfig, text: Text) -> int:
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


def _over(text: Text, work: Callable, workers: int, what: str) -> Iterator:
    sizes: deque[int] = deque()

    def blocks() -> Iterator[Block]:
        for block in text.blocks():
            sizes.append(len(block.source))
            yield block

    with counting(what, text.pairs) as advance:
        for found in in_order(work, blocks(), workers):
            advance(sizes.popleft())
            yield found


def _count(kind: str, faulty: Faulty, block: Block) -> list[Counter[str]]:
    sides = clean(block, faulty)[:2]
    if kind == "characters":
        return [Counter("".join(line.strip(" ") for line in side)) for side in sides]
    return [Counter(filter(None, " ".join(side).split(" "))) for side in sides]


def _subwords(config: DataConfig, text: Text) -> Vocabularies:
    sides = _sample(config, text)
    if config.joint:
        joint = vocabularies.build_subwords(chain(*sides), config.subwords)
        return Vocabularies(joint, joint)
    source, target = (vocabularies.build_subwords(s, config.subwords) for s in sides)
    return Vocabularies(source, target)


def _sample(config: DataConfig, text: Text) -> tuple[list[str], list[str]]:
    """Pairs at even distances, so many that they are not too many."""
    apart, wanted, passed = max(text.pairs / config.subword_sentences, 1.0), 0.0, 0
    sample: tuple[list[str], list[str]] = [], []
    work = partial(clean, faulty=config.faulty)
    for kept in _over(text, work, 0, "text"):
        while wanted < passed + len(kept.source):
            for side, own in zip(sample, kept):
                side.append(own[int(wanted) - passed])
            wanted += apart
        passed += len(kept.source)
    if not passed:
        raise nothing_left(text.whole)
    return sample


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
