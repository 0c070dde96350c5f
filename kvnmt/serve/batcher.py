# SPDX-License-Identifier: Apache-2.0
"""Requests that wait, and the threads that work on items of several at once.

Items of one task share batches, whoever sent them: what comes within a few
milliseconds, or while the batch before is under way, may go together. A batch is made
of an item of the request whose turn it is and of those that are most like it in length,
since all of a batch take as long as the longest. Requests take turns, so that a short
one does not wait for the end of a long one. What was cancelled leaves the queue; what
is under way is finished and thrown away.

A batch that would hold up all others for seconds, because a program has to be compiled,
is put aside: a second thread works on such batches, one after the other, while the
first goes on with what is ready.
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from functools import partial
from itertools import starmap
from typing import Any, NamedTuple, TypeAlias

# Makes results of a task and its items, as many, in their order; the last argument is
# whether it may take long. If it would and may not, it raises `NotReadyError`.
Work: TypeAlias = Callable[[Any, list[Any], bool], Sequence[Any]]


class FullError(Exception):
    """So many items wait already that more are not taken, or the batcher is closed."""


class NotReadyError(Exception):
    """Something has to be made first, while which others need not wait."""


@dataclass(eq=False)
class _Request:
    """Items of one task that are answered together."""

    task: Hashable
    items: Sequence[Any]
    places: list[int]  # of the items that wait
    arrived: float
    future: "Future[list[Any]]" = field(default_factory=Future)
    results: dict[int, Any] = field(default_factory=dict)  # by place

    @property
    def left(self) -> int:
        """How many items wait; none once nobody wants them."""
        return 0 if self.future.done() else len(self.places)


class _Share(NamedTuple):
    """What one request has in a batch."""

    request: _Request
    places: Sequence[int]

    @property
    def size(self) -> int:
        """How many items it has; none once nobody wants them."""
        return 0 if self.request.future.done() else len(self.places)


class Batcher:
    """A bounded queue with a thread that empties it, and one for what is put aside."""

    def __init__(
        self,
        work: Work,
        *,
        size: Callable[[Any, Any], int],
        length: Callable[[Any, Any], int],
        room: int,
        wait: float = 0.004,
    ):
        """Starts the threads.

        Args:
            work: What is done with a batch.
            size: Most items of a batch of this task that begins with this item.
            length: Of an item of a task; items of similar length go together. If all
                are equal, a request's items go in their order.
            room: Most items that wait.
            wait: Seconds that an item waits for others, while nothing is under way.
        """
        self._work, self._size, self._length = work, size, length
        self._room, self._wait = room, wait
        self._requests: list[_Request] = []
        self._aside: deque[list[_Share]] = deque()  # batches
        self._changed = threading.Condition()
        self._closed = self._emptied = False
        self._threads = [_started(self._run), _started(self._run_aside)]

    def submit(self, task: Hashable, items: Sequence[Any]) -> "Future[list[Any]]":
        """Puts items into the queue; the future's result has one for each.

        Cancelling the future takes the items out again.

        Raises:
            FullError: There is no room for them.
        """
        request = _Request(task, items, [*range(len(items))], time.monotonic())
        if not items:
            request.future.set_result([])
            return request.future
        with self._changed:
            # A request is taken into an empty queue, however large it is.
            waiting = self._waiting()
            if self._closed or (waiting and waiting + len(items) > self._room):
                raise FullError
            self._requests.append(request)
            self._changed.notify_all()
        return request.future

    def waiting(self) -> int:
        """How many items wait."""
        with self._changed:
            return self._waiting()

    def close(self, seconds: float) -> bool:
        """Takes nothing more; whether what waits is done in at most so many seconds.

        Else it is dropped, and a thread may still compile.
        """
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        until = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(until - time.monotonic(), 0))
        return not any(thread.is_alive() for thread in self._threads)

    def _waiting(self) -> int:
        return self._queued() + sum(one.size for each in self._aside for one in each)

    def _queued(self) -> int:
        self._requests = [one for one in self._requests if one.left]
        return sum(one.left for one in self._requests)

    def _run(self) -> None:
        while shares := self._next():
            self._answer(shares, long=False)
        with self._changed:
            self._emptied = True
            self._changed.notify_all()

    def _run_aside(self) -> None:
        while shares := self._next_aside():
            self._answer(shares, long=True)

    def _next_aside(self) -> list[_Share]:
        """What was put aside first and is still wanted; nothing at the end."""
        with self._changed:
            while self._aside or not self._emptied:
                if not self._aside:
                    self._changed.wait()
                elif shares := [one for one in self._aside.popleft() if one.size]:
                    return shares
            return []

    def _next(self) -> list[_Share]:
        """The next batch, once there is one; nothing once closed and empty."""
        with self._changed:
            while self._queued() or not self._closed:
                if not self._requests:
                    self._changed.wait()
                    continue
                first = self._requests[0]
                size = self._size(first.task, first.items[first.places[0]])
                self._gather(first, size)
                if shares := self._take(first):
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

    def _take(self, first: _Request) -> list[_Share]:
        """A batch with an item of a request, whose turn is last from now on."""
        if not first.left:
            return []
        same = [one for one in self._requests if one.task == first.task and one.left]
        of_task = (partial(each, first.task) for each in (self._size, self._length))
        shares = _most_alike(first, same, *of_task)
        for request, places in shares:
            request.places = [one for one in request.places if one not in places]
        self._requests.remove(first)
        self._requests.append(first)
        return shares

    def _answer(self, shares: list[_Share], long: bool) -> None:
        """Works on a batch; an error is told to those alone whose items cause it."""
        try:
            items = [one.items[place] for one, places in shares for place in places]
            results = self._work(shares[0].request.task, items, long)
        except NotReadyError:
            with self._changed:
                self._aside.append(shares)
                self._changed.notify_all()
        except BaseException as error:
            if len(shares) > 1:
                for share in shares:
                    self._answer([share], long)
            else:
                _settle(shares[0].request, error)
        else:
            _tell(shares, results)


def _started(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def _most_alike(
    first: _Request,
    same: Sequence[_Request],
    size: Callable[[Any], int],
    length: Callable[[Any], int],
) -> list[_Share]:
    """The first item of a request, and the items of its task that are most like it.

    There are as many as fit into the batch of every one of them.
    """
    like = length(first.items[first.places[0]])
    near = [
        (abs(length(one.items[place]) - like), one, place)
        for one in same
        for place in one.places
    ]
    near.sort(key=lambda entry: entry[0])
    taken: dict[_Request, list[int]] = {}
    count, room = 0, len(near)
    for _, request, place in near:
        if count >= room:
            break
        own = size(request.items[place])
        if count < own:
            taken.setdefault(request, []).append(place)
            count, room = count + 1, min(room, own)
    return list(starmap(_Share, taken.items()))


def _tell(shares: Sequence[_Share], results: Iterable[Any]) -> None:
    """Gives results to their requests, in the order of a batch's items."""
    found = iter(results)
    for request, places in shares:
        request.results |= zip(places, found)
        if len(request.results) == len(request.items):
            _settle(request)


def _settle(request: _Request, error: BaseException | None = None) -> None:
    """Gives a request its results or an error, unless it was cancelled."""
    with contextlib.suppress(InvalidStateError):
        if error is None:
            places = range(len(request.items))
            request.future.set_result([request.results[n] for n in places])
        else:
            request.future.set_exception(error)
