# SPDX-License-Identifier: Apache-2.0
"""Checkpoints come back bit for bit, on any devices, or are found to be damaged."""

import dataclasses
import errno
import os
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvnmt import devices
from kvnmt.errors import UserError
from kvnmt.files import MANIFEST
from kvnmt.training.checkpoints import manifest as manifests
from kvnmt.training.checkpoints import orbax_arrays, orbax_paths
from kvnmt.training.checkpoints.folder import CheckpointFolder, Keep, firsts
from kvnmt.training.checkpoints.writer import Checkpoints
from kvnmt.training.optimizer import OptimizerConfig
from kvnmt.training.step import StepOptions
from tests.helpers import DEVICES
from tests.training.saving import (
    ABOUT,
    CASES,
    SMALL,
    make_state,
    save_at,
    simple,
    small,
)


def check_same(ours, theirs) -> None:
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    jax.tree.map(np.testing.assert_array_equal, *map(jax.device_get, (ours, theirs)))


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


def test_what_is_kept_for_good_may_come_late():
    """Where the step of a multiple was skipped, and the save waited."""
    steps = [300, 900, 1000, 1200, 2001, 2400, 5000]
    assert firsts(steps, 1000) == {1000, 2001, 5000}
    assert firsts(steps, 0) == set()
