# SPDX-License-Identifier: Apache-2.0
"""Processes that share the rows of a table: claims, dead ones, failures, signals."""

import json
import os
import signal
import time
from dataclasses import replace

import pytest
from rich.console import Console

from experiments.harness import table, worker
from experiments.harness.claims import SILENT_END, Claims, Pace
from experiments.harness.preview import state_of
from experiments.harness.results import read_result
from experiments.harness.table import Options, Table, make_table, work
from experiments.harness.worker import Worker
from kvnmt.errors import StoppedError, UserError
from kvnmt.evaluation.base import Column
from kvnmt.training.signals import Signals
from tests.experiments import workers
from tests.experiments.fake import complete, draw, never
from tests.experiments.rows import HERE, elsewhere, other
from tests.helpers import tiny, toy_data, write_untrained


def test_three_processes_share_a_table_and_one_of_them_is_killed(tmp_path):
    """Every row is trained once, but for the one whose process was killed."""
    experiment = tiny(toy_data(tmp_path / "text"))
    write_untrained(experiment, tmp_path / "trained", draw)
    base = experiment.training
    warm = replace(experiment, training=replace(base, warm_start=tmp_path / "a"))
    rows = [
        workers.row_of(tmp_path / name, warm if name == "d" else experiment)
        for name in "abcd"
    ]
    first = workers.start("first", tmp_path, rows, dies=True)
    workers.wait_for(tmp_path / "a.first.False")
    others = [workers.start(name, tmp_path, rows) for name in ("second", "third")]
    first.join(workers.DEADLINE)
    assert first.exitcode == -signal.SIGKILL
    for process in others:
        process.join(workers.DEADLINE)
        assert process.exitcode == 0
    trained = sorted(path.name for path in tmp_path.glob("?.*.*e"))
    ways = [(row, resume) for row, _, resume in (name.split(".") for name in trained)]
    assert sorted(ways) == [
        ("a", "False"),
        ("a", "True"),
        ("b", "False"),
        ("c", "False"),
        ("d", "False"),
    ]
    by = {name.split(".")[0]: name.split(".")[1] for name in trained if name[0] in "bc"}
    assert by["b"] != by["c"]
    assert all(state_of(row) == "done" for row in rows)


def test_a_row_that_runs_elsewhere_is_left_to_it(tmp_path, monkeypatch):
    rows = [other(tmp_path / "there"), other(tmp_path / "here")]
    path = elsewhere(rows[0].folder, seconds=0)
    waits: list[float] = []

    def beats(seconds: float) -> None:
        waits.append(seconds)
        os.utime(path)

    monkeypatch.setattr(worker.time, "sleep", beats)
    results = complete(rows)
    assert 2 * Pace().beat in waits
    assert [result["system"] for result in results] == ["here"]
    assert state_of(rows[0]) == "running since 2026-01-01 00:00 +0000 by far:1"
    assert list(path.parent.glob("*.json")) == [path]


def test_a_heart_that_has_just_stopped_is_waited_for(tmp_path, monkeypatch):
    """As of a machine that was taken away seconds before this worker came."""
    row = other(tmp_path / "row")
    path = elsewhere(row.folder, seconds=20)

    def passes(seconds: float) -> None:
        then = path.stat().st_mtime - seconds
        os.utime(path, (then, then))

    monkeypatch.setattr(worker.time, "sleep", passes)
    assert not work([row], never)
    assert row.result()


def test_what_is_silent_for_long_is_taken_over(tmp_path):
    row = other(tmp_path / "row")
    path = elsewhere(row.folder, seconds=100)
    assert Claims(row.folder, Pace(late=101)).holder()
    assert not Claims(row.folder, Pace(late=99)).holder()
    assert not work([row], never, pace=Pace(late=99))
    assert row.result()
    assert json.loads(path.with_name("2.json").read_text())["ended"] == "done"


def test_a_row_waits_for_one_that_runs_elsewhere(tmp_path):
    """And is done once that one is."""
    path = elsewhere(tmp_path / "base", seconds=0)
    base = other(tmp_path / "base")

    def ends_there() -> dict:
        base.folder.mkdir()
        (base.folder / "result.json").write_text('{"system": "base"}')
        path.write_text(path.read_text().replace("}", ', "ended": "done"}'))
        return {}

    rows = [base, other(tmp_path / "warm", dict, base.folder)]
    rows.append(other(tmp_path / "third", ends_there))
    assert [r["system"] for r in complete(rows)] == ["base", "warm", "third"]
    claim = json.loads((tmp_path / "claims" / "third" / "1.json").read_text())
    assert claim["ended"] == "done"


def test_a_row_does_not_start_from_one_that_was_left_half_done(tmp_path):
    """Though another command's, whose run directory is there."""
    base = tmp_path / "base"
    base.mkdir()
    works = []
    rows = [other(tmp_path / "warm", lambda: works.append(1) or {}, base)]
    with pytest.raises(UserError, match="'warm': it needs 'base': that has no result"):
        complete(rows)
    assert not works
    (base / "result.json").write_text('{"system": "base"}')
    complete(rows)
    assert works


def test_a_failed_row_is_tried_again_once_and_told_in_the_end(tmp_path):
    tries = []

    def fails() -> dict:
        tries.append("bad")
        raise ValueError("not today")

    def fails_once() -> dict:
        tries.append("shy")
        if tries.count("shy") == 1:
            raise UserError("no text.")
        return {}

    bad, shy = other(tmp_path / "bad", fails), other(tmp_path / "shy", fails_once)
    rows = [bad, shy, other(tmp_path / "on", dict, bad.folder)]
    with pytest.raises(UserError, match="'bad': not today; 'on': it needs 'bad'"):
        complete(rows)
    assert tries == ["bad", "shy", "bad", "shy"]
    assert (state_of(rows[0]), state_of(rows[1])) == ("failed: not today", "done")
    assert state_of(rows[2]) == "not started; needs bad"
    # The next start tries anew.
    with pytest.raises(UserError):
        complete(rows)
    assert tries.count("bad") == 4


def test_a_row_that_came_from_others_does_not_end_the_work(tmp_path, capsys):
    """What needs it waits; the rest is done and shown, and all faults are told."""
    base = replace(other(tmp_path / "base"), config="new")
    derived = other(tmp_path / "derived", dict, base.folder)
    derived.make(never, Console())
    path = derived.folder / "result.json"
    path.write_text(path.read_text().replace('"base": ":::"', '"base": "old:::"'))
    on, last = other(tmp_path / "on", dict, derived.folder), other(tmp_path / "last")

    def fails() -> dict:
        raise ValueError("boom")

    rows = [base, derived, on, last, other(tmp_path / "bad", fails)]
    made = Table("all", [Column("system", "system")], rows)
    told = "3 of 5 .*'derived': .* before 'base' became.*'bad': boom"
    with pytest.raises(UserError, match=told):
        make_table(Options(workdir=tmp_path), made, never)
    assert last.result() and not on.folder.exists()
    assert " base " in capsys.readouterr().out


def test_what_another_worker_makes_otherwise_is_told_in_the_end(
    tmp_path, capsys, monkeypatch
):
    """Though it was still at work when this one last looked."""
    row = replace(other(tmp_path / "there"), config="new")

    def work(rows: object, train: object) -> dict[str, str]:
        replace(row, config="old").make(never, Console())
        return {}

    monkeypatch.setattr(table, "work", work)
    made = Table("all", [Column("system", "system")], [row])
    make_table(Options(workdir=tmp_path), made, never)
    said = " ".join(capsys.readouterr().out.split())
    assert "was measured of another configuration" in said and "1 of 1 rows" in said


def test_a_row_that_kills_its_processes_does_not_kill_all_of_them(tmp_path):
    """Two that leave no new checkpoint are enough; one that left one does not count."""
    rows = [other(tmp_path / name) for name in ("deadly", "slow", "good")]
    checkpoints = {"deadly": (0, 0), "slow": (0, 20)}
    worker = Worker(rows, never, Console(quiet=True), HERE._replace(late=99))
    for name, steps in checkpoints.items():
        path = elsewhere(tmp_path / name, seconds=100)
        for number, step in enumerate(steps, 1):
            claim = json.loads(path.read_text()) | {"checkpoint": step}
            path.with_name(f"{number}.json").write_text(json.dumps(claim))
            os.utime(path.with_name(f"{number}.json"), (1, 1))
    (tmp_path / "slow" / "checkpoints" / "20").mkdir(parents=True)
    assert worker.work() == {"deadly": SILENT_END}
    assert [state_of(row) for row in rows] == [f"failed: {SILENT_END}", "done", "done"]


def test_a_signal_gives_the_row_back(tmp_path):
    def asked() -> dict:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(workers.DEADLINE)
        return {}

    row = other(tmp_path / "row", asked)
    with pytest.raises(StoppedError, match="SIGTERM") as stopped:
        work([row], never, Console(quiet=True))
    assert stopped.value.status == 128 + signal.SIGTERM
    assert Claims(row.folder).holder() is None
    assert state_of(row) == "not started"
    assert read_result(row.folder) is None


def test_a_signal_ends_the_work_though_its_row_failed(tmp_path):
    """Training has handlers of its own; what they heard is not forgotten."""

    def fail() -> dict:
        with Signals(print):
            signal.raise_signal(signal.SIGTERM)
            raise UserError("no such text")

    rows = [other(tmp_path / "fails", fail), other(tmp_path / "next")]
    with pytest.raises(StoppedError, match="SIGTERM"):
        work(rows, never, Console(quiet=True))
    assert [state_of(row) for row in rows] == ["failed: no such text", "not started"]


def test_an_interrupted_row_says_its_epoch(tmp_path):
    experiment = tiny(toy_data(tmp_path / "text"))
    row = workers.row_of(tmp_path / "row", experiment)
    assert state_of(row) == "not started"
    row.folder.mkdir()
    (row.folder / "config.json").touch()
    assert state_of(row) == "interrupted at epoch 0"
    validated = '{"step": 4, "epoch": 1}\n{"step": 6, "epoch": 1.5}\n'
    (row.folder / "metrics.jsonl").write_text(validated)
    assert state_of(row) == "interrupted at epoch 1.5"
    with Claims(row.folder).take():
        assert state_of(row).endswith(", at epoch 1.5")
