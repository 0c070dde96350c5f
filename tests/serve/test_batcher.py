# SPDX-License-Identifier: Apache-2.0
"""The queue alone: items share batches, take turns, leave it, and are never mixed."""

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from kvnmt.serve.batcher import Batcher, FullError, NotReadyError

SIZE, ROOM = 4, 20


def length(task, item) -> int:
    """Of words; all else is alike."""
    return len(item) if task == "words" else 0


class Gate:
    """Work that notes its batches and waits, if it is told to."""

    def __init__(self):
        self.open, self.begun = threading.Event(), threading.Semaphore(0)
        self.compiled, self.compiling = threading.Event(), threading.Semaphore(0)
        self.open.set()
        self.batches: list[tuple[str, list]] = []

    def __call__(self, task, items, long):
        if "program" in items:
            if not long:
                raise NotReadyError
            self.compiling.release()
            assert self.compiled.wait(10)
        self.batches.append((task, list(items)))
        self.begun.release()
        assert self.open.wait(10)
        if "bad" in items:
            raise ValueError("bad")
        return [(task, item) for item in items]

    def shut(self, batcher: Batcher):
        """Returns once a batch is under way that does not end."""
        self.open.clear()
        blocked = batcher.submit("blocked", ["x"])
        while not self.batches or self.batches[-1][0] != "blocked":
            assert self.begun.acquire(timeout=10)
        return blocked


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def batcher(gate) -> Iterator[Batcher]:
    made = Batcher(
        gate, size=lambda task, item: SIZE, length=length, room=ROOM, wait=0.001
    )
    yield made
    gate.open.set()
    gate.compiled.set()
    made.close(10)


def test_nothing_is_lost_and_nothing_mixed_up(batcher):
    def ask(seed: int) -> None:
        drawn = random.Random(seed)
        for n in range(20):
            task, count = drawn.choice("abc"), drawn.randint(0, 9)
            items = [(seed, n, i) for i in range(count)]
            while True:
                try:
                    found = batcher.submit(task, items).result(10)
                    break
                except FullError:
                    time.sleep(0.002)
            assert found == [(task, item) for item in items]

    with ThreadPoolExecutor(16) as threads:
        assert len(list(threads.map(ask, range(16)))) == 16


def test_items_that_come_together_share_a_batch(batcher, gate):
    gate.shut(batcher)
    futures = [batcher.submit("a", [n]) for n in range(3)]
    other = batcher.submit("b", ["y"])
    assert batcher.waiting() == 4
    gate.open.set()
    assert [future.result(10) for future in futures] == [[("a", n)] for n in range(3)]
    assert other.result(10) == [("b", "y")]
    assert gate.batches[1:] == [("a", [0, 1, 2]), ("b", ["y"])]


def test_a_short_request_does_not_wait_for_the_end_of_a_long_one(batcher, gate):
    gate.shut(batcher)
    long = batcher.submit("a", [*range(3 * SIZE)])
    short = batcher.submit("a", ["short"])
    gate.open.set()
    assert long.result(10) == [("a", n) for n in range(3 * SIZE)]
    assert short.result(10) == [("a", "short")]
    assert gate.batches[2] == ("a", ["short", *range(SIZE, 2 * SIZE - 1)])


def test_items_go_with_those_of_their_length_and_every_request_has_its_turn(
    batcher, gate
):
    gate.shut(batcher)
    words = ["w" * n for n in (9, 1, 8, 2, 9, 1, 7)]
    long, short = batcher.submit("words", words), batcher.submit("words", ["w" * 4])
    gate.open.set()
    assert long.result(10) == [("words", word) for word in words]
    assert short.result(10) == [("words", "w" * 4)]
    sizes = [[len(word) for word in items] for _, items in gate.batches[1:]]
    assert sizes == [[9, 9, 8, 7], [4, 2, 1, 1]]


def test_every_item_has_a_batch_as_small_as_it_needs(gate):
    """Also where the item whose turn it is would share with more."""
    made = Batcher(
        gate,
        size=lambda task, item: 1 if item == "long" else SIZE,
        length=length,
        room=ROOM,
    )
    items = ["a", "long", "long", "b"]
    assert len(made.submit("a", items).result(10)) == len(items)
    assert sorted(map(len, (batch for _, batch in gate.batches))) == [1, 1, 2]
    made.close(10)


def test_what_is_cancelled_leaves_the_queue(batcher, gate):
    blocked = gate.shut(batcher)
    gone, kept = batcher.submit("a", [1] * (ROOM - 1)), batcher.submit("a", [2])
    with pytest.raises(FullError):
        batcher.submit("a", [3])
    assert gone.cancel() and blocked.cancel()  # the second is under way
    assert batcher.waiting() == 1
    after = batcher.submit("a", [3])
    gate.open.set()
    assert (kept.result(10), after.result(10)) == ([("a", 2)], [("a", 3)])
    assert gate.batches[1:] == [("a", [2, 3])]


def test_an_error_is_told_to_those_who_cause_it(batcher, gate):
    gate.shut(batcher)
    good, bad = batcher.submit("a", ["good"]), batcher.submit("a", ["bad"])
    gate.open.set()
    assert good.result(10) == [("a", "good")]
    with pytest.raises(ValueError, match="bad"):
        bad.result(10)
    assert batcher.submit("a", []).result(10) == []


def test_what_needs_a_program_waits_aside_while_others_go_on(batcher, gate):
    """It counts as waiting, leaves when it is cancelled, and errors are told."""
    first = batcher.submit("a", ["program"])
    assert gate.compiling.acquire(timeout=10)
    second = batcher.submit("b", ["program", "x"])
    gone, bad = (
        batcher.submit("c", ["program"]),
        batcher.submit("d", ["program", "bad"]),
    )
    assert batcher.submit("a", ["quick"]).result(10) == [("a", "quick")]
    assert batcher.waiting() == 5
    with pytest.raises(FullError):
        batcher.submit("a", [1] * (ROOM - 4))
    assert gone.cancel() and batcher.waiting() == 4
    assert batcher.submit("a", [1] * SIZE).result(10) == [("a", 1)] * SIZE
    gate.compiled.set()
    assert first.result(10) == [("a", "program")]
    assert second.result(10) == [("b", "program"), ("b", "x")]
    with pytest.raises(ValueError, match="bad"):
        bad.result(10)
    assert "c" not in [task for task, _ in gate.batches]
    gate.compiled.clear()
    last = batcher.submit("a", ["program"])
    threading.Timer(0.05, gate.compiled.set).start()
    batcher.close(10)
    assert last.result(0) == [("a", "program")]


def test_closing_answers_what_waits_and_takes_no_more(batcher, gate):
    gate.shut(batcher)
    waiting = batcher.submit("a", [1])
    threading.Timer(0.05, gate.open.set).start()
    batcher.close(10)
    assert waiting.result(0) == [("a", 1)]
    with pytest.raises(FullError):
        batcher.submit("a", [2])
