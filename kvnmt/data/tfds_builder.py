# SPDX-License-Identifier: Apache-2.0
"""Preparing a TFDS dataset from parallel text, without TensorFlow.

TFDS's own `TranslateFolder` splits lines where `str.splitlines` does, so that one NEL
on one side spoils a corpus; and it shuffles. Here the pairs are what `data.text` read,
in their order, in array_record files that anything can read that reads TFDS.
"""

import contextlib
import io
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import tensorflow_datasets as tfds

from kvnmt.data.text import Parallel
from kvnmt.errors import UserError, first_line
from kvnmt.files import check_path

SHARD = 250_000  # pairs in a file; TFDS holds as many in memory


class Information(tfds.core.DatasetInfo):
    """What is told of a dataset; nothing of it is anywhere but in its folder."""

    def initialize_from_bucket(self) -> None:
        """Asks no network for a dataset of the same name, and leaves no folder."""


class TextBuilder(tfds.core.ShardBasedBuilder, skip_registration=True):
    """Writes pairs down in their order, as a `Translation` from source to target."""

    VERSION = tfds.core.Version("1.0.0")

    def __init__(
        self,
        name: str,
        splits: Mapping[str, Parallel],
        folder: Path,
        languages: tuple[str, str],
        shard: int = SHARD,
    ):
        self.name = name  # pyright: ignore[reportAttributeAccessIssue]
        self._splits = splits
        self.languages, self.shard = languages, shard
        super().__init__(data_dir=folder, file_format="array_record")

    def _info(self) -> tfds.core.DatasetInfo:
        return Information(
            builder=self,
            description="Parallel text, prepared by kvnmt.",
            features=tfds.features.Translation(self.languages),
            supervised_keys=self.languages,
        )

    def _shard_iterators_per_split(
        self, dl_manager: Any
    ) -> dict[str, list[Callable[[], Iterator[tuple[int, dict[str, str]]]]]]:
        del dl_manager  # nothing is downloaded
        return {
            split: [
                partial(self.examples, text, start)
                for start in range(0, len(text.source), self.shard)
            ]
            for split, text in self._splits.items()
        }

    def examples(
        self, text: Parallel, start: int
    ) -> Iterator[tuple[int, dict[str, str]]]:
        """Yields the pairs of the file that begins at a pair, by their numbers."""
        for i in range(start, min(start + self.shard, len(text.source))):
            yield i, dict(zip(self.languages, (text.source[i], text.target[i])))


def prepare(
    name: str,
    splits: Mapping[str, Parallel],
    folder: Path,
    languages: tuple[str, str] = ("source", "target"),
    *,
    shard: int = SHARD,
) -> Path:
    """Prepares a dataset that `tfds_source.Dataset` and TFDS itself read by name.

    Args:
        name: Of the dataset.
        splits: Text by the name of its split: ``train``, ``validation``, ``test``.
        folder: Where datasets are prepared; the dataset has a folder of its own there.
        languages: What the sides are called.
        shard: Most pairs in a file.

    Returns:
        The folder of the dataset, its version included.

    Raises:
        UserError: A name is not allowed, the dataset exists, or it cannot be written.
    """
    prepared = place_of(name, folder, languages)
    printed = io.StringIO()  # what TFDS prints is not for our standard output
    try:
        with (
            tempfile.TemporaryDirectory() as empty,
            contextlib.redirect_stdout(printed),
        ):
            builder = TextBuilder(name, splits, folder, languages, shard)
            builder.download_and_prepare(download_dir=empty)
    except (OSError, RuntimeError) as error:  # the latter of the records' own library
        why = getattr(error, "strerror", None) or first_line(error)
        raise UserError(f"'{prepared}' cannot be written: {why}.") from None
    return prepared


def place_of(name: str, folder: Path, languages: tuple[str, str]) -> Path:
    """The folder of a dataset that is to be prepared, its version included.

    Raises:
        UserError: A name is not allowed, or the dataset exists.
    """
    check_path(folder)
    _check_names(name, languages)
    prepared = folder / name / str(TextBuilder.VERSION)
    if prepared.exists():
        raise UserError(
            f"'{prepared}' exists already; remove it, or choose another name or folder."
        )
    return prepared


def _check_names(name: str, languages: tuple[str, str]) -> None:
    if not re.fullmatch("[a-z][a-z0-9_]*", name):
        raise UserError(
            f"'{name}' cannot name a dataset; take a small letter and then small "
            "letters, digits and underscores."
        )
    words = [re.fullmatch(r"[\w-]+", language) for language in languages]
    if not all(words) or languages[0] == languages[1]:
        raise UserError(
            f"'{languages[0]}' and '{languages[1]}' cannot name source and target; "
            "take two different words."
        )
