# SPDX-License-Identifier: Apache-2.0
"""Prepared corpora on disk: found by content, never used when damaged or half."""

import contextlib
import dataclasses
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest

from kvnmt import files
from kvnmt.data import cache
from kvnmt.data.config import DataConfig
from kvnmt.data.corpus import prepare_train
from kvnmt.data.vocabularies import Vocabularies
from kvnmt.data.vocabulary import keep_words
from kvnmt.errors import UserError
from kvnmt.files import read_manifest
from tests.data.entries import entries, plain

CHANGES = {
    "min_count": 2,
    "vocabulary_size": 6,
    "vocabulary": "characters",
    "max_length": 3,
    "max_ratio": 1.5,
    "faulty": "skip",
}


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
