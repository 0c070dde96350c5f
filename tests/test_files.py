# SPDX-License-Identifier: Apache-2.0
"""Files are whole or not there; locks keep others out, where they can."""

import errno
import fcntl
import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from kvnmt.cli.program_cache import keep_programs
from kvnmt.data.config import DataConfig
from kvnmt.data.corpus import prepare_train
from kvnmt.data.outputs import claim, write_lines, write_output
from kvnmt.data.tfds_builder import place_of
from kvnmt.errors import UserError
from kvnmt.files import (
    MANIFEST,
    DamagedError,
    check_files,
    check_once,
    check_path,
    digest,
    digest_of,
    locked,
    make_folder,
    read_manifest,
    write_manifest,
    write_whole,
)
from kvnmt.runs.average import average
from kvnmt.runs.making import check_free
from kvnmt.training.checkpoints.folder import only_writer
from tests.helpers import full

PLAIN = {"about": {"π": 1.5}, "files": {}, "score": float("-inf")}


def test_a_file_is_replaced_whole_or_stays(tmp_path, monkeypatch):
    path, own = tmp_path / "config.json", tmp_path / "config.new"
    own.write_text("of a user's own")
    write_whole(path, "one\n")
    assert own.read_text() == "of a user's own"
    own.unlink()

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(path, "two\n")
    assert path.read_text() == "one\n"
    assert list(tmp_path.iterdir()) == [path]

    def interrupted(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_whole(path, "two\n")
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_asked_for_takes_the_place_of_nothing_else(tmp_path):
    """Beside it may be a file of any name, and its own may be as long as names are."""
    other, path = tmp_path / "hyp.txt.new", tmp_path / "hyp.txt"
    other.write_text("of a user's own")
    long = tmp_path / ("x" * 255)
    for place in (path, long):
        write_output(place, "one\n")
        assert place.read_text() == "one\n"
    assert {*tmp_path.iterdir()} == {other, path, long}
    assert other.read_text() == "of a user's own"


def test_who_reads_a_pipe_sees_no_end_of_it_before_the_work(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    ended = select.poll()
    ended.register(reader, select.POLLHUP)
    claim(pipe, [])
    assert not ended.poll(0)
    os.close(reader)


def test_a_place_that_was_claimed_is_as_it_was(tmp_path):
    path, full = tmp_path / "new", tmp_path / "full"
    full.write_text("text")
    for place in (path, full):
        claim(place, [])
    assert [*tmp_path.iterdir()] == [full] and full.read_text() == "text"
    link = tmp_path / "link"
    link.symlink_to(path)  # which is not there yet
    claim(link, [])
    assert link.is_symlink() and not path.exists()
    (tmp_path / "also").hardlink_to(full)
    for same in (full, tmp_path / "also"):
        with pytest.raises(UserError, match="is read too"):
            claim(full, [None, same])
    with pytest.raises(UserError, match="'.*out.gz' would hold plain text"):
        claim(tmp_path / "out.gz", [])
    with pytest.raises(UserError, match="cannot be written"):
        claim(tmp_path / "nowhere" / "file", [])


def test_a_manifest_comes_back(tmp_path):
    write_manifest(tmp_path, PLAIN)
    assert read_manifest(tmp_path) == PLAIN
    assert list(tmp_path.iterdir()) == [tmp_path / MANIFEST]


def test_any_change_of_a_manifest_is_found(tmp_path):
    write_manifest(tmp_path, PLAIN)
    path = tmp_path / MANIFEST
    content = path.read_bytes()
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1
        for damaged in (changed, content[:place]):
            path.write_bytes(damaged)
            with pytest.raises(DamagedError, match="was changed"):
                read_manifest(tmp_path)
    path.unlink()
    with pytest.raises(DamagedError, match="'manifest.json' is missing"):
        read_manifest(tmp_path)


def test_files_are_compared_with_their_digests(tmp_path):
    (tmp_path / "a").write_text("a")
    digests = {"a": digest_of(tmp_path / "a")}
    check_files(tmp_path, digests)
    with pytest.raises(DamagedError, match="'b' is missing"):
        check_files(tmp_path, digests | {"b": digests["a"]})
    (tmp_path / "a").write_text("b")
    with pytest.raises(DamagedError, match="'a' was changed"):
        check_files(tmp_path, digests)


def test_what_is_no_file_is_damage(tmp_path):
    """Then another checkpoint may do; one that cannot be read for now is none."""
    expected = digest(b"")
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name, what in (
        ("file/x", "is missing"),
        ("loop", "is missing"),
        ("folder", "is no file"),
        ("pipe", "is no file"),
    ):
        with pytest.raises(DamagedError, match=f"'{name}' {what}"):
            check_files(tmp_path, {name: expected})


def test_a_lock_keeps_others_out(tmp_path):
    path = tmp_path / "lock"
    with locked(path) as locks:
        assert locks
        with pytest.raises(BlockingIOError), locked(path, wait=False):
            pass
    with locked(path, wait=False) as locks:
        assert locks


def test_only_one_training_writes(tmp_path):
    told: list[str] = []
    with only_writer(tmp_path, told.append):
        with pytest.raises(UserError, match="another training writes to"):
            with only_writer(tmp_path, told.append):
                pass
    with only_writer(tmp_path, told.append):
        pass
    assert told == []


def test_a_file_system_that_cannot_lock_is_told(tmp_path, monkeypatch):
    def refuse(file: object, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    told: list[str] = []
    with only_writer(tmp_path, told.append):
        pass
    assert len(told) == 1 and "cannot lock" in told[0] and str(tmp_path) in told[0]


def test_a_folder_that_cannot_be_locked_at_all_is_told(tmp_path):
    missing: Path = tmp_path / "nowhere"
    with pytest.raises(UserError, match="cannot be written: No such file"):
        with only_writer(missing, print):
            pass


def test_a_result_is_whole_and_goes_where_a_link_leads(tmp_path, monkeypatch):
    path, link = tmp_path / "page.html", tmp_path / "link"
    link.symlink_to(path)
    write_output(link, "one\n")
    assert link.is_symlink() and path.read_text() == "one\n"
    write_lines(Path("/dev/null"), ["no file that could be replaced"])
    assert not Path("/dev/null").is_file()

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match="page.html' cannot be written: No space"):
        write_output(path, "two\n")
    assert path.read_text() == "one\n"


def test_a_file_that_others_hold_is_written_in_place(tmp_path):
    path, other = tmp_path / "out", tmp_path / "other"
    path.write_text("before")
    path.chmod(0o600)
    write_output(path, "one\n")
    assert path.stat().st_mode & 0o777 == 0o600
    other.hardlink_to(path)
    write_output(path, "two\n")
    assert other.read_text() == path.read_text() == "two\n"
    code = "from pathlib import Path; from kvnmt.data.outputs import write_lines as w;"
    code += "print('first', flush=True); w(Path('/dev/stdout'), ['l']); print('last')"
    with (tmp_path / "log").open("ab") as log:
        subprocess.run([sys.executable, "-c", code], stdout=log, check=True)
    assert (tmp_path / "log").read_text().endswith("last\n")


def test_a_link_that_leads_to_itself_is_told(tmp_path):
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for write in (lambda: write_output(loop, ""), lambda: claim(loop, [tmp_path])):
        with pytest.raises(UserError, match="loop' cannot be written: Too many levels"):
            write()
    with pytest.raises(UserError, match="is read too"):
        claim(loop, [loop])
    check_once([loop, tmp_path])
    with pytest.raises(UserError, match="is named twice"):
        check_once([loop, loop])


def test_an_address_is_no_folder(tmp_path, monkeypatch):
    """It would be one here, of which the machine's disk is all that there is."""
    monkeypatch.chdir(tmp_path)
    for check in (check_path, make_folder):
        for address in ("gs://bucket/run", "s3://bucket"):
            with pytest.raises(UserError, match=f"'{address}' is an address .*gcsfuse"):
                check(Path(address))
    assert list(tmp_path.iterdir()) == []
    for place in ("c:/run", "run:2/x", "a/gs:/x", "gs:bucket", "Run:/x"):
        check_path(Path(place))
        make_folder(Path(place))


@pytest.mark.parametrize(
    "write",
    [
        check_free,
        lambda path: average([], path),
        lambda path: prepare_train(DataConfig(cache=path)),
        lambda path: place_of("name", path, ("a", "b")),
        lambda path: keep_programs("gs://bucket"),
    ],
)
def test_nothing_is_written_to_an_address(write, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="'gs://bucket' is an address"):
        write(Path("gs://bucket"))
    assert list(tmp_path.iterdir()) == []
