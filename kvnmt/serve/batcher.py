# SPDX-License-Identifier: Apache-2.0
"""Requests that wait, and the thread that works on items of several at once.

Items of one task share batches, whoever sent them: what comes within a few
milliseconds, or while the batch before is under way, may go together. A batch is made
of an item of the request whose turn it is and of those that are most like it in length,
since all of a batch take as long as the longest. Requests take turns, so that a short
one does not wait for the end of a long one. What was cancelled leaves the queue; what
is under way is finished and thrown away.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from itertools import starmap
from typing import Any, NamedTuple, TypeAlias

Work: TypeAlias = Callable[[Any, list[Any]], Sequence[Any]]


class FullError(Exception):
    """So many items wait already that more are not taken, or the batcher is closed."""


@dataclass(eq=False)
class _Request:
    """Items of one task that are answered together."""

    task: Hashable
    items: Sequence[Any]
    arrived: float
    future: "Future[list[Any]]" = field(default_factory=Future)
    results: dict[int, Any] = field(default_factory=dict)  # by place
    places: list[int] = field(default_factory=list)  # of the items that wait

    def __post_init__(self):
        """Lets all items wait."""
        self.places = [*range(len(self.items))]

    @property
    def left(self) -> int:
        """How many items wait; none once nobody wants them."""
        return 0 if self.future.done() else len(self.places)


class _Share(NamedTuple):
    """What one request has in a batch."""

    request: _Request
    places: Sequence[int]


class Batcher:
    """A bounded queue with one thread that empties it."""

    def __init__(
        self,
        work: Work,
        *,
        size: Callable[[Any], int],
        length: Callable[[Any, Any], int],
        room: int,
        wait: float = 0.004,
    ):
        """Starts the thread.

        Args:
            work: Makes results of a task and its items, as many, in their order.
            size: Most items of a batch of a task.
            length: Of an item of a task; items alike go together. Where all are alike,
                a request's items go in their order.
            room: Most items that wait.
            wait: Seconds that an item waits for others, while nothing is under way.
        """
        self._work, self._size, self._length = work, size, length
        self._room, self._wait = room, wait
        self._requests: list[_Request] = []
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def submit(self, task: Hashable, items: Sequence[Any]) -> "Future[list[Any]]":
        """Puts items into the queue; the future's result has one for each.

        Cancelling the future takes the items out again.

        Raises:
            FullError: There is no room for them.
        """
        request = _Request(task, items, time.monotonic())
        if not items:
            request.future.set_result([])
            return request.future
        with self._changed:
            # A request is taken into an empty queue, however large it is.
            waiting = self._waiting()
            if self._closed or (waiting and waiting + len(items) > self._room):
                raise FullError
            self._requests.append(request)
            self._changed.notify()
        return request.future

    def waiting(self) -> int:
        """How many items wait."""
        with self._changed:
            return self._waiting()

    def close(self, seconds: float | None = None) -> None:
        """Takes nothing more, and returns once all that waits is done.

        Args:
            seconds: Most that this takes; what then still waits is dropped.
        """
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(seconds)

    def _waiting(self) -> int:
        self._requests = [one for one in self._requests if one.left]
        return sum(one.left for one in self._requests)

    def _run(self) -> None:
        while shares := self._next():
            _answer(self._work, shares)

    def _next(self) -> list[_Share]:
        """The next batch, once there is one; nothing once closed and empty."""
        with self._changed:
            while self._waiting() or not self._closed:
                if not self._requests:
                    self._changed.wait()
                    continue
                first = self._requests[0]
                size = self._size(first.task)
                self._gather(first, size)
                if shares := self._take(first, size):
                    return shares
            return []

    def _gather(self, first: _Request, size: int) -> None:
        """Waits a little for items that can go with the first."""
        until = first.arrived + self._wait
        while first.left and not self._closed:
            waiting = sum(r.left for r in self._requests if r.task == first.task)
            rest = until - time.monotonic()
            if waiting >= size or rest <= 0:
                return
            self._changed.wait(rest)

    def _take(self, first: _Request, size: int) -> list[_Share]:
        """A batch with an item of a request, whose turn is last from now on."""
        if not first.left:
            return []
        same = [one for one in self._requests if one.task == first.task and one.left]
        like = self._length(first.task, first.items[first.places[0]])
        near = [
            (abs(self._length(one.task, one.items[place]) - like), one, place)
            for one in same
            for place in one.places
        ]
        near.sort(key=lambda entry: entry[0])
        taken: dict[_Request, list[int]] = {}
        for _, request, place in near[:size]:
            taken.setdefault(request, []).append(place)
        for request, places in taken.items():
            request.places = [one for one in request.places if one not in places]
        self._requests.remove(first)
        self._requests.append(first)
        return list(starmap(_Share, taken.items()))


def _answer(work: Work, shares: Sequence[_Share]) -> None:
    """Works on a batch; an error is told to those alone whose items cause it."""
    try:
        items = [one.items[place] for one, places in shares for place in places]
        results = work(shares[0].request.task, items)
    except BaseException as error:
        if len(shares) > 1:
            for share in shares:
                _answer(work, [share])
        else:
            with contextlib.suppress(InvalidStateError):
                shares[0].request.future.set_exception(error)
        return
    found = iter(results)
    for request, places in shares:
        request.results |= zip(places, found)
        if len(request.results) == len(request.items):
            with contextlib.suppress(InvalidStateError):  # it was cancelled
                request.future.set_result(
                    [request.results[n] for n in range(len(request.items))]
                )
