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

from kvnmt.data.text import Empty, Pairs, Parallel, choose, decode
from kvnmt.errors import UserError

Key: TypeAlias = tuple[str, ...]  # names of features, from the outermost in
AT_ONCE = 10_000  # records


def read(
    name: str,
    split: str = "train",
    *,
    folder: Path | None = None,
    languages: tuple[str, str] | None = None,
    empty: Empty = "stop",
) -> Parallel:
    """Reads a split of a prepared dataset, in the order in which it is stored.

    A line feed inside a sentence becomes a space.

    Args:
        name: As TFDS writes it: ``my_corpus``, ``opus/de-en``, ``my_corpus:1.0.0``.
        split: Its split, or a slice or sum of them, as TFDS writes it.
        folder: Where datasets are prepared; by default where TFDS does.
        languages: Features that hold source and target; by default the dataset's
            supervised keys.
        empty: What to do with a pair that has an empty side.

    Raises:
        UserError: It is not prepared, not in a format with random access, or has no
            such split or features; a sentence is not UTF-8 or empty.
    """
    builder = _prepared(name, folder)
    keys = _keys(name, builder.info, languages)
    places = tuple(f"{name} ({split}), {'/'.join(key)} of record" for key in keys)
    source, target = [], []
    for number, record in enumerate(_records(name, builder, split), 1):
        for side, key, place in zip((source, target), keys, places):
            side.append(_sentence(record, key, place, number))
    if not source:
        raise UserError(f"{name} has no record in its split '{split}'.")
    return choose(
        Pairs(source, target, (places[0], places[1]), f"record of {name} ({split})"),
        empty,
    )


def _prepared(name: str, folder: Path | None) -> Any:
    try:
        return builder_from_files(name, data_dir=folder)
    except DatasetNotFoundError:
        raise UserError(_not_prepared(name, folder)) from None
    except Exception as error:  # the name is no name, or the files are damaged
        raise UserError(f"{name} cannot be read: {_first_line(error)}.") from None


def _not_prepared(name: str, folder: Path | None) -> str:
    where = str(folder or Path(DATA_DIR).expanduser())
    needed = ""
    if importlib.util.find_spec("tensorflow") is None:
        needed = " (most of them need TensorFlow for it: pip install tensorflow)"
    return (
        f"{name} is not prepared in '{where}'; prepare text of your own with kvnmt "
        'prepare-tfds, or a dataset of TFDS with: python -c "import '
        f"tensorflow_datasets as tfds; tfds.builder({name!r}, data_dir={where!r}, "
        f"file_format='array_record').download_and_prepare()\"{needed}."
    )


def _records(name: str, builder: Any, split: str) -> Iterator[dict[str, Any]]:
    try:
        found = builder.as_data_source(split=split)
    except NotImplementedError:
        raise UserError(
            f"{name} is prepared in '{builder.data_dir}' as "
            f"{builder.info.file_format.value}, which has no random access; prepare it "
            "in another folder with file_format='array_record'."
        ) from None
    except (ValueError, AssertionError) as error:
        raise UserError(
            f"{name} has no split '{split}' ({_first_line(error)}); it has "
            f"{', '.join(builder.info.splits) or 'none'}."
        ) from None
    try:
        for start in range(0, len(found), AT_ONCE):
            yield from found.__getitems__(range(len(found))[start : start + AT_ONCE])
    except Exception as error:  # damaged or missing files
        raise UserError(f"{name} cannot be read: {_first_line(error)}.") from None


def _keys(name: str, info: Any, languages: tuple[str, str] | None) -> list[Key]:
    """Where source and target are found in a record."""
    texts = sorted(_texts(info.features))
    known = ", ".join(map("/".join, texts))
    asked = languages or info.supervised_keys
    if not asked:
        raise UserError(
            f"{name} does not say which is source and which is target; give "
            f"--data.languages and two of: {known}."
        )
    keys = []
    for language in asked:
        found = [key for key in texts if "/".join(key) == language]
        found = found or [key for key in texts if key[-1] == language]
        if len(found) != 1:
            raise UserError(
                f"{name} has {len(found) or 'no'} texts '{language}'; give "
                f"--data.languages and two of: {known}."
            )
        keys += found
    return keys


def _texts(features: Any, outer: Key = ()) -> Iterator[Key]:
    """Where the features of text are, however deep."""
    for name, feature in features.items():
        if isinstance(feature, tfds.features.Text):
            yield (*outer, name)
        elif isinstance(feature, tfds.features.FeaturesDict):
            yield from _texts(feature, (*outer, name))


def _sentence(record: Any, key: Key, place: str, number: int) -> str:
    for name in key:
        record = record[name]
    if record is None:  # so array_record reads a file that is cut off
        raise UserError(f"{place} {number} is missing; prepare the dataset again.")
    line = record.replace(b"\r\n", b"\n").rstrip(b"\n").replace(b"\n", b" ")
    return decode(line, place, number)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
