# SPDX-License-Identifier: Apache-2.0
"""Processes that do not see the run directory of the first train nothing."""

import threading
from typing import Any, cast

import pytest

from kvnmt.cli.train import Train
from kvnmt.errors import UserError
from kvnmt.runs.making import check_free
from kvnmt.training import shared_folder
from kvnmt.training.shared_folder import check_shared
from tests.training.pretended import in_both, pretend_two


@pytest.fixture(autouse=True)
def two(monkeypatch) -> None:
    """Two processes that do not wait long."""
    pretend_two(monkeypatch)
    monkeypatch.setattr(shared_folder, "PATIENCE", 0.05)
    monkeypatch.setattr(shared_folder, "LOOK", 0.01)


def test_a_folder_that_all_see_is_left_as_it_was(tmp_path):
    for _ in range(2):
        assert in_both(lambda number: check_shared(tmp_path)) == [[], []]
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_comes_a_little_later_is_seen(tmp_path, monkeypatch):
    """A network file system may remember that there was none."""
    monkeypatch.setattr(shared_folder, "PATIENCE", 60)
    hidden, seen = tmp_path / "hidden", tmp_path / "seen"
    hidden.mkdir()
    threading.Timer(0.1, lambda: seen.symlink_to(hidden)).start()
    both = hidden, seen
    assert in_both(lambda number: check_shared(both[number])) == [[], []]


def test_a_folder_that_one_does_not_see_ends_all(tmp_path):
    """It may even have one of that name."""
    both = tmp_path / "first", tmp_path / "other"
    both[0].mkdir()
    for _ in range(2):
        errors = in_both(lambda number: check_shared(both[number]))
        for number, (error,) in enumerate(errors):
            assert isinstance(error, UserError)
            assert str(error) == (
                f"process 1 does not see '{both[number]}' of the first process; name "
                "a folder on a file system that all processes share."
            )
        both[1].mkdir(exist_ok=True)
    assert [*both[0].iterdir(), *both[1].iterdir()] == []


def test_where_the_first_has_no_folder_another_sentence_comes(tmp_path):
    assert in_both(lambda number: check_shared(tmp_path / "none")) == [[], []]


def test_a_run_that_one_does_not_see_is_not_resumed(tmp_path):
    """That one finds no config, which must not be what is told."""
    both = tmp_path / "first", tmp_path / "other"
    both[0].mkdir()

    def resume(number: int) -> None:
        Train(both[number], cast(Any, None), resume=True)._check_together()

    for (error,) in in_both(resume):
        assert "process 1 does not see" in str(error)


def test_what_a_kill_leaves_of_the_look_is_no_run(tmp_path):
    (tmp_path / f"{shared_folder.MARK}0123").touch()
    check_free(tmp_path)
    (tmp_path / "notes").touch()
    with pytest.raises(UserError, match="exists already"):
        check_free(tmp_path)
