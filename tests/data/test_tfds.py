# SPDX-License-Identifier: Apache-2.0
"""Text goes into a TFDS dataset on disk and comes out of it, without TensorFlow."""

import dataclasses
import importlib.util
import json
import shutil
import sys
import tempfile
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import tensorflow_datasets as tfds
from tensorflow_datasets.core.utils import gcs_utils

from kvnmt.data import tfds_source
from kvnmt.data.config import DataConfig
from kvnmt.data.text import Faulty, Parallel, collect
from kvnmt.data.tfds_builder import TextBuilder, prepare
from kvnmt.errors import UserError
from tests.data.helpers import BREAKS, TEXT, read_split

SIDES = ("de", "en")


def read(
    name: str,
    split: str = "train",
    *,
    folder: Path,
    languages: tuple[str, str] | None = None,
    faulty: Faulty = "stop",
) -> Parallel:
    dataset = tfds_source.Dataset(name, split, folder, languages)
    return collect(dataset.blocks(size=4), faulty, f"record of {name} ({split})")


LETTERS = Parallel(list("abcdefghij"), list("ABCDEFGHIJ"))


@pytest.fixture(scope="module")
def letters(tmp_path_factory) -> Path:
    """A folder with a prepared dataset in three files; leave it as it is."""
    folder = tmp_path_factory.mktemp("datasets")
    prepare("letters", {"train": LETTERS}, folder, SIDES, shard=4)
    return folder


def test_a_dataset_of_a_known_name_asks_no_network(tmp_path, monkeypatch):
    """And leaves nothing among temporary files."""
    monkeypatch.setattr(gcs_utils, "gcs_dataset_info_files", pytest.fail)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    prepare("mnist", {"train": LETTERS}, tmp_path, SIDES)
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.fixture
def spoilt(letters, tmp_path) -> Path:
    """A copy of it, to be damaged."""
    return Path(shutil.copytree(letters, tmp_path / "copy"))


class Nested(TextBuilder, skip_registration=True):
    """Deeper features than `Translation`, and no word which side is which."""

    def _info(self) -> tfds.core.DatasetInfo:
        features = {
            "number": np.int64,
            "title": tfds.features.Text(),
            "first": tfds.features.Translation(self.languages),
            "second": {name: tfds.features.Text() for name in ("fr", "title", "again")},
            "third": {"again": tfds.features.Text()},
        }
        return tfds.core.DatasetInfo(
            builder=self, features=tfds.features.FeaturesDict(features)
        )

    def examples(self, text, start):
        for number, pair in super().examples(text, start):
            second = {"fr": pair["en"] * 2, "title": "t", "again": ""}
            record = {"number": 7, "title": "T", "first": pair, "second": second}
            yield number, record | {"third": {"again": ""}}


def nested(folder: Path, text: Parallel) -> None:
    builder = Nested("nested", {"train": text}, folder, SIDES)
    builder.download_and_prepare(download_dir=folder / "downloads")


class WithoutTensorFlow:
    """A finder of modules that finds TensorFlow nowhere."""

    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, *arguments):
        hidden = name.partition(".")[0] == "tensorflow"
        return None if hidden else self.finder.find_spec(name, *arguments)


def test_tensorflow_is_not_needed(tmp_path, monkeypatch):
    finders = [WithoutTensorFlow(finder) for finder in sys.meta_path]
    monkeypatch.setattr(sys, "meta_path", finders)
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    prepare("letters", {"train": LETTERS}, tmp_path)
    assert read("letters", folder=tmp_path) == LETTERS


def test_every_line_comes_back_as_it_was(tmp_path):
    ends = Parallel(["a\r", "", " b\t", *BREAKS], ["A", "", " ", *(BREAKS[::-1])])
    splits = {"train": TEXT, "test": ends}
    made = prepare("nasty", splits, tmp_path, SIDES)
    assert made == tmp_path / "nasty" / "1.0.0"
    assert [path.name for path in tmp_path.iterdir()] == ["nasty"]
    assert read("nasty", folder=tmp_path) == TEXT
    assert read("nasty", "test", folder=tmp_path, faulty="keep") == ends


@pytest.mark.parametrize("size", [1, 3, 10, 11])
def test_several_files_keep_the_order(letters, size):
    assert len(list(letters.glob("letters/1.0.0/*array_record*"))) == 3
    blocks = list(tfds_source.Dataset("letters", folder=letters).blocks(size))
    assert [block.first for block in blocks] == list(range(1, 11, size))
    assert collect(blocks, "stop", "record") == LETTERS


def test_tfds_itself_reads_it(letters):
    stored = tfds.data_source("letters", split="train", data_dir=letters)
    pairs = [(pair["de"].decode(), pair["en"].decode()) for pair in stored]
    assert pairs == list(zip(LETTERS.source, LETTERS.target))


def test_a_slice_is_a_split(letters):
    text = read("letters", "train[:20%]+train[9:]", folder=letters)
    assert text.source == ["a", "b", "j"]


def test_the_direction_can_be_turned(letters):
    text = read("letters", folder=letters, languages=("en", "de"))
    assert text == (LETTERS.target, LETTERS.source, 0, 0)
    config = DataConfig(tfds="letters", tfds_folder=letters, languages=("en", "de"))
    assert read_split(config, "train") == text


def test_text_is_found_however_deep(tmp_path):
    nested(tmp_path, LETTERS)
    text = read("nested", folder=tmp_path, languages=("de", "first/en"))
    assert text == LETTERS
    text = read("nested", folder=tmp_path, languages=("second/title", "fr"))
    assert text.source == ["t"] * 10
    assert text.target == [letter * 2 for letter in LETTERS.target]
    known = "two of: first/de, first/en, second/again, second/fr, "
    known += "second/title, third/again, title."
    with pytest.raises(UserError, match=f"does not say which is source .* {known}"):
        read("nested", folder=tmp_path)
    for language in ("it", "number", "second"):
        with pytest.raises(UserError, match=f"no texts '{language}'; .* {known}"):
            read("nested", folder=tmp_path, languages=("de", language))
    text = read("nested", folder=tmp_path, languages=("title", "de"))
    assert text.source == ["T"] * 10
    with pytest.raises(UserError, match="has 2 texts 'again'"):
        read("nested", folder=tmp_path, languages=("again", "de"))


def test_line_feeds_inside_a_sentence_become_spaces(tmp_path):
    text = Parallel(["a\nb\r\nc\n", "\n"], ["A\n\nB\r", "B"])
    prepare("feeds", {"train": text}, tmp_path)
    prepared = read("feeds", folder=tmp_path, faulty="keep")
    assert prepared == (["a b c", ""], ["A  B\r", "B"], 0, 0)


def test_an_empty_side_is_told_or_skipped(tmp_path):
    text = Parallel(["a", "b", "c"], ["A", " ", "C"])
    prepare("holes", {"train": text, "validation": text}, tmp_path, SIDES)
    config = DataConfig(tfds="holes", tfds_folder=tmp_path)
    with pytest.raises(UserError, match=r"^holes \(train\), en of record 2 is empty;"):
        read_split(config, "train")
    config = dataclasses.replace(config, faulty="skip")
    assert read_split(config, "valid") == (["a", "c"], ["A", "C"], 1, 0)
    config = dataclasses.replace(config, tfds_valid="validation[1:2]")
    with pytest.raises(UserError, match="no record of holes .* has both sides"):
        read_split(config, "valid")


def test_a_sentence_that_is_not_utf8_is_told(tmp_path):
    prepare("latin", {"train": Parallel([b"a"], [b"A\xff"])}, tmp_path, SIDES)
    with pytest.raises(UserError, match=r"latin \(train\), en of record 1: byte 2 "):
        read("latin", folder=tmp_path)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("letters", "test"), ("no split 'test'", "it has train.")),
        (("letters", "train["), ("no split 'train['", "it has train.")),
        (("letters", "train[10:]"), ("no split 'train[10:]'",)),
        (("letters", "all[:50%]"), ("no split 'all[:50%]'", "it has train.")),
        (("wmt17_translate/de-en",), ("not prepared in", "array_record", "prepare-tf")),
        (("letters:2.0.0",), ("letters:2.0.0 is not prepared",)),
        (("no name",), ("no name cannot be read",)),
    ],
)
def test_what_is_not_there_is_told(letters, arguments, parts):
    with pytest.raises(UserError) as error:
        read(*arguments, folder=letters)
    for part in parts:
        assert part in str(error.value)
    assert "\n" not in str(error.value)


def test_a_slice_that_ends_before_it_begins_has_no_record(tmp_path):
    prepare("whole", {"train": LETTERS}, tmp_path, SIDES)
    with pytest.raises(UserError, match=r"no record in its split 'train\[9:4\]'"):
        read("whole", "train[9:4]", folder=tmp_path)


def test_how_to_prepare_is_a_program(tmp_path, monkeypatch):
    with pytest.raises(UserError) as error:
        read("toy_words/x", folder=tmp_path)
    sentence = str(error.value)
    has_tensorflow = importlib.util.find_spec("tensorflow") is not None
    assert ("pip install tensorflow" in sentence) != has_tensorflow
    monkeypatch.setattr(tfds, "builder", builder := Mock())
    exec(sentence.split('python -c "')[1].split('"')[0], {})
    builder.assert_called_once_with(
        "toy_words/x", data_dir=str(tmp_path), file_format="array_record"
    )
    builder.return_value.download_and_prepare.assert_called_once_with()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


DAMAGE = {
    "dataset_info.json": (Path.unlink, "cannot be read"),
    "features.json": (lambda path: path.write_text("{"), "cannot be read"),
    "*-00001-of-00003": (Path.unlink, "cannot be read"),
    "*-00002-of-00003": (cut, "of record 9 is missing; prepare the dataset again"),
}


@pytest.mark.parametrize("which", DAMAGE)
def test_damage_is_told(spoilt, which):
    damage, part = DAMAGE[which]
    assert read("letters", folder=spoilt) == LETTERS
    (path,) = spoilt.glob(f"letters/1.0.0/{which}")
    damage(path)
    with pytest.raises(UserError, match=part) as error:
        read("letters", folder=spoilt)
    assert "\n" not in str(error.value)


def test_the_usual_format_of_tfds_is_told(spoilt):
    path = spoilt / "letters" / "1.0.0" / "dataset_info.json"
    info = json.loads(path.read_text())
    path.write_text(json.dumps(info | {"fileFormat": "tfrecord"}))
    with pytest.raises(UserError, match="as tfrecord, .*file_format='array_record'"):
        read("letters", folder=spoilt)


@pytest.mark.parametrize(
    ("name", "languages", "part"),
    [
        ("my-corpus", SIDES, "'my-corpus' cannot name a dataset"),
        ("My", SIDES, "cannot name a dataset"),
        ("a/b", SIDES, "cannot name a dataset"),
        ("", SIDES, "cannot name a dataset"),
        ("mine", ("de", "de"), "two different words"),
        ("mine", ("de", "x/y"), "two different words"),
        ("mine", ("", "de"), "two different words"),
    ],
)
def test_names_that_tfds_does_not_take_are_refused(tmp_path, name, languages, part):
    with pytest.raises(UserError, match=part):
        prepare(name, {"train": LETTERS}, tmp_path, languages)
    assert not list(tmp_path.iterdir())


def test_what_is_prepared_is_left_alone(letters, tmp_path):
    with pytest.raises(UserError, match="letters/1.0.0' exists already"):
        prepare("letters", {"train": TEXT}, letters, SIDES)
    assert read("letters", folder=letters) == LETTERS
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="file/mine/1.0.0' cannot be written: "):
        prepare("mine", {"train": TEXT}, tmp_path / "file")


def test_records_that_cannot_be_written_are_one_sentence(tmp_path, monkeypatch):
    def full(*arguments, **options):
        raise RuntimeError("write() failed: No space left on device; writing x\nat y")

    monkeypatch.setattr(TextBuilder, "download_and_prepare", full)
    with pytest.raises(UserError, match="cannot be written: .* device; writing x.$"):
        prepare("mine", {"train": TEXT}, tmp_path)
