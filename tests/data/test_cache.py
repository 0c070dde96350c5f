# SPDX-License-Identifier: Apache-2.0
"""Prepared corpora on disk: found by content, never used when damaged or half."""

import contextlib
import dataclasses
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from kvnmt import files
from kvnmt.data import cache, corpus, prepare
from kvnmt.data.config import DataConfig
from kvnmt.data.corpus import Prepared, prepare_train
from kvnmt.data.vocabularies import Vocabularies, load_vocabularies
from kvnmt.data.vocabulary import keep_words
from kvnmt.errors import UserError
from kvnmt.files import read_manifest
from tests.helpers import toy_data

CHANGES = {
    "min_count": 2,
    "vocabulary_size": 6,
    "vocabulary": "characters",
    "max_length": 3,
    "max_ratio": 1.5,
    "faulty": "skip",
}


@pytest.fixture(name="config")
def _config(tmp_path):
    return toy_data(tmp_path / "text", cache=tmp_path / "cache")


def entries(config) -> list[Path]:
    return sorted(path for path in config.cache.iterdir() if path.is_dir())


def plain(found: Prepared) -> list[list[int]]:
    return [
        ids.tolist()
        for side in (found.train.source, found.train.target)
        for ids in side
    ]


@pytest.fixture(name="prepared")
def _prepared(monkeypatch) -> list[None]:
    """One entry for every time that text is really prepared."""
    told, original = [], prepare.encode_text

    def encode_text(*arguments):
        told.append(None)
        return original(*arguments)

    monkeypatch.setattr(prepare, "encode_text", encode_text)
    return told


def test_the_cache_holds_what_memory_would(config, prepared):
    memory = prepare_train(dataclasses.replace(config, cache=None))
    for times in (2, 2):
        found = prepare_train(config)
        assert len(prepared) == times
        assert plain(found) == plain(memory)
        assert found.vocabularies == memory.vocabularies
        assert found.dropped == memory.dropped
        assert found.folder == entries(config)[0]
    assert isinstance(found.train.source.ids, np.memmap)
    assert found.train.source.ids.dtype == np.uint16
    assert found.train.digest() == memory.train.digest()


def test_a_corpus_is_sent_as_its_folder(config):
    found = prepare_train(config).train
    sent = pickle.dumps(found)
    assert len(sent) < 500
    assert [i.tolist() for i in pickle.loads(sent).source] == [
        i.tolist() for i in found.source
    ]


@pytest.mark.parametrize(("field", "value"), CHANGES.items(), ids=CHANGES)
def test_other_settings_are_another_entry(config, prepared, field, value):
    prepare_train(config)
    other = prepare_train(dataclasses.replace(config, **{field: value}))
    assert len(prepared) == len(entries(config)) == 2
    memory = dataclasses.replace(config, **{field: value}, cache=None)
    assert plain(other) == plain(prepare_train(memory))


def test_settings_that_change_no_id_are_the_same_entry(config, prepared):
    prepare_train(config)
    prepare_train(dataclasses.replace(config, workers=2, valid_source=None))
    moved = config.source.rename(config.source.with_suffix(".moved"))
    prepare_train(dataclasses.replace(config, source=moved))
    assert len(prepared) == 1


# Of entries that exist already on people's disks.
KEYS = {
    "23c1bdafb7ed4c183e5c4463": (False, {"source": Path("a"), "target": Path("b")}),
    "b25c885bad6f5c33bd94de27": (True, {"source": Path("a"), "target": Path("b")}),
    "c571f87c383df0b587bf772e": (
        False,
        {
            "tfds": "opus/de-en",
            "tfds_train": "train[1%:]",
            "languages": ("de", "en"),
            "vocabulary": "bpe",
            "joint": True,
            "min_count": 3,
            "vocabulary_size": None,
            "subwords": 500,
            "subword_sentences": 7,
            "max_length": 30,
            "max_ratio": 2.5,
            "faulty": "skip",
            "workers": 3,
            "cache": Path("c"),
        },
    ),
}


@pytest.mark.parametrize("key", KEYS)
def test_entries_keep_their_names(key):
    trained, choices = KEYS[key]
    words = Vocabularies(
        keep_words({"a": 3, "b": 2}, min_count=1, size=9),
        keep_words({"c": 3}, min_count=1, size=9),
    )
    digests = ["1" * 64, "2" * 64]
    found = cache.key_of(DataConfig(**choices), digests, words if trained else None)
    assert found == key


def test_a_new_setting_changes_the_name():
    @dataclasses.dataclass(frozen=True)
    class NewConfig(DataConfig):
        new: int = 0

    keys = {cache.key_of(NewConfig(new=n), [], None) for n in (0, 1, 1)}
    assert len(keys) == 2


def test_other_text_is_another_entry(config, prepared):
    before = plain(prepare_train(config))
    text = config.source.read_text()
    config.source.write_text(text.replace("a", "b", 1))
    assert plain(prepare_train(config)) != before
    config.source.write_text(text)
    assert plain(prepare_train(config)) == before
    assert len(prepared) == 2


def test_vocabularies_of_a_run_find_their_entry(config, prepared):
    found = prepare_train(config)
    again = prepare_train(config, found.vocabularies)
    assert (len(prepared), again.folder) == (1, found.folder)
    other = prepare_train(dataclasses.replace(config, vocabulary_size=5)).vocabularies
    with_other = prepare_train(config, other)
    assert len(prepared) == 3
    assert with_other.vocabularies == other
    assert prepare_train(config, other).folder == with_other.folder
    assert len(prepared) == 3


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def test_a_damaged_entry_of_a_runs_vocabularies_is_told(config, prepared, capsys):
    """Who resumes brings the vocabularies: the text is prepared again, once."""
    found = prepare_train(config)
    before, folder = plain(found), found.folder
    _flip(entries(config)[0] / "source.ids")
    console = Console(stderr=True)
    again = prepare_train(config, found.vocabularies, console)
    assert plain(again) == before and "is damaged" in capsys.readouterr().err
    assert folder != again.folder and len(entries(config)) == 1
    assert prepare_train(config, found.vocabularies).folder == again.folder
    assert len(prepared) == 2


FILES = ("source.ids", "target.ids", "source.lengths.npy", "target.words")


@pytest.mark.parametrize("harm", [_flip, _cut, Path.unlink])
@pytest.mark.parametrize("name", [*FILES, "manifest.json"])
def test_a_damaged_entry_is_told_and_made_anew(config, prepared, capsys, name, harm):
    before = plain(prepare_train(config))
    path = entries(config)[0] / name
    harm(path)
    console = Console(stderr=True)
    assert plain(prepare_train(config, console=console)) == before
    assert len(prepared) == 2
    said = capsys.readouterr().err
    assert "preparing anew, since" in said and "is damaged" in said
    assert name in said or "manifest" in said
    prepare_train(config)
    assert len(prepared) == 2


def test_a_full_disk_leaves_nothing(config, kvnmt):
    """The system itself refuses to write more."""
    code = "import sys; from kvnmt import cli; cli.main(sys.argv[1:])"
    limit = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
    limit += "resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300)); "
    flags = [f"--data.{side}={getattr(config, side)}" for side in ("source", "target")]
    given = ["prepare", *flags, "--data.cache", str(config.cache)]

    call = [sys.executable, "-c", limit + code, *given]
    done = subprocess.run(call, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert "cannot keep what is prepared: File too large" in done.stderr
    assert "free space or choose another --data.cache" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert entries(config) == []
    said = kvnmt(*given)
    assert said.status == 0 and b"training pairs" in said.out
    assert len(entries(config)) == 1


def test_what_a_killed_process_left_is_replaced(config):
    prepare_train(config)
    entry = entries(config)[0]
    part = entry.rename(entry.with_suffix(".part"))
    (part / "source.ids").write_bytes(b"half")
    prepare_train(config)
    assert entries(config) == [entry]
    left = entry.with_suffix(".1.part")
    left.mkdir()
    shutil.rmtree(entry)
    prepare_train(config)
    assert entries(config) == [entry]


def test_two_that_no_lock_keeps_apart_make_one_entry(config):
    """The one that comes later uses what is there, and takes nothing from it."""
    prepare_train(config)
    (entry,) = entries(config)
    before = files.digest_of(entry / "source.ids")
    cache.write(entry, load_vocabularies(entry), iter(()))
    assert entries(config) == [entry]
    assert files.digest_of(entry / "source.ids") == before


def test_faults_and_empty_corpora_leave_nothing(config):
    config.target.write_text("\n" * 60)
    with pytest.raises(UserError, match="target.txt, line 1 is empty"):
        prepare_train(config)
    with pytest.raises(UserError, match="has both sides"):
        prepare_train(dataclasses.replace(config, faulty="skip"))
    assert entries(config) == []


def test_a_folder_that_cannot_be_written_is_told(config, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot keep what is prepared"):
        prepare_train(dataclasses.replace(config, cache=tmp_path / "file"))


def test_the_command_tells_what_it_made(config, kvnmt):
    flags = [f"--data.{side}={getattr(config, side)}" for side in ("source", "target")]
    cached = (*flags, "--data.cache", config.cache)
    said = kvnmt("prepare", *cached, "--data.max-length", 4)
    told = said.out.decode()
    assert said.status == 0
    for part in ("training pairs", "longer than 4 tokens", "positions hold a token"):
        assert part in told
    assert str(entries(config)[0])[-20:] in told.replace("\n", "")
    assert read_manifest(entries(config)[0])["dropped"]["too_long"] > 0
    assert "at least 1" in kvnmt("prepare", *cached, "--data.max-length", 0).err
    assert "with --data.cache" in kvnmt("prepare", *flags).err


def test_a_whole_entry_is_read_where_nothing_can_be_written(config, monkeypatch):
    def locked(*arguments, **options):
        raise OSError(30, "Read-only file system")

    expected = plain(prepare_train(config))
    other = Vocabularies(*(keep_words({"a": 1}) for _ in range(2)))
    taken = plain(prepare_train(config, other))
    monkeypatch.setattr(files, "locked", locked)
    assert plain(prepare_train(config)) == expected
    assert plain(prepare_train(config, other)) == taken != expected
    shutil.rmtree(prepare_train(config).folder or "")
    assert plain(prepare_train(config, other)) == taken
    other = dataclasses.replace(config, max_length=3)
    with pytest.raises(UserError, match="cannot keep what is prepared: Read-only"):
        prepare_train(other)


def test_who_waits_for_another_process_says_so(config, capfd, monkeypatch):
    folder, waits = config.cache, []
    locked = files.locked

    def watched(path, *, wait=True, **how):
        waits.append(wait)
        if wait:
            other.close()
        return locked(path, wait=wait, **how)

    with contextlib.ExitStack() as other:
        text = [files.digest_of(path) for path in (config.source, config.target)]
        key = cache.key_of(config, text, None)
        folder.mkdir(parents=True)
        other.enter_context(locked(folder / f"{key}.lock"))
        monkeypatch.setattr(files, "locked", watched)
        assert prepare_train(config).folder == folder / key
    assert waits == [False, True]
    assert "prepares the same text; waiting" in capfd.readouterr().err


def test_who_reads_waits_for_nobody_who_reads(config, capfd):
    expected = plain(prepare_train(config))
    (path,) = config.cache.glob("*.lock")
    capfd.readouterr()
    with files.locked(path, shared=True):
        assert plain(prepare_train(config)) == expected
    assert "waiting" not in capfd.readouterr().err


def test_text_that_vanishes_is_told(config, monkeypatch):
    def gone(path):
        raise FileNotFoundError(2, "No such file or directory", str(path))

    monkeypatch.setattr(corpus, "digest_of", gone)
    with pytest.raises(UserError, match="source.txt' can no longer be read: No such"):
        prepare_train(config)


def test_damage_that_cannot_be_removed_is_one_sentence(config, monkeypatch):
    def rmtree(path):
        raise OSError(30, "Read-only file system")

    place = prepare_train(config).folder
    assert place
    with (place / "source.ids").open("ab") as file:
        file.write(b"x")
    monkeypatch.setattr(cache.shutil, "rmtree", rmtree)
    with pytest.raises(UserError, match="cannot keep what is prepared: Read-only"):
        prepare_train(config)
