# SPDX-License-Identifier: Apache-2.0
"""Claims: whose a row is, how long, and what is no claim."""

import json
import os
import threading
import time
from dataclasses import replace

import pytest

from experiments.harness import claims, results, texts
from experiments.harness.claims import Claim, Claims
from experiments.harness.preview import state_of
from experiments.harness.results import read_result
from experiments.harness.table import work
from experiments.harness.texts import Text
from kvnmt.errors import UserError
from kvnmt.files import locked
from tests.experiments import workers
from tests.experiments.fake import never
from tests.experiments.rows import HERE, elsewhere, other


def test_who_was_silent_learns_that_the_row_was_taken_over(tmp_path):
    lost = []
    claims = Claims(tmp_path / "row", HERE)
    with claims.take(lost.append) as held:
        assert held
        held.path.with_name("2.json").write_text("{}")
        workers.wait_for(held.path)
        end = time.monotonic() + workers.DEADLINE
        while not lost and time.monotonic() < end:
            time.sleep(0.01)
    assert "taken over" in lost[0]


@pytest.mark.parametrize("given_back", [True, False])
def test_who_has_given_a_row_back_has_not_lost_it(tmp_path, given_back):
    """Though the next one has it before the last beat of the heart is over."""
    lost: list[str] = []
    held = claims.Held(tmp_path / "1.json", 1, lost.append)
    (tmp_path / "2.json").touch()

    class Over(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            if given_back:
                self.set()  # right after the look at it
            return False

    held._over = Over()
    held.beat(0.0)
    assert bool(lost) is not given_back


def test_a_heart_beats_while_a_row_is_held_and_a_second_claim_is_refused(tmp_path):
    claims = Claims(tmp_path / "row", HERE)
    with claims.take() as held:
        assert held
        os.utime(held.path, (0, 0))
        end = time.monotonic() + workers.DEADLINE
        while held.path.stat().st_mtime == 0 and time.monotonic() < end:
            time.sleep(0.01)
        holder = claims.holder()
        assert holder and holder.silent < workers.DEADLINE
        with claims.take() as second:
            assert second is None
    assert claims.holder() is None


def test_a_row_that_is_done_while_one_looks_has_not_failed(tmp_path, monkeypatch):
    row = Claims(tmp_path / "row", HERE)
    look = row.holder
    with row.take() as held:
        assert held
        monkeypatch.setattr(row, "holder", lambda: held.end("done") or look())
        assert row.failures() == []


def test_who_looks_keeps_no_row(tmp_path, monkeypatch):
    """One that looks sees nobody where another looks, and may claim soon after."""
    row = Claims(tmp_path / "row", HERE)
    path = elsewhere(tmp_path / "row", seconds=0)
    plain = json.loads(path.read_text()) | {"machine": claims._machine()}
    path.write_text(json.dumps(plain))  # of a process that is dead
    with locked(path.parent / "lock", shared=True):
        assert row.holder() is None
        with row.take() as held:
            assert held is None

    looks = locked(path.parent / "lock", shared=True)
    looks.__enter__()
    monkeypatch.setattr(
        claims.time, "sleep", lambda seconds: looks.__exit__(*[None] * 3)
    )
    with row.take() as held:
        assert held


def test_a_claim_that_is_gone_ends_in_silence(tmp_path):
    """As where a network file system is away for a moment."""
    with Claims(tmp_path / "row", HERE).take() as held:
        assert held
        held.path.unlink()


def test_a_claim_that_says_nothing_or_more_than_is_known_is_a_claim(tmp_path):
    row = other(tmp_path / "row")
    path = elsewhere(row.folder, seconds=0)
    for text in ("[]", "null", '{"by": "far:2", "of a later version": 1}'):
        path.write_text(text)
        claim = Claims(row.folder, HERE).holder()
        assert claim and claim.by == ("far:2" if "far" in text else Claim(1).by)


def test_who_cannot_write_sees_who_works(tmp_path, monkeypatch):
    def refused(*arguments, **options):
        raise OSError(30, "Read-only file system")

    row = other(tmp_path / "row")
    elsewhere(row.folder, seconds=0)
    monkeypatch.setattr(claims.tempfile, "TemporaryFile", refused)
    monkeypatch.setattr(claims, "locked", refused)
    assert state_of(row).startswith("running since")
    text = Text("key", lambda: None)
    monkeypatch.setattr(texts, "locked", refused)
    with pytest.raises(UserError, match="cannot be written: Read-only file system"):
        texts.prepare(tmp_path, text)


def test_a_claim_that_cannot_be_written_leaves_the_row_free(tmp_path, monkeypatch):
    def full(path, plain):
        raise OSError(28, "No space left on device", str(path))

    row = other(tmp_path / "row")
    with monkeypatch.context() as patch:
        patch.setattr(claims, "write_json", full)
        with pytest.raises(UserError, match="1.json' cannot be written: No space"):
            work([row], never, pace=HERE)
    assert work([row], never, pace=HERE) == {}
    assert read_result(row.folder)


def test_a_full_disk_is_no_traceback(tmp_path, monkeypatch, capsys):
    def full(path, plain):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(results, "write_json", full)
    row = other(tmp_path / "row")
    failures = work([row], never, pace=HERE)
    assert "result.json' cannot be written: No space" in failures["row"]
    assert "Traceback" not in capsys.readouterr().err

    def reads() -> dict:
        raise OSError(28, "No space left on device", "there")

    failures = work([replace(row, work=reads)], never, pace=HERE)
    assert failures == {
        "row": "'there' cannot be read or written: No space left on device."
    }
    assert "Traceback" not in capsys.readouterr().err
