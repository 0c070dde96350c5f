# SPDX-License-Identifier: Apache-2.0
"""Reading text from a dataset that TFDS has prepared, without TensorFlow.

The dataset is found by its files alone, so the code that made it is not needed. It
must be in a format with random access: array_record (or parquet), not TFDS's default.
"""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import tensorflow_datasets as tfds
from tensorflow_datasets.core.constants import DATA_DIR
from tensorflow_datasets.core.read_only_builder import builder_from_files
from tensorflow_datasets.core.registered import DatasetNotFoundError

from kvnmt.data.text import BLOCK, Block
from kvnmt.errors import OptionError, UserError, first_line

Key: TypeAlias = tuple[str, ...]  # names of features, from the outermost in


class Dataset:
    """A split of a prepared dataset, in the order in which it is stored.

    A line feed inside a sentence becomes a space.
    """

    def __init__(
        self,
        name: str,
        split: str = "train",
        folder: Path | None = None,
        languages: tuple[str, str] | None = None,
    ):
        """Opens the dataset.

        Args:
            name: As TFDS writes it: ``my_corpus``, ``opus/de-en``, ``mine:1.0.0``.
            split: Its split, or a slice or sum of them, as TFDS writes it.
            folder: Where datasets are prepared; by default where TFDS does.
            languages: Features that hold source and target; by default the dataset's
                supervised keys.

        Raises:
            UserError: It is not prepared, not in a format with random access, or has
                no such split or features, or nothing in it.
        """
        self.name = name
        builder = _prepared(name, folder)
        self.keys = _keys(name, builder.info, languages)
        source, target = ("/".join(key) for key in self.keys)
        text = f"{name} ({split})"
        self.places = f"{text}, {source} of record", f"{text}, {target} of record"
        self.records = _open(name, builder, split)
        self.files = tuple(
            path for path in sorted(Path(builder.data_dir).rglob("*")) if path.is_file()
        )
        if not _count(self.records):
            raise UserError(f"{name} has no record in its split '{split}'.")

    def __len__(self) -> int:
        """Returns how many pairs there are."""
        return len(self.records)

    def blocks(self, size: int = BLOCK) -> Iterator[Block]:
        """Reads the pairs, ``size`` at a time.

        Raises:
            UserError: The files are damaged.
        """
        for start in range(0, len(self), size):
            sides: tuple[list[bytes], list[bytes]] = [], []
            for number, record in enumerate(self._records(start, size), start + 1):
                for side, key, place in zip(sides, self.keys, self.places):
                    side.append(_sentence(record, key, f"{place} {number}"))
            yield Block(*sides, first=start + 1, places=self.places)

    def _records(self, start: int, size: int) -> list[dict[str, Any]]:
        numbers = range(len(self))[start : start + size]
        try:
            return self.records.__getitems__(numbers)
        except Exception as error:  # damaged or missing files
            raise UserError(
                f"{self.name} cannot be read: {first_line(error)}."
            ) from None


def _count(records: Any) -> int:
    """How many there are; a slice may end before it begins."""
    try:
        return len(records)
    except ValueError:
        return 0


def _prepared(name: str, folder: Path | None) -> Any:
    try:
        return builder_from_files(name, data_dir=folder)
    except DatasetNotFoundError:
        raise UserError(_not_prepared(name, folder)) from None
    except Exception as error:  # the name is no name, or the files are damaged
        raise UserError(f"{name} cannot be read: {first_line(error)}.") from None


def _not_prepared(name: str, folder: Path | None) -> str:
    place = str(folder or Path(DATA_DIR).expanduser())
    needed = ""
    if importlib.util.find_spec("tensorflow") is None:
        needed = " (most of them need TensorFlow for it: pip install tensorflow)"
    return (
        f"{name} is not prepared in '{place}'; prepare text of your own with kvnmt "
        'prepare-tfds, or a dataset of TFDS with: python -c "import '
        f"tensorflow_datasets as tfds; tfds.builder({name!r}, data_dir={place!r}, "
        f"file_format='array_record').download_and_prepare()\"{needed}."
    )


def _open(name: str, builder: Any, split: str) -> Any:
    try:
        return builder.as_data_source(split=split)
    except (ValueError, AssertionError, NotImplementedError) as error:
        kept = builder.info.file_format
        slow = kept not in type(kept).with_random_access()
        if slow and isinstance(error, NotImplementedError):
            raise UserError(
                f"{name} is prepared in '{builder.data_dir}' as {kept.value}, which "
                "has no random access; prepare it in another folder with "
                "file_format='array_record'."
            ) from None
        raise UserError(
            f"{name} has no split '{split}' ({first_line(error)}); it has "
            f"{', '.join(builder.info.splits) or 'none'}."
        ) from None


def _keys(name: str, info: Any, languages: tuple[str, str] | None) -> list[Key]:
    """The features of a record that hold source and target."""
    texts = sorted(_texts(info.features))
    known = ", ".join(map("/".join, texts))
    names = languages or info.supervised_keys
    if not names:
        raise OptionError(
            f"{name} does not say which is source and which is target; give {{0}} and "
            f"two of: {known}.",
            "data.languages",
        )
    keys = []
    for language in names:
        matches = [key for key in texts if "/".join(key) == language]
        matches = matches or [key for key in texts if key[-1] == language]
        if len(matches) != 1:
            raise OptionError(
                f"{name} has {len(matches) or 'no'} texts '{language}'; give {{0}} and "
                f"two of: {known}.",
                "data.languages",
            )
        keys += matches
    return keys


def _texts(features: Any, outer: Key = ()) -> Iterator[Key]:
    """The features that hold text, however deep."""
    for name, feature in features.items():
        if isinstance(feature, tfds.features.Text):
            yield (*outer, name)
        elif isinstance(feature, tfds.features.FeaturesDict):
            yield from _texts(feature, (*outer, name))


def _sentence(record: Any, key: Key, place: str) -> bytes:
    for name in key:
        record = record[name]
    if record is None:  # so array_record reads a file that is cut off
        raise UserError(f"{place} is missing; prepare the dataset again.")
    return record.replace(b"\r\n", b"\n").rstrip(b"\n").replace(b"\n", b" ")
