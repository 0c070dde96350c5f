# SPDX-License-Identifier: Apache-2.0
"""Where text can come from: files, TSV files or a dataset of TFDS.

Every kind of source lists its fields of `DataConfig`: those without which there is
nothing to read, by split, and those with a default. A config that sets any of them
chooses the kind. A new kind is a function and an entry of `SOURCES`.
"""

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from kvnmt.data import text
from kvnmt.data.config import DataConfig
from kvnmt.data.lines import count_lines, opened
from kvnmt.data.text import Block
from kvnmt.errors import OptionError, UserError, counted

Split: TypeAlias = Literal["train", "valid"]


class TextReader(NamedTuple):
    """Parallel text that can be read again and again."""

    name: str  # for people
    pairs: int  # faulty ones included
    blocks: Callable[..., Iterator[Block]]  # of how many pairs at a time
    files: tuple[Path, ...]  # whose contents decide all of it
    unit: str  # what holds a pair, for people: ``line of 'a' and 'b'``


class Source(NamedTuple):
    """One kind of source."""

    description: str  # of what a missing field must name
    required: dict[Split, tuple[str, ...]]  # fields without which there is no text
    options: tuple[str, ...]  # fields that have a default
    open: Callable[..., TextReader]  # of config, split and the required values


def open_text(config: DataConfig, split: Split) -> TextReader:
    """Opens the text of a split, from whatever source the config names.

    Raises:
        UserError: No source or more than one is named, or it cannot be read.
    """
    reader = _source(config).open(config, split, *required_values(config, split))
    if config.links and split == "train":
        return _with_links(reader, config.links)
    return reader


def required_values(config: DataConfig, split: Split) -> tuple[Any, ...]:
    """Returns the values of the fields without which there is no such text.

    Raises:
        UserError: One is missing, or the config names more than one source.
    """
    source = _source(config)
    fields = source.required[split]
    for field in fields:
        if getattr(config, field) is None:
            what = f"no {{0}} is given; name {source.description}."
            raise OptionError(what, f"data.{field}")
    return tuple(getattr(config, field) for field in fields)


def replacing(config: DataConfig, start: DataConfig) -> DataConfig:
    """A config whose new source of text replaces the source that its start names.

    Args:
        config: Made from the start.
        start: For example that of a run. If the config names one new kind of source,
            the other kinds that the start names are left out.
    """
    fresh = [
        source
        for source in SOURCES.values()
        if any(getattr(config, f) != getattr(start, f) for f in _fields(source))
    ]
    begun = len(fresh) == 1 and fresh[0].required["train"]
    if not begun or any(getattr(config, field) is None for field in begun):
        return config
    others = (source for source in SOURCES.values() if source is not fresh[0])
    idle = {field for source in others for field in _fields(source)}
    defaults = {f.name: f.default for f in dataclasses.fields(DataConfig)}
    if all(getattr(config, name) == defaults[name] for name in idle):
        return config
    if config.links == start.links:  # of the text that is left
        idle.add("links")
    return dataclasses.replace(config, **{name: defaults[name] for name in idle})


def _fields(source: Source) -> tuple[str, ...]:
    """All fields of a kind of source."""
    return *source.required["train"], *source.required["valid"], *source.options


def _with_links(reader: TextReader, path: Path) -> TextReader:
    count = count_lines(path)
    if count != reader.pairs:
        raise UserError(
            f"'{path}' has {counted(count, 'line')} for "
            f"{counted(reader.pairs, 'sentence pair')}; line n must hold the links of "
            "pair n."
        )

    def blocks(size: int = text.BLOCK) -> Iterator[Block]:
        with opened(path) as file:
            for block in reader.blocks(size):
                lines = list(islice(file, len(block.source)))
                if len(lines) != len(block.source):
                    raise UserError(
                        f"'{path}' has fewer lines than before; start again once "
                        "nobody changes it."
                    )
                places = (*block.places, f"{path}, line")
                yield block._replace(links=lines, places=places)

    return reader._replace(blocks=blocks, files=(*reader.files, path))


def _source(config: DataConfig) -> Source:
    """The source whose fields the config sets; files if it sets none."""
    defaults = {f.name: f.default for f in dataclasses.fields(DataConfig)}
    first_field: dict[str, str] = {}  # that is set, by kind
    for kind, source in SOURCES.items():
        for field in _fields(source):
            if getattr(config, field) != defaults[field]:
                first_field.setdefault(kind, field)
    if len(first_field) > 1:
        paths = [f"data.{field}" for field in first_field.values()]
        names = " and ".join(f"{{{n}}}" for n in range(len(paths)))
        raise OptionError(
            f"{names} are different sources of text; give one of them.", *paths
        )
    return SOURCES[next(iter(first_field), "files")]


def _files(_: DataConfig, __: Split, source: Path, target: Path) -> TextReader:
    return TextReader(
        name=str(source),
        pairs=text.count_parallel(source, target),
        blocks=partial(text.parallel_blocks, source, target),
        files=(source, target),
        unit=f"line of '{source}' and '{target}'",
    )


def _tsv(config: DataConfig, _: Split, path: Path) -> TextReader:
    return TextReader(
        name=str(path),
        pairs=text.count_tsv(path),
        blocks=partial(text.tsv_blocks, path, faulty=config.faulty),
        files=(path,),
        unit=f"line of '{path}'",
    )


def _tfds(config: DataConfig, split: Split, name: str) -> TextReader:
    from kvnmt.data.tfds_source import Dataset  # here, since it is slow to import

    part = {"train": config.tfds_train, "valid": config.tfds_valid}[split]
    dataset = Dataset(name, part, config.tfds_folder, config.languages)
    return TextReader(
        name=name,
        pairs=len(dataset),
        blocks=dataset.blocks,
        files=dataset.files,
        unit=f"record of {name} ({part})",
    )


SOURCES = {
    "files": Source(
        description="a text file",
        required={
            "train": ("source", "target"),
            "valid": ("valid_source", "valid_target"),
        },
        options=(),
        open=_files,
    ),
    "TSV": Source(
        description="a file of sentence, tab and translation",
        required={"train": ("pairs",), "valid": ("valid_pairs",)},
        options=(),
        open=_tsv,
    ),
    "TFDS": Source(
        description="a prepared dataset",
        required={"train": ("tfds",), "valid": ("tfds",)},
        options=("tfds_folder", "tfds_train", "tfds_valid", "languages"),
        open=_tfds,
    ),
}
