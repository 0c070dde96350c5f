# SPDX-License-Identifier: Apache-2.0
"""Entries that are damaged or half written are told, and none is used."""

import dataclasses
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from kvnmt import files
from kvnmt.data import cache, corpus
from kvnmt.data.corpus import prepare_train
from kvnmt.data.vocabularies import load_vocabularies
from kvnmt.errors import UserError
from tests.data.entries import entries, plain


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
