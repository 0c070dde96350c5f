# SPDX-License-Identifier: Apache-2.0
"""Checkpoints come back bit for bit, on any devices, or are found to be damaged."""

import asyncio
import dataclasses
import errno
import gc
import hashlib
import json
import logging
import os
import shutil
import threading
import time
import traceback
from collections.abc import Callable
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from orbax.checkpoint import future as futures

from kvnmt import devices
from kvnmt.errors import UserError
from kvnmt.files import MANIFEST
from kvnmt.model import assembly
from kvnmt.systems.named import system
from kvnmt.training import step as steps
from kvnmt.training.checkpoints import manifest as manifests
from kvnmt.training.checkpoints import orbax_arrays, orbax_paths
from kvnmt.training.checkpoints.fingerprint import fingerprint
from kvnmt.training.checkpoints.folder import CheckpointFolder, Keep, firsts
from kvnmt.training.checkpoints.writer import Checkpoints
from kvnmt.training.optimizer import OptimizerConfig, build
from kvnmt.training.step import StepOptions
from tests.helpers import DEVICES, SIZES, full

# The optimisers and a parameter tree with members that may be missing.
CASES = [
    ("rnnsearch-star", OptimizerConfig(), StepOptions(), DEVICES),
    ("kvmematt-r2", OptimizerConfig(name="adadelta", clip=0.0), StepOptions(), 1),
    ("rnnsearch", OptimizerConfig(name="sgd"), StepOptions(ema=0.5), DEVICES),
]
ABOUT = {"vocabularies": {"source": "1"}}


@cache
def shapes_of(
    name: str, optimizer: OptimizerConfig, options: StepOptions
) -> steps.TrainState:
    """What a training keeps, found once for all tests."""
    model = assembly.build(system(name).model(SIZES), 10, 10)
    update = build(optimizer, 4)
    return jax.eval_shape(
        lambda key: steps.init_state(model.init(key), update, options),
        jax.random.key(0),
    )


def make_state(
    name: str, optimizer: OptimizerConfig, options: StepOptions, seed: int
) -> steps.TrainState:
    """Random in every float, at step 7."""
    normal = np.random.default_rng(seed).normal

    def fill(leaf: jax.ShapeDtypeStruct) -> jax.Array:
        if jnp.issubdtype(leaf.dtype, jnp.integer):
            return jnp.asarray(np.full(leaf.shape, seed, leaf.dtype))
        return jnp.asarray(normal(size=leaf.shape), leaf.dtype)

    state = jax.tree.map(fill, shapes_of(name, optimizer, options))
    return state.replace(step=jnp.int32(7), scale=jnp.float32(1))


def simple(seed: int = 1) -> steps.TrainState:
    return make_state(*CASES[0][:3], seed)


SMALL = steps.init_state({"W": jnp.arange(6.0).reshape(2, 3)}, optax.sgd(0.1))


def small(seed: int) -> steps.TrainState:
    """Where no array is looked at."""
    return SMALL


def check_same(ours, theirs) -> None:
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    jax.tree.map(np.testing.assert_array_equal, *map(jax.device_get, (ours, theirs)))


def save_at(
    folder: Path,
    *numbers: int,
    keep: Keep = Keep(9),
    rate: bool = True,
    made: Callable[[int], steps.TrainState] = simple,
):
    """Saves a state for each step; the scores rise."""
    with Checkpoints(folder, keep=keep) as checkpoints:
        for number in numbers:
            state = made(number).replace(step=jnp.int32(number))
            checkpoints.save(state, {"at": number}, ABOUT)
            if rate:
                checkpoints.rate(number, number / 10, {"at": number})


@pytest.mark.parametrize(("name", "optimizer", "options", "count"), CASES)
def test_a_state_comes_back_bit_for_bit(tmp_path, name, optimizer, options, count):
    state = make_state(name, optimizer, options, 1)
    placed = (
        devices.replicate(state, devices.data_mesh()) if count == DEVICES else state
    )
    record = {"best": -np.inf, "figures": {"valid_bleu": 0.1}, "steps": 3}
    with Checkpoints(tmp_path / "checkpoints") as checkpoints:
        checkpoints.save(placed, record, ABOUT)
    like = make_state(name, optimizer, options, 2)
    with Checkpoints(tmp_path / "checkpoints") as checkpoints:
        assert (
            checkpoints.folder.steps()[-1:] == checkpoints.folder.best_steps(1) == [7]
        )
        found = checkpoints.find("last")
        check_same(checkpoints.restore(like, found.step), state)
        assert (found.progress, found.about, found.score) == (record, ABOUT, None)
        check_same(checkpoints.restore_params(like.params, 7), state.served)


def test_a_folder_may_have_any_name(tmp_path, monkeypatch):
    """And what orbax did not merge is no checkpoint, though it says nothing."""
    folder = tmp_path / "lr[0.1], all*? {x}" / "checkpoints"
    save_at(folder, 7)
    with Checkpoints(folder) as checkpoints:
        check_same(checkpoints.restore(simple(2), 7), simple(7))
    monkeypatch.setattr(orbax_paths._Path, "glob", lambda path, pattern: iter(()))
    monkeypatch.setattr(orbax_arrays, "find_in_any_folder", lambda: None)
    with pytest.raises(UserError, match="orbax wrote no manifest.ocdbt of params"):
        save_at(folder, 8)
    assert [path.name for path in folder.iterdir()] == ["7"]


def test_what_was_kept_for_good_stays_when_a_run_goes_on_otherwise(tmp_path):
    folder = CheckpointFolder(tmp_path / "checkpoints", True, print)
    save_at(folder.path, 5, 10, 15, 20, 25, made=small)
    for step in folder.steps():
        manifest = manifests.read(folder.of(step))
        config = {"config": {"training": {"keep_every": 10}}}
        manifest = dataclasses.replace(manifest, about=manifest.about | config)
        manifests.write(folder.of(step), manifest)
    folder.prune(Keep(last=1, every=0))
    assert folder.steps() == [10, 20, 25]


def test_what_cannot_be_moved_stays_and_is_told(tmp_path, monkeypatch):
    folder, told = tmp_path / "checkpoints", []
    save_at(folder, 1, 2, 3, made=small)
    (folder / "3" / MANIFEST).write_text("{")

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    found = CheckpointFolder(folder, True, told.append)
    monkeypatch.setattr(Path, "rename", refuse)
    whole = found.first_whole("last")
    assert whole and whole.step == 2
    found.prune(Keep(1))
    assert found.steps() == [1, 2, 3] and len(told) == 2
    assert "3' is damaged" in told[0] and "is not used." in told[0]
    assert told[1].endswith("1' cannot be removed: Permission denied; it stays.")


def test_parameters_are_read_without_arrays_to_compare(tmp_path):
    """Shapes suffice, and the result lies on one device."""
    state = simple()
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(devices.replicate(state, devices.data_mesh()), {}, ABOUT)
    like = jax.eval_shape(lambda: state.params)
    with Checkpoints(tmp_path, read_only=True) as checkpoints:
        found = checkpoints.restore_params(like, 7)
    check_same(found, state.params)
    assert all(leaf.devices() == {jax.devices()[0]} for leaf in jax.tree.leaves(found))


def test_what_is_restored_lies_where_it_is_wanted(tmp_path):
    state = simple()
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(state, {}, ABOUT)
    with Checkpoints(tmp_path) as checkpoints:
        found = checkpoints.restore(
            devices.replicate(state, devices.data_mesh()), step=7
        )
    assert all(len(leaf.devices()) == DEVICES for leaf in jax.tree.leaves(found))


def test_nothing_saved_is_told(tmp_path):
    with Checkpoints(tmp_path) as checkpoints:
        assert checkpoints.folder.steps() == []
        assert checkpoints.folder.best_steps(1) == []
        with pytest.raises(UserError, match=f"'{tmp_path}' holds no finished"):
            checkpoints.find("best")


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_reader_takes_the_next_where_a_training_removes_one(tmp_path, when):
    """What was read of one that is gone by then may lack a part."""
    save_at(tmp_path, 1, 2, 3)
    like = jax.eval_shape(lambda: simple().params)
    with Checkpoints(tmp_path, read_only=True) as checkpoints:

        def read(steps):
            first = steps == [3]
            if first and when == "before":
                shutil.rmtree(tmp_path / "3")
            params = checkpoints.restore_params(like, *steps)
            if first:
                shutil.rmtree(tmp_path / "3")
            return params

        found = checkpoints.take(lambda: [checkpoints.find("best").step], read)
    check_same(found, simple(2).params)


def test_a_reader_does_not_look_for_ever(tmp_path):
    save_at(tmp_path, 7)
    with Checkpoints(tmp_path, read_only=True) as checkpoints:
        with pytest.raises(UserError, match="removed faster than they are read"):
            checkpoints.take(lambda: [8], lambda steps: None)


def test_a_process_that_finds_the_choice_of_the_first_damaged_says_so(
    tmp_path, monkeypatch
):
    """It chooses again with the others where that has been removed."""
    save_at(tmp_path, 7, 8)
    (tmp_path / "8" / "manifest.json").write_text("other")
    answers = iter([8, True, 8, False, 7, True])  # of the first
    monkeypatch.setattr(devices, "first_does", lambda work: None)
    monkeypatch.setattr(devices, "agree", lambda own: next(answers))
    with Checkpoints(tmp_path, read_only=True) as checkpoints:

        def take() -> list[int]:
            return checkpoints.take(lambda: [checkpoints.find("best").step], list)

        with pytest.raises(UserError, match="checkpoint '.*/8' is damaged: .* changed"):
            take()
        assert take() == [7]


def test_another_model_is_told(tmp_path):
    save_at(tmp_path, 7)
    other = make_state("kvmematt-r2", OptimizerConfig(), StepOptions(), 1)
    with Checkpoints(tmp_path, read_only=True) as checkpoints:
        with pytest.raises(UserError, match="is not one of this model and optimiser"):
            checkpoints.restore(other, 7)


def test_reading_changes_nothing(tmp_path):
    save_at(tmp_path, 7)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    with Checkpoints(tmp_path, read_only=True) as checkpoints:
        checkpoints.restore_params(simple().params, checkpoints.find("best").step)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


@pytest.mark.parametrize(
    ("keep", "rate", "kept"),
    [
        (Keep(1), True, [6]),
        (Keep(2), True, [5, 6]),
        (Keep(1, every=2), True, [2, 4, 6]),
        (Keep(2, every=3), False, [3, 5, 6]),
        (Keep(1, best=3), True, [4, 5, 6]),
        (Keep(1, best=3), False, [6]),
    ],
)
def test_what_is_kept(tmp_path, keep, rate, kept):
    save_at(tmp_path, *range(1, 7), keep=keep, rate=rate, made=small)
    assert sorted(int(path.name) for path in tmp_path.iterdir()) == kept


@pytest.mark.parametrize(
    ("scores", "kept"),
    [
        ([1, 3, 2, 0], [{1}, {2}, {2, 3}, {2, 4}]),
        ([1, 2, 3], [{1}, {2}, {3}]),
        ([3, 2, 1], [{1}, {1, 2}, {1, 3}]),
        ([0, 0, 0, 0], [{1}, {1, 2}, {1, 3}, {1, 4}]),
        ([1, 2, 2, 1], [{1}, {2}, {2, 3}, {2, 4}]),
    ],
)
def test_the_best_is_kept_with_the_last(tmp_path, scores, kept):
    """Of equal scores the first is the best."""
    seen = []
    with Checkpoints(tmp_path, keep=Keep(1)) as checkpoints:
        for step, score in enumerate(scores, 1):
            state = SMALL.replace(step=jnp.int32(step))
            checkpoints.save(state, {}, ABOUT)
            checkpoints.rate(step, score, {})
            seen.append({*checkpoints.folder.steps()})
        assert checkpoints.folder.best_steps(1) == [1 + int(np.argmax(scores))]
    assert seen == kept


def test_several_of_the_best_are_kept(tmp_path):
    """And of those that have no score none in their place."""
    with Checkpoints(tmp_path, keep=Keep(1, best=2)) as checkpoints:
        for step, score in enumerate([5.0, 1.0, 4.0, None, None], 1):
            state = SMALL.replace(step=jnp.int32(step))
            checkpoints.save(state, {}, ABOUT)
            if score is not None:
                checkpoints.rate(step, score, {})
    with Checkpoints(tmp_path, read_only=True) as checkpoints:
        assert checkpoints.folder.steps() == [1, 3, 5]
        assert checkpoints.folder.best_steps(2) == [1, 3]
        assert checkpoints.folder.best_steps(9) == [1, 3]


def test_the_last_that_were_validated_are_kept_beside_the_last(tmp_path):
    with Checkpoints(tmp_path, keep=Keep(2)) as checkpoints:
        for step, score in enumerate([5.0, 1.0, 4.0, 2.0, None, None, None], 1):
            checkpoints.save(SMALL.replace(step=jnp.int32(step)), {}, ABOUT)
            if score is not None:
                checkpoints.rate(step, score, {})
    folder = Checkpoints(tmp_path, read_only=True).folder
    assert folder.steps() == [1, 3, 4, 6, 7]
    assert folder.last_steps(2) == [3, 4] and folder.last_steps(9) == [1, 3, 4]


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def files(folder: Path) -> list[str]:
    names = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return sorted(map(str, names))


@pytest.mark.parametrize("damage", [flip, shorten, Path.unlink])
def test_any_damage_to_any_file_is_found(tmp_path, damage: Callable[[Path], None]):
    """File by file: it is named, set aside, and the one before is used."""
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


def blake(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def test_checkpoints_of_versions_before_are_read(tmp_path):
    """They were sealed by another digest, of 32 digits."""
    save_at(tmp_path, 3, 4)
    for step in (3, 4):
        folder = tmp_path / str(step)
        plain = json.loads((folder / MANIFEST).read_text().split("\n", 1)[1])
        plain["files"] = {n: blake((folder / n).read_bytes()) for n in plain["files"]}
        text = json.dumps(plain, indent=1) + "\n"
        (folder / MANIFEST).write_text(f"{blake(text.encode())}\n{text}")
    told: list[str] = []
    with Checkpoints(tmp_path, read_only=True, tell=told.append) as checkpoints:
        assert checkpoints.find("last").step == 4
        shorten(tmp_path / "4" / "params" / "manifest.ocdbt")
        assert checkpoints.find("last").step == 3
        shorten(tmp_path / "3" / MANIFEST)
        with pytest.raises(UserError, match="has no checkpoint left that is whole"):
            checkpoints.find("last")
    assert "'params/manifest.ocdbt' was changed" in told[0]


def test_log_messages_of_others_are_shown(tmp_path, caplog):
    with Checkpoints(tmp_path):
        logging.getLogger("absl").error("of another")
        try:
            ocp.StandardCheckpointHandler().metadata(tmp_path / "nothing")
        except Exception:
            logging.getLogger("asyncio").exception("of orbax")
    assert [record.getMessage() for record in caplog.records] == ["of another"]


def test_the_content_has_one_digest_wherever_it_lies():
    state = simple()
    spread = devices.replicate(state, devices.data_mesh(2))
    assert fingerprint(state) == fingerprint(spread)
    assert fingerprint(state) != fingerprint(simple(2))


@pytest.mark.parametrize("place", [0, 5, 11])
def test_every_bit_counts_for_the_digest(place):
    bits = np.arange(12, dtype=np.uint32).reshape(3, 4)
    digest = fingerprint({"a": bits.view(np.float32)})
    for bit in range(32):
        other = bits.copy()
        other.flat[place] ^= np.uint32(1 << bit)
        assert fingerprint({"a": other.view(np.float32)}) != digest
    assert fingerprint({"a": bits.view(np.float32).T}) != digest
    assert fingerprint({"b": bits.view(np.float32)}) != digest


def test_a_manifest_says_what_it_is_of(tmp_path):
    save_at(tmp_path, 3)
    _, text = (tmp_path / "3" / MANIFEST).read_text().split("\n", 1)
    found = json.loads(text)
    assert found["about"] == ABOUT and found["score"] == 0.3
    assert set(found["files"]) == set(files(tmp_path / "3")) - {MANIFEST}


def test_a_score_that_is_no_number_is_the_worst(tmp_path):
    save_at(tmp_path, 1, 2, rate=False, made=small)
    with Checkpoints(tmp_path, keep=Keep(1)) as checkpoints:
        checkpoints.rate(1, -2.0, {})
        checkpoints.rate(2, float("nan"), {})
        assert checkpoints.folder.best_steps(1) == [1]
        assert checkpoints.folder.steps() == [1, 2]


def test_what_training_removes_meanwhile_is_not_called_damaged(tmp_path, monkeypatch):
    save_at(tmp_path, 1, 2, 3)
    check, gone = manifests.check, iter(["3"])

    def removed(folder: Path, manifest: manifests.Manifest) -> None:
        if folder.name == next(gone, ""):
            shutil.rmtree(folder)
        check(folder, manifest)

    monkeypatch.setattr(manifests, "check", removed)
    told: list[str] = []
    with Checkpoints(tmp_path, read_only=True, tell=told.append) as checkpoints:
        assert checkpoints.find("best").step == 2
    assert told == []


def test_a_field_that_holds_no_array_does_not_count(tmp_path):
    """A class may gain or lose one; its checkpoints stay what they are."""
    arrays = {"W": jnp.arange(6.0).reshape(2, 3), "b": (jnp.ones(3), jnp.zeros(2))}
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save_params(arrays | {"gone": None}, {})
    with Checkpoints(tmp_path, read_only=True) as checkpoints:
        like = arrays | {"new": None}
        step = checkpoints.find("best").step
        found = checkpoints.restore_params(like, step)
        assert found["new"] is None and "gone" not in found
        jax.tree.map(np.testing.assert_array_equal, found, like)
        for other, name in (
            (arrays | {"more": jnp.ones(1)}, "lacks 'more'"),
            ({"W": arrays["W"]}, "holds 'b/0'"),
        ):
            with pytest.raises(UserError, match=name):
                checkpoints.restore_params(other, step)


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


def test_what_is_kept_for_good_may_come_late():
    """Where the step of a multiple was skipped, and the save waited."""
    steps = [300, 900, 1000, 1200, 2001, 2400, 5000]
    assert firsts(steps, 1000) == {1000, 2001, 5000}
    assert firsts(steps, 0) == set()
