# SPDX-License-Identifier: Apache-2.0
"""Text that is hard to read, corpora of it, and batches of epochs."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from kvnmt.data.config import DataConfig
from kvnmt.data.corpus import load_corpora
from kvnmt.data.plan import Plan, Planned, by_pairs
from kvnmt.data.sources import Split, open_text
from kvnmt.data.stream import BatchAt
from kvnmt.data.text import Parallel, collect
from kvnmt.data.vocabulary import Words, count_words, keep_words

# What `str.splitlines` takes for line ends, the line feed apart.
BREAKS = "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
TEXT = Parallel(
    ["a b", *(f"a{end}b c" for end in BREAKS), "\ufeff ä \U0001f600", "a "],
    ["A B", *(f"{end}A B C" for end in BREAKS), "Ä  \U0001f600 ", "A"],
)


def write(path: Path, data: bytes) -> Path:
    """Makes a file."""
    path.write_bytes(data)
    return path


def joined(lines: list[str]) -> bytes:
    """Lines, each with its line feed."""
    return "".join(f"{line}\n" for line in lines).encode()


def as_files(
    folder: Path,
    train: Parallel,
    valid: Parallel,
    pack: Callable[[bytes], bytes] = bytes,
) -> DataConfig:
    """Text files, packed by a function of bytes."""
    texts = {
        "source": train.source,
        "target": train.target,
        "valid_source": valid.source,
        "valid_target": valid.target,
    }
    folder.mkdir(parents=True, exist_ok=True)
    paths = {
        name: write(folder / f"{name}.txt", pack(joined(lines)))
        for name, lines in texts.items()
    }
    return DataConfig(**paths)


def read_split(config: DataConfig, split: Split = "train") -> Parallel:
    """The text of a split as a whole."""
    reader = open_text(config, split)
    return collect(reader.blocks(), config.faulty, reader.unit)


def first_batches(config: DataConfig, count: int = 9) -> list[np.ndarray]:
    """The first batches of training, both sides, and the validation text."""
    corpora = load_corpora(dataclasses.replace(config, min_count=1))
    at = BatchAt(corpora.train, by_pairs(corpora.train.lengths, 16, 2), 1)
    train = [side for position in range(count) for side in at(position)]
    return [*train, *corpora.valid.source, *corpora.valid.target]


def batches(plan: Plan, seed: int, number: int) -> Iterator[Planned]:
    """The batches of an epoch."""
    epoch = plan.epoch(seed, number)
    return (plan.batch(epoch, i) for i in range(plan.per_epoch))


def words_of(lines: list[str], min_count: int = 1, size: int | None = None) -> Words:
    """The vocabulary of words of a text."""
    return keep_words(count_words(lines), min_count=min_count, size=size)
