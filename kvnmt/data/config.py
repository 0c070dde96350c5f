# SPDX-License-Identifier: Apache-2.0
"""Where text comes from and how it becomes ids: what a user chooses."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from kvnmt.errors import Idle, check_given
from kvnmt.fields import at_least, between, idle_while

Kind = Literal["words", "bpe", "codes", "characters"]
# Tokens of a training sentence, unless another number is chosen.
LONGEST: dict[Kind, int] = {
    "words": 80,
    "bpe": 100,
    "codes": 100,
    "characters": 400,
}
OF_MERGES: frozenset[Kind] = frozenset(("bpe", "codes"))

# How vocabularies are built, by kind: it decides no id once there are some.
OF_COUNTED = ("min_count", "vocabulary_size")
OF_PIECES = (
    "subwords",
    "symbols",
    "character_coverage",
    "subword_sentences",
    "normalization",
)
OF_SIDES = ("joint", "trimmed")
OF_CODES = ("codes", "target_codes")
ONLY_BUILDS = ("vocabulary", *OF_COUNTED, *OF_PIECES, *OF_SIDES, *OF_CODES)


@dataclass(frozen=True)
class DataConfig:
    """Parallel text, from files or TSV files or TFDS, and how it becomes ids.

    Text files are UTF-8, one sentence per line; gzip is recognised.
    """

    source: Path | None = None  # training text
    target: Path | None = None  # its translation, line by line
    valid_source: Path | None = None  # text that chooses the best checkpoint
    valid_target: Path | None = None  # its translation
    # instead of two files, one; each line is: a sentence, a tab, its translation
    pairs: Path | None = None
    valid_pairs: Path | None = None  # validation text in this format
    # instead of files, a prepared dataset of TFDS: my_corpus, opus/de-en
    tfds: str | None = None
    # folder in which that dataset is prepared; default: that of TFDS
    tfds_folder: Path | None = None
    # split of the dataset to train on, or a slice such as train[1%:]
    tfds_train: str = "train"
    # split of the dataset that chooses the best checkpoint
    tfds_valid: str = "validation"
    # source and target language, for example de en; default: as in the dataset
    languages: tuple[str, str] | None = None
    # file of links i-j between words, one line for each training pair
    links: Path | None = None
    # run directory, or folder of your own, whose vocabularies are used
    vocabularies: Path | None = None
    # what a token is, where vocabularies are built
    vocabulary: Kind = "words"
    # codes: the merges that subword-nmt or fastBPE learnt
    codes: Path | None = None
    target_codes: Path | None = None  # codes: the target's merges, if they differ
    # words and characters seen less often are unknown; pieces of codes are cut again
    min_count: Annotated[int, at_least(1)] = 2
    # most words, characters or pieces of codes on each side
    vocabulary_size: Annotated[int | None, at_least(3)] = 30000
    subwords: Annotated[int, at_least(3)] = 8000  # bpe: most pieces to learn
    # bpe: strings that are always a piece of their own, such as <2de>
    symbols: tuple[str, ...] = ()
    # bpe: share of the text's characters that have a piece; the rarest are unknown
    character_coverage: Annotated[float, between(0.98, 1)] = 1.0
    # bpe: how SentencePiece normalises characters first; cf: to lower case
    normalization: Literal["nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf", "identity"] = (
        "nmt_nfkc"
    )
    joint: bool = False  # one vocabulary of both sides together
    # joint: each side keeps only what it uses, unless --model.tie is all
    trimmed: bool = False
    # bpe and codes: share of the merges left out at random in training text
    subword_dropout: Annotated[float, between(0, 0.99), idle_while(segmentations=1)] = (
        0.0
    )
    # how often an epoch has the training text, each time with other merges left out
    segmentations: Annotated[int, at_least(1), idle_while(subword_dropout=0)] = 1
    # bpe: learn from at most so many lines of each side
    subword_sentences: Annotated[int, at_least(1)] = 2_000_000
    # most tokens of a side; default: 80 words, 100 subwords, 400 characters
    max_length: Annotated[int | None, at_least(1)] = None
    # most tokens of the longer side per token of the shorter; default: any
    max_ratio: Annotated[float | None, at_least(1)] = None
    # what to do with an empty side, bytes that are not UTF-8, or more columns of TSV
    faulty: Literal["stop", "skip"] = "stop"
    cache: Path | None = None  # folder that keeps prepared text, for other runs
    # processes that prepare the text; default: by its size and the cores
    workers: Annotated[int | None, at_least(0)] = None

    @property
    def ways(self) -> int:
        """How many segmentations an epoch has; without dropout all are the same."""
        return self.segmentations if self.subword_dropout else 1


def longest(config: DataConfig, kinds: Collection[Kind]) -> int:
    """Most tokens of a side that is trained on, EOS not counted.

    Args:
        config: The choices.
        kinds: Of the vocabularies' tokens; those that are taken, not built, may be of
            other kinds than the config's.
    """
    return config.max_length or max(LONGEST[kind] for kind in kinds)


def check_vocabularies(config: DataConfig, *starts: DataConfig) -> None:
    """Refuses build options of another kind, or any if a run's vocabularies are taken.

    Args:
        config: The choices.
        starts: Those that they may have been made from, such as a recipe's. What is as
            in one of them was not given.

    Raises:
        OptionError: A choice was given that does nothing.
    """
    check_given(config, _idle(config), *starts, prefix="data.")


def _idle(config: DataConfig) -> Iterator[Idle]:
    """What does nothing beside the other choices."""
    if config.vocabularies:
        why = "{0} builds vocabularies, and {1} takes those of a run; leave one of "
        yield Idle(ONLY_BUILDS, f"{why}them out.", ("vocabularies",))
        return
    kind = config.vocabulary
    for fields, kinds in (
        (OF_COUNTED, ("words", "characters", "codes")),
        (OF_PIECES, ("bpe",)),
        (OF_CODES, ("codes",)),
    ):
        if kind not in kinds:
            why = f"{{0}} is for {{1}} {' or '.join(kinds)}, which is {kind}; leave it "
            yield Idle(fields, f"{why}out, or change {{1}}.", ("vocabulary",))
    if config.target_codes and config.joint:
        why = "{0} makes one vocabulary, and {1} are codes of their own; leave one out."
        yield Idle(("joint",), why, ("target_codes",))
    if config.trimmed and kind != "bpe" and not config.joint:
        why = "{0} is of one vocabulary of both sides; leave it out, or give {1} too."
        yield Idle(("trimmed",), why, ("joint",))
