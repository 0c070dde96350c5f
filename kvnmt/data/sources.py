# SPDX-License-Identifier: Apache-2.0
"""Where text can come from: one kind of source each, chosen by the fields given.

A source names the fields of `DataConfig` that are its own. Those without which there
is nothing to read are listed by split; giving any of them, or changing another,
chooses the source. A new kind is a function and an entry of `SOURCES`.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from kvnmt.data.config import DataConfig
from kvnmt.data.text import Parallel, read_parallel, read_tsv
from kvnmt.errors import UserError

Split: TypeAlias = Literal["train", "valid"]


class Source(NamedTuple):
    """One kind of source."""

    what: str  # what a missing field must name, for people
    needs: dict[Split, tuple[str, ...]]  # fields without which there is no such text
    options: tuple[str, ...]  # fields that have a default
    read: Callable[..., Parallel]  # of config, split and the values of those fields


def read(config: DataConfig, split: Split) -> Parallel:
    """Reads the text of a split from wherever the config says.

    Raises:
        UserError: No source or more than one is given, or it cannot be read.
    """
    source = SOURCES[kind_of(config)]
    values = {field: getattr(config, field) for field in source.needs[split]}
    for field, value in values.items():
        if value is None:
            raise UserError(f"no {_flag(field)} is given; name {source.what}.")
    return source.read(config, split, *values.values())


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


def _files(config: DataConfig, _: Split, source: Path, target: Path) -> Parallel:
    return read_parallel(source, target, empty=config.empty)


def _tsv(config: DataConfig, _: Split, path: Path) -> Parallel:
    return read_tsv(path, empty=config.empty)


def _tfds(config: DataConfig, split: Split, name: str) -> Parallel:
    from kvnmt.data import tfds_source  # here, since it is slow to import

    return tfds_source.read(
        name,
        {"train": config.tfds_train, "valid": config.tfds_valid}[split],
        folder=config.tfds_folder,
        languages=config.languages,
        empty=config.empty,
    )


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
