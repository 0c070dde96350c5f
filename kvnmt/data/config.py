# SPDX-License-Identifier: Apache-2.0
"""Where text comes from and how it becomes ids: what a user chooses."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class DataConfig:
    """Parallel text, from files or TSV files or TFDS, and how it becomes ids.

    Text files are UTF-8, one sentence per line; gzip is recognised.
    """

    source: Path | None = None  # training text
    target: Path | None = None
    valid_source: Path | None = None  # text that chooses the best checkpoint
    valid_target: Path | None = None
    pairs: Path | None = None  # or one file: a sentence, a tab, its translation
    valid_pairs: Path | None = None
    tfds: str | None = None  # or a prepared dataset of TFDS: my_corpus, opus/de-en
    tfds_folder: Path | None = None  # where it is prepared; default: where TFDS does
    tfds_train: str = "train"  # its split to train on; slices such as train[1%:] too
    tfds_valid: str = "validation"  # its split that chooses the best checkpoint
    languages: tuple[str, str] | None = None  # its source and target; default: its own
    vocabulary: Literal["words", "bpe"] = "words"
    min_count: int = 2  # words seen less often are unknown
    vocabulary_size: int | None = 30000  # at most so many words on each side
    subwords: int = 8000  # pieces to learn, with bpe
    joint: bool = False  # bpe: one vocabulary for both sides
    max_length: int = 80  # longer pairs (in tokens, without EOS) are not trained on
    empty: Literal["stop", "skip"] = "stop"  # what to do with an empty line
