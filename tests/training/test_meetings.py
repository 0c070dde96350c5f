# SPDX-License-Identifier: Apache-2.0
"""Processes that write together wait for each other, but not for one that failed."""

from functools import partial

import pytest

from kvnmt.training.checkpoints import meetings
from kvnmt.training.checkpoints.meetings import Meetings
from tests.training.pretended import in_process, pretend_two


@pytest.fixture
def processes(monkeypatch):
    """The meetings of two processes, each in a thread of its name."""
    pretend_two(monkeypatch)
    monkeypatch.setattr(meetings, "LOOK", 0.001)
    both = Meetings(), Meetings()
    both[1]._name = both[0]._name  # as in two processes
    return both


def test_all_come(processes):
    first, second = processes
    met = []

    def both_meetings():
        first(key="written", timeout_ms=10_000)
        met.append(1)
        first(key="named", timeout_ms=10_000)

    waiting, errors = in_process(0, both_meetings)
    waiting.join(0.05)
    assert waiting.is_alive() and not met
    for name in ("written", "named"):
        coming, others = in_process(1, partial(second, key=name, timeout_ms=10_000))
        coming.join()
        assert not others
    waiting.join()
    assert met and not errors


def test_who_failed_is_not_waited_for(processes):
    first, second = processes
    waiting, errors = in_process(0, lambda: first(key="written", timeout_ms=60_000))
    in_process(1, second.fail)[0].join()
    waiting.join(10)
    assert "could not write its part" in str(errors)


def test_who_does_not_come_is_waited_for_no_longer_than_is_asked(processes):
    waiting, errors = in_process(0, lambda: processes[0](key="a", timeout_ms=20))
    waiting.join(10)
    assert isinstance(errors[0], TimeoutError)
