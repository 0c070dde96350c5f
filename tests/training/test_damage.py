# SPDX-License-Identifier: Apache-2.0
"""Damaged and half-written checkpoints are found, told, and put aside or removed."""

import asyncio
import errno
import gc
import os
import shutil
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from orbax.checkpoint import future as futures

from kvnmt.errors import UserError
from kvnmt.files import MANIFEST, DamagedError
from kvnmt.training.checkpoints import manifest as manifests
from kvnmt.training.checkpoints.folder import CheckpointFolder, Keep
from kvnmt.training.checkpoints.writer import Checkpoints
from tests.helpers import full
from tests.training.saving import ABOUT, files, save_at, shorten, simple, small


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [flip, shorten, Path.unlink])
def test_any_damage_to_any_file_is_found(tmp_path, damage: Callable[[Path], None]):
    """File by file: it is named, and a reader that reads it uses the one before."""
    save_at(tmp_path / "checkpoints", 3)
    newest = tmp_path / "checkpoints" / "4"
    save_at(tmp_path / "checkpoints", 4)
    whole = {name: (newest / name).read_bytes() for name in files(newest)}
    assert len(whole) > 10
    for name in whole:
        if (newest / name).stat().st_size == 0 and damage is not Path.unlink:
            continue  # nothing in it to flip
        damage(newest / name)
        told: list[str] = []
        with Checkpoints(
            tmp_path / "checkpoints", read_only=True, tell=told.append
        ) as checkpoints:
            assert checkpoints.folder.steps()[-1] == 4
            if name.startswith("rest/"):  # what a training goes on from
                assert checkpoints.find("last").step == 4 and not told
                with pytest.raises(DamagedError, match=f"'{name}'"):
                    CheckpointFolder(newest.parent, True, print).check(
                        manifests.read(newest)
                    )
            else:
                assert checkpoints.find("last").step == 3
                assert len(told) == 1 and f"'{name}'" in told[0], told
                assert checkpoints.find("best").step == 3
        (newest / name).write_bytes(whole[name])
    with Checkpoints(tmp_path / "checkpoints", read_only=True) as checkpoints:
        assert checkpoints.find("last").step == 4


def test_a_damaged_checkpoint_is_set_aside_by_who_may_write(tmp_path):
    save_at(tmp_path / "checkpoints", 3, 4)
    shorten(tmp_path / "checkpoints" / "4" / "params" / "manifest.ocdbt")
    told: list[str] = []
    with Checkpoints(tmp_path / "checkpoints", tell=told.append) as checkpoints:
        assert checkpoints.find("last").step == 3
        assert checkpoints.folder.steps() == [3]
    assert (tmp_path / "damaged" / "4").is_dir()
    assert "'params/manifest.ocdbt' was changed" in told[0] and "damaged/4" in told[0]
    save_at(tmp_path / "checkpoints", 4)  # its place is free
    with Checkpoints(tmp_path / "checkpoints") as checkpoints:
        assert checkpoints.find("last").step == 4


def test_a_damaged_checkpoint_that_stays_gives_way(tmp_path, monkeypatch):
    """As in a folder that is a mount, or a link to another disk."""
    rename = Path.rename

    def within(path: Path, target: Path) -> Path:
        if target.parent.name == "damaged":
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        return rename(path, target)

    save_at(tmp_path / "checkpoints", 3, 4)
    shorten(tmp_path / "checkpoints" / "4" / "params" / "manifest.ocdbt")
    monkeypatch.setattr(Path, "rename", within)
    with Checkpoints(tmp_path / "checkpoints") as checkpoints:
        assert checkpoints.find("last").step == 3
        assert checkpoints.folder.steps() == [3, 4]
    for _ in range(2):  # a whole one would give way, too
        save_at(tmp_path / "checkpoints", 4)
        with Checkpoints(tmp_path / "checkpoints") as checkpoints:
            assert checkpoints.find("last").step == 4
            assert len(list(checkpoints.folder.path.iterdir())) == 2


def test_a_damaged_checkpoint_that_stays_displaces_no_other(tmp_path, monkeypatch):
    """Though it is newer, and had the best score."""
    save_at(tmp_path / "checkpoints", 1, 9, made=small)
    shorten(tmp_path / "checkpoints" / "9" / "params" / "manifest.ocdbt")
    monkeypatch.setattr("kvnmt.training.checkpoints.folder.DAMAGED", "no/folder")
    with Checkpoints(tmp_path / "checkpoints", keep=Keep(1)) as checkpoints:
        assert checkpoints.find("last").step == 1
        for step in (2, 3):
            state = small(1).replace(step=jnp.int32(step))
            checkpoints.save(state, {}, ABOUT)
            checkpoints.rate(step, step / 10, {})
        assert checkpoints.folder.steps() == [3, 9]


def test_a_reader_needs_the_parameters_alone(tmp_path):
    """Somebody may share a run without what only a training needs."""
    save_at(tmp_path, 3)
    shutil.rmtree(tmp_path / "3" / "rest")
    with Checkpoints(tmp_path, read_only=True) as checkpoints:
        assert checkpoints.find("best").step == 3
        like = jax.eval_shape(lambda: simple(3).params)
        read = checkpoints.restore_params(like, 3)
    jax.tree.map(np.testing.assert_array_equal, read, simple(3).params)


def test_what_a_kill_left_is_cleared(tmp_path):
    save_at(tmp_path, 3, 4, made=small)
    (tmp_path / "4").rename(tmp_path / "4.unfinished")
    (tmp_path / "5.unfinished.tmp" / "params").mkdir(parents=True)
    with Checkpoints(tmp_path, read_only=True) as checkpoints:
        assert checkpoints.folder.steps() == [3]
    assert (tmp_path / "5.unfinished.tmp").exists()
    with Checkpoints(tmp_path):
        assert [path.name for path in tmp_path.iterdir()] == ["3"]


def test_a_checkpoint_that_cannot_be_written_is_told(tmp_path, monkeypatch):
    save_at(tmp_path, 3)

    monkeypatch.setattr(manifests, "write", full)
    with pytest.raises(UserError, match="step 4 .* No space left on device; .*resume"):
        save_at(tmp_path, 4, rate=False)
    assert not (tmp_path / "4").exists()  # no name without a manifest
    monkeypatch.undo()
    with Checkpoints(tmp_path) as checkpoints:
        assert checkpoints.find("last").step == 3
    save_at(tmp_path, 4)
    with Checkpoints(tmp_path) as checkpoints:
        assert checkpoints.find("last").step == 4


def test_what_fails_twice_is_told_once(tmp_path, monkeypatch):
    """Arrays and what orbax notes of them fail one after the other on a full disk."""
    save_at(tmp_path, 3)
    with monkeypatch.context() as patch:
        patch.setattr(ocp.AsyncCheckpointer, "wait_until_finished", full)
        with pytest.raises(UserError, match="step 4 .* No space left on device"):
            save_at(tmp_path, 4, rate=False)
    with Checkpoints(tmp_path) as checkpoints:
        assert checkpoints.folder.steps() == [3]


class Part(futures.Future):
    """A part of a checkpoint that fails, or is written once somebody waits for it."""

    def __init__(self, write: Callable[[], None] | None):
        self.write, self.waited_for = write, threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        self.waited_for.wait(timeout=1)  # nobody waits: written late all the same
        if self.write:
            self.write()

    def result(self, timeout: float | None = None) -> None:
        if self.write is None:
            raise OSError(28, "No space left on device")
        self.waited_for.set()
        self.thread.join(timeout)

    def cancel(self) -> None:
        pass


def test_nothing_is_left_of_a_checkpoint_that_fails_while_parts_are_written(
    tmp_path, monkeypatch
):
    save_at(tmp_path, 3)
    parts: list[Part] = []

    async def save_part(self, directory: Path, args: object) -> list[futures.Future]:
        late = Path(str(directory)) / "late"

        def write() -> None:
            late.mkdir(parents=True)
            (late / "array").write_bytes(b"0")

        parts.append(Part(write if parts else None))  # the first of two fails
        return [parts[-1]]

    monkeypatch.setattr(ocp.PyTreeCheckpointHandler, "async_save", save_part)
    with pytest.raises(UserError, match="step 4 .* No space left on device; .*resume"):
        save_at(tmp_path, 4, rate=False)
    for part in parts:
        part.thread.join()
    assert len(parts) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["3"]


def test_arrays_written_after_one_has_failed_say_nothing(tmp_path, monkeypatch, capfd):
    """They end in the thread that awaits them, whose loop is open until then."""
    ended = threading.Event()

    async def writes() -> None:
        loop = asyncio.get_running_loop()
        late = loop.create_future()

        async def fail() -> None:
            raise OSError(28, "No space left on device")

        async def wait() -> None:
            await late
            raise OSError(28, "No space left on device")

        def end() -> None:
            time.sleep(0.1)  # as long as a loop needs to close, were it not to wait
            try:
                loop.call_soon_threadsafe(late.set_result, None)
                ended.set()
            except RuntimeError:  # it was closed
                traceback.print_exc()

        threading.Thread(target=end).start()
        await asyncio.gather(fail(), wait())

    async def save_part(self, directory: Path, args: object) -> list[futures.Future]:
        return [futures.CommitFutureAwaitingContractedSignals(writes())]

    monkeypatch.setattr(ocp.PyTreeCheckpointHandler, "async_save", save_part)
    with pytest.raises(UserError, match="step 4 .* No space left on device; .*resume"):
        save_at(tmp_path, 4, rate=False)
    gc.collect()  # what nobody looked at is told when it goes
    assert ended.is_set() and capfd.readouterr().err == ""


def test_what_training_removes_meanwhile_is_not_called_damaged(tmp_path, monkeypatch):
    save_at(tmp_path, 1, 2, 3)
    check, gone = manifests.check, iter(["3"])

    def removed(folder: Path, *others: Any) -> None:
        if folder.name == next(gone, ""):
            shutil.rmtree(folder)
        check(folder, *others)

    monkeypatch.setattr(manifests, "check", removed)
    told: list[str] = []
    with Checkpoints(tmp_path, read_only=True, tell=told.append) as checkpoints:
        assert checkpoints.find("best").step == 2
    assert told == []


def unreadable(monkeypatch, step: int) -> None:
    """The file system fails for the manifest of a step, for a while."""
    whole = manifests.read_manifest

    def read(folder: Path) -> dict[str, object]:
        if folder.name == str(step):
            raise OSError(errno.ESTALE, "Stale file handle", str(folder / MANIFEST))
        return whole(folder)

    monkeypatch.setattr(manifests, "read_manifest", read)


def test_what_cannot_be_read_for_a_while_is_not_set_aside(tmp_path, monkeypatch):
    save_at(tmp_path / "checkpoints", 3, 4)
    told: list[str] = []
    with monkeypatch.context() as patch:
        unreadable(patch, 4)
        with Checkpoints(tmp_path / "checkpoints", tell=told.append) as checkpoints:
            with pytest.raises(UserError, match="4' cannot be gone on from .*Stale"):
                checkpoints.find("last")
        with Checkpoints(
            tmp_path / "checkpoints", read_only=True, tell=told.append
        ) as checkpoints:
            assert checkpoints.find("last").step == 3 and len(told) == 1
    with Checkpoints(tmp_path / "checkpoints") as checkpoints:
        assert checkpoints.find("last").step == 4


def test_what_cannot_be_read_is_not_removed(tmp_path, monkeypatch):
    """It may be the best."""
    save_at(tmp_path, 4)
    save_at(tmp_path, 5, rate=False)
    folder = CheckpointFolder(tmp_path, True, print)
    best = folder.best_steps(1)[0]
    assert best == 4
    with monkeypatch.context() as patch:
        unreadable(patch, best)
        folder.prune(Keep(last=1))
    assert best in folder.steps() and folder.best_steps(1)[0] == best
    shorten(folder.of(best) / MANIFEST)
    folder.prune(Keep(last=1))
    assert best in folder.steps()
