# SPDX-License-Identifier: Apache-2.0
"""Two processes that are threads of one, and what they share."""

import itertools
import threading
from collections.abc import Callable
from functools import partial

import jax
import pytest

from kvnmt import companions


class Store:
    """What the processes of a job share, in one process."""

    def __init__(self):
        self._values = {}
        self._barriers = {}

    def key_value_set(self, key, value, allow_overwrite=False):
        assert allow_overwrite or key not in self._values
        self._values[key] = value

    def key_value_dir_get(self, folder):
        return [(k, v) for k, v in self._values.items() if k.startswith(f"{folder}/")]

    def wait_at_barrier(self, place, milliseconds):
        barrier = self._barriers.setdefault(place, threading.Barrier(2))
        barrier.wait(milliseconds / 1000)


class State:
    """What JAX knows of the process of this thread."""

    num_processes = 2

    def __init__(self):
        self.client = Store()

    @property
    def process_id(self):
        return int(threading.current_thread().name)


class Counts:
    """Each process counts for itself."""

    def __init__(self):
        self._own = itertools.count(), itertools.count()

    def __next__(self):
        return next(self._own[int(threading.current_thread().name)])


def pretend_two(patch: pytest.MonkeyPatch) -> None:
    """Makes a thread whose name is 0 or 1 the process of this number, of two."""
    state = State()
    patch.setattr(companions.distributed, "global_state", state)
    patch.setattr(jax, "process_count", lambda: 2)
    patch.setattr(jax, "process_index", lambda: state.process_id)
    patch.setattr(companions, "_numbers", Counts())


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


def in_both(work: Callable[[int], object]) -> list[list[Exception]]:
    """Does the work of both, which each get their number; the errors of each."""
    both = [in_process(number, partial(work, number)) for number in range(2)]
    for thread, _ in both:
        thread.join(60)
        assert not thread.is_alive()
    return [errors for _, errors in both]
