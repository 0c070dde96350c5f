# SPDX-License-Identifier: Apache-2.0
"""Where text can come from: one kind of source each, chosen by the fields given.

A source names the fields of `DataConfig` that are its own. Those without which there
is nothing to read are listed by split; giving any of them, or changing another,
chooses the source. A new kind is a function and an entry of `SOURCES`.
"""

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from kvnmt.data import text
from kvnmt.data.config import DataConfig
from kvnmt.data.text import Block, Parallel
from kvnmt.errors import UserError

Split: TypeAlias = Literal["train", "valid"]


class Text(NamedTuple):
    """Parallel text that can be read again and again."""

    pairs: int  # faulty ones included
    blocks: Callable[[], Iterator[Block]]  # reads it, in its order
    files: tuple[Path, ...]  # whose contents decide all of it
    whole: str  # what there is one of for every pair, for people


class Source(NamedTuple):
    """One kind of source."""

    what: str  # what a missing field must name, for people
    needs: dict[Split, tuple[str, ...]]  # fields without which there is no such text
    options: tuple[str, ...]  # fields that have a default
    open: Callable[..., Text]  # of config, split and the values of those fields


def open_text(config: DataConfig, split: Split) -> Text:
    """Finds the text of a split, wherever the config says.

    Raises:
        UserError: No source or more than one is given, or it cannot be read.
    """
    return SOURCES[kind_of(config)].open(config, split, *given(config, split))


def given(config: DataConfig, split: Split) -> tuple[Any, ...]:
    """Returns the fields without which there is no such text.

    Raises:
        UserError: One is not given, or there are those of more than one source.
    """
    source = SOURCES[kind_of(config)]
    values = tuple(getattr(config, field) for field in source.needs[split])
    for field, value in zip(source.needs[split], values):
        if value is None:
            raise UserError(f"no {_flag(field)} is given; name {source.what}.")
    return values


def read(config: DataConfig, split: Split) -> Parallel:
    """Reads the text of a split as a whole.

    Raises:
        UserError: What `open_text` and `text.collect` raise.
    """
    found = open_text(config, split)
    return text.collect(found.blocks(), config.faulty, found.whole)


def kind_of(config: DataConfig) -> str:
    """Returns the name in `SOURCES` of what the config reads.

    Raises:
        UserError: The config gives fields of two kinds.
    """
    defaults = {f.name: f.default for f in dataclasses.fields(DataConfig)}
    given: dict[str, str] = {}  # by kind, the first of its fields
    for kind, source in SOURCES.items():
        for field in (*source.needs["train"], *source.needs["valid"], *source.options):
            if getattr(config, field) != defaults[field]:
                given.setdefault(kind, field)
    if len(given) > 1:
        flags = " and ".join(map(_flag, given.values()))
        raise UserError(f"{flags} are different sources of text; give one of them.")
    return next(iter(given), "files")


def name_of(config: DataConfig) -> str:
    """Returns what people call the training text."""
    return str(getattr(config, SOURCES[kind_of(config)].needs["train"][0]))


def _flag(field: str) -> str:
    return f"--data.{field.replace('_', '-')}"


def _files(_: DataConfig, __: Split, source: Path, target: Path) -> Text:
    return Text(
        text.count_parallel(source, target),
        partial(text.parallel_blocks, source, target),
        (source, target),
        f"line of '{source}' and '{target}'",
    )


def _tsv(_: DataConfig, __: Split, path: Path) -> Text:
    blocks = partial(text.tsv_blocks, path)
    return Text(text.count_tsv(path), blocks, (path,), f"line of '{path}'")


def _tfds(config: DataConfig, split: Split, name: str) -> Text:
    from kvnmt.data.tfds_source import Dataset  # here, since it is slow to import

    part = {"train": config.tfds_train, "valid": config.tfds_valid}[split]
    found = Dataset(name, part, config.tfds_folder, config.languages)
    whole = f"record of {name} ({part})"
    return Text(len(found), found.blocks, found.files, whole)


SOURCES = {
    "files": Source(
        "a text file",
        {"train": ("source", "target"), "valid": ("valid_source", "valid_target")},
        (),
        _files,
    ),
    "TSV": Source(
        "a file of sentence, tab and translation",
        {"train": ("pairs",), "valid": ("valid_pairs",)},
        (),
        _tsv,
    ),
    "TFDS": Source(
        "a prepared dataset",
        {"train": ("tfds",), "valid": ("tfds",)},
        ("tfds_folder", "tfds_train", "tfds_valid", "languages"),
        _tfds,
    ),
}
