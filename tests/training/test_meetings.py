# SPDX-License-Identifier: Apache-2.0
"""Processes that write together wait for each other, but not for one that failed."""

import threading
from functools import partial
from types import SimpleNamespace

import jax
import pytest

from kvnmt import companions
from kvnmt.training.checkpoints import meetings
from kvnmt.training.checkpoints.meetings import Meetings


class Store:
    """What the processes of a job share, in one process."""

    def __init__(self):
        self._values = {}

    def key_value_set(self, key, value, allow_overwrite=False):
        assert allow_overwrite or key not in self._values
        self._values[key] = value

    def key_value_dir_get(self, folder):
        return [(k, v) for k, v in self._values.items() if k.startswith(f"{folder}/")]


@pytest.fixture
def processes(monkeypatch):
    """The meetings of two processes, each in a thread of its name."""
    monkeypatch.setattr(
        companions.distributed, "global_state", SimpleNamespace(client=Store())
    )
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(
        jax, "process_index", lambda: int(threading.current_thread().name)
    )
    monkeypatch.setattr(meetings, "LOOK", 0.001)
    both = Meetings(), Meetings()
    both[1]._name = both[0]._name  # as in two processes
    return both


def in_process(number, work):
    """Begins work there; its thread, and where its error will be."""
    errors = []

    def run():
        try:
            work()
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run, name=str(number))
    thread.start()
    return thread, errors


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
