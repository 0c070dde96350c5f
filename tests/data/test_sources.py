# SPDX-License-Identifier: Apache-2.0
"""The same text gives the same pairs, wherever it comes from; one source at a time."""

import dataclasses
import gzip
import itertools
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvnmt import cli
from kvnmt.cli import train
from kvnmt.data import sources
from kvnmt.data.config import DataConfig
from kvnmt.data.corpus import load_corpora
from kvnmt.data.lines import GZIP
from kvnmt.data.text import Faulty, Parallel, read_lines, read_parallel
from kvnmt.errors import OptionError, UserError
from tests.data.helpers import TEXT, as_files, first_batches, joined, read_split, write
from tests.helpers import toy_data


def as_tsv(folder: Path, train: Parallel, valid: Parallel, pack=bytes) -> DataConfig:
    """TSV files, packed by a function of bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = {}
    for name, text in (("pairs", train), ("valid_pairs", valid)):
        lines = [f"{s}\t{t}" for s, t in zip(text.source, text.target)]
        paths[name] = write(folder / f"{name}.tsv", pack(joined(lines)))
    return DataConfig(**paths)


KINDS = {
    "files": as_files,
    "gzipped files": lambda *texts: as_files(*texts, pack=gzip.compress),
    "TSV": as_tsv,
    "gzipped TSV": lambda *texts: as_tsv(*texts, pack=gzip.compress),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_gives_the_same_pairs(tmp_path, kind):
    config = KINDS[kind](tmp_path, TEXT, Parallel(["v"], ["V"]))
    assert read_split(config, "train") == TEXT
    assert read_split(config, "valid") == (["v"], ["V"], 0, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_gives_the_same_batches(tmp_path, kind):
    plain = toy_data(tmp_path / "plain")
    texts = [read_split(plain, split) for split in ("train", "valid")]
    batches = first_batches(KINDS[kind](tmp_path / "other", *texts))
    for ours, theirs in zip(batches, first_batches(plain), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@given(st.binary())
def test_no_text_is_taken_for_gzip(tail):
    with pytest.raises(UnicodeDecodeError):
        (GZIP + tail).decode()


@pytest.mark.parametrize("name", ["text.gz", "text.txt"])
def test_gzip_is_known_by_its_bytes(tmp_path, name):
    path = tmp_path / name
    for data, lines in {
        gzip.compress(b"a\r\nb\n"): ["a", "b"],
        gzip.compress(b"a\nb") + gzip.compress(b"c\n"): ["a", "bc"],
        gzip.compress(b""): [],
        b"a\nb\n": ["a", "b"],
        b"": [],
        b"\x1f\n": ["\x1f"],
    }.items():
        assert read_lines(write(path, data)) == lines


WHOLE = gzip.compress(b"a b c d e f\n" * 50, mtime=0)


@pytest.mark.parametrize(
    "data",
    [
        *(WHOLE[:size] for size in (2, 9, 10, 15, len(WHOLE) - 9, len(WHOLE) - 1)),
        WHOLE[:12] + b"\xff\xff\xff" + WHOLE[15:],
        WHOLE[:-8] + b"abcd" + WHOLE[-4:],
        WHOLE + b"more",
        b"\x1f\x8b no gzip at all",
    ],
)
def test_damaged_gzip_is_told(tmp_path, data):
    path = write(tmp_path / "text.gz", data)
    with pytest.raises(UserError) as error:
        read_lines(path)
    sentence = str(error.value)
    assert sentence.startswith(f"'{path}' cannot be decompressed: ")
    assert sentence.endswith("gzip -t.")
    assert "\n" not in sentence


def test_a_byte_in_gzip_is_named_by_its_line(tmp_path):
    path = write(tmp_path / "text.gz", gzip.compress(b"a\nb\xff\n"))
    with pytest.raises(UserError, match=f"{path}, line 2: byte 2 "):
        read_lines(path)


def read_tsv(path: Path, faulty: Faulty = "stop") -> Parallel:
    return read_split(DataConfig(pairs=path, faulty=faulty))


def test_tsv_is_two_columns_without_quotes(tmp_path):
    path = write(tmp_path / "text.tsv", b'"a\tb"\r\nc \t d\n')
    assert read_tsv(path) == (['"a', "c "], ['b"', " d"], 0, 0)


@pytest.mark.parametrize(
    ("line", "columns"), [("a b", "1 column;"), ("a\tb\tc", "3 "), ("a\tb\t", "3 ")]
)
@pytest.mark.parametrize("faulty", ["stop", "keep"])
def test_other_columns_are_told_by_their_line(tmp_path, line, columns, faulty):
    path = write(tmp_path / "text.tsv", joined(["a\tb", "c\td", line, "e"]))
    with pytest.raises(UserError) as error:
        read_tsv(path, faulty=faulty)
    assert f"{path}, line 3 has {columns}" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("line", "side"),
    [("\tB", "source"), ("b\t \r", "target"), ("", "source"), ("\t", "source")],
)
def test_an_empty_side_of_tsv_is_told_or_skipped(tmp_path, line, side):
    path = write(tmp_path / "text.tsv", joined(["a\tA", line, "c\tC", "\td"]))
    with pytest.raises(UserError, match=f"{path}, the {side} of line 2 is empty;"):
        read_tsv(path)
    assert read_tsv(path, faulty="skip") == (["a", "c"], ["A", "C"], 2, 0)
    assert len(read_tsv(path, faulty="keep").source) == 4


def test_tsv_without_a_pair_is_told(tmp_path):
    path = write(tmp_path / "text.tsv", b"")
    with pytest.raises(UserError, match=f"'{path}' is empty"):
        read_tsv(path)
    write(path, b"\tA\nb\t\n\n")
    with pytest.raises(UserError, match=f"no line of '{path}' has both sides"):
        read_tsv(path, faulty="skip")


@given(st.lists(st.tuples(st.sampled_from(["", " ", "a"]), st.sampled_from("b \t"))))
def test_skipping_keeps_whole_pairs_in_order(tmp_path_factory, pairs):
    source, target = [s for s, _ in pairs], [t for _, t in pairs]
    whole = [pair for pair in pairs if pair[0].strip() and pair[1].strip()]
    folder = tmp_path_factory.mktemp("text")
    paths = [
        write(folder / str(side), joined(lines))
        for side, lines in enumerate((source, target))
    ]
    if not whole:
        with pytest.raises(UserError):
            read_parallel(*paths, faulty="skip")
        return
    text = read_parallel(*paths, faulty="skip")
    assert list(zip(text.source, text.target)) == whole
    assert text.empty == len(pairs) - len(whole)


OF_KIND = {
    "files": {"valid_target": Path("a")},
    "TSV": {"valid_pairs": Path("b")},
    "TFDS": {"tfds_valid": "test"},
}


@pytest.mark.parametrize("two", [*itertools.combinations(OF_KIND, 2)], ids=" ".join)
def test_two_sources_are_refused(two):
    fields = {name: value for kind in two for name, value in OF_KIND[kind].items()}
    with pytest.raises(OptionError) as error:
        load_corpora(DataConfig(**fields))
    for field in fields:
        assert f"data.{field} " in str(error.value)
        assert f"--data.{field.replace('_', '-')} " in error.value.by_flag
    assert "different sources" in str(error.value)


@pytest.mark.parametrize(
    ("fields", "missing"),
    [
        ({}, "data.source "),
        ({"valid_pairs": Path("nowhere")}, "data.pairs "),
        ({"languages": ("de", "en")}, "data.tfds "),
        ({"tfds_folder": Path("nowhere")}, "data.tfds "),
    ],
)
def test_what_is_missing_is_told_by_its_field(fields, missing):
    with pytest.raises(UserError, match=f"no {missing}is given; name a"):
        load_corpora(DataConfig(**fields))


def test_validation_pairs_are_asked_for(tmp_path):
    pairs = write(tmp_path / "text.tsv", b"a\tA\n")
    with pytest.raises(UserError, match="no data.valid_pairs is given"):
        load_corpora(DataConfig(pairs=pairs))


@pytest.mark.parametrize("kind", KINDS)
def test_pairs_too_long_are_told_with_the_source(tmp_path, kind):
    text = Parallel(["a b c"], ["A"])
    config = KINDS[kind](tmp_path, text, text)
    name = config.source or config.pairs
    with pytest.raises(UserError, match=f"no pair of '{name}' .* 1 longer than 2"):
        load_corpora(dataclasses.replace(config, min_count=1, max_length=2))


def test_every_field_of_a_source_belongs_to_one():
    fields = [
        field
        for source in sources.SOURCES.values()
        for field in {
            *source.required["train"],
            *source.required["valid"],
            *source.options,
        }
    ]
    assert len(fields) == len(set(fields))
    others = {"vocabulary", "min_count", "vocabulary_size", "subwords", "joint"}
    others |= {"trimmed", "subword_sentences", "max_length", "max_ratio", "faulty"}
    others |= {
        "normalization",
        "symbols",
        "character_coverage",
        "links",
        "vocabularies",
        "cache",
        "workers",
        "subword_dropout",
        "segmentations",
        "codes",
        "target_codes",
    }
    assert {f.name for f in dataclasses.fields(DataConfig)} == others | set(fields)


def test_sources_are_flags(monkeypatch):
    commands = []
    monkeypatch.setattr(train.Train, "__call__", lambda self: commands.append(self))
    flags = "--data.tfds x/de-en --data.languages de en --data.tfds-train train[1%:]"
    cli.main(["train", "run", *flags.split()])
    cli.main("train run --data.pairs a.tsv --data.valid-pairs b.tsv".split())
    tfds, tsv = (train.experiment.data for train in commands)
    assert (tfds.tfds, tfds.languages) == ("x/de-en", ("de", "en"))
    assert (tfds.tfds_train, tfds.tfds_valid) == ("train[1%:]", "validation")
    assert (tsv.pairs, tsv.valid_pairs) == (Path("a.tsv"), Path("b.tsv"))


def test_tfds_is_imported_only_where_it_is_read():
    slow = {"tensorflow_datasets", "array_record", "tensorflow"}
    code = f"import kvnmt.cli.main, sys; print({slow} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "set()", done.stderr


def test_another_kind_of_source_takes_the_place_of_what_a_run_has():
    files = DataConfig(source=Path("a"), target=Path("b"), min_count=7)
    tsv = {"pairs": Path("c"), "valid_pairs": Path("d")}
    found = sources.replacing(dataclasses.replace(files, **tsv), files)
    assert found == DataConfig(**tsv, min_count=7)
    assert sources.replacing(files, files) == files
    moved = dataclasses.replace(files, source=Path("e"))
    assert sources.replacing(moved, files) == moved
    linked = dataclasses.replace(files, links=Path("l"))
    found = sources.replacing(dataclasses.replace(linked, **tsv), linked)
    assert found == DataConfig(**tsv, min_count=7)
    # What is refused where it is opened: half of one, and two.
    half = dataclasses.replace(files, valid_pairs=Path("d"))
    assert sources.replacing(half, files) == half
    both = dataclasses.replace(files, source=Path("e"), **tsv)
    assert sources.replacing(both, files) == both
