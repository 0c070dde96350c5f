# SPDX-License-Identifier: Apache-2.0
"""Work on one thing after the other, by this process or several, results in order."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, TypeVar

from kvnmt.errors import OptionError

Item = TypeVar("Item")
Result = TypeVar("Result")
_WORK: list[Callable[[Any], Any]] = []  # of a worker process


def in_order(
    work: Callable[[Item], Result], items: Iterable[Item], workers: int
) -> Iterator[Result]:
    """Yields ``work(item)`` for every item, reading few items ahead.

    Args:
        work: Is sent to the processes once.
        items: What is worked on.
        workers: How many processes; 0: this one.

    Raises:
        UserError: A process died.
    """
    if not workers:
        yield from map(work, items)
        return
    # Spawned, since a process that runs JAX has threads and must not be forked.
    context = multiprocessing.get_context("spawn")
    waiting: deque[Future[Result]] = deque()
    try:
        with ProcessPoolExecutor(workers, context, _install, (work,)) as pool:
            try:
                for item in items:
                    with _no_interrupts():
                        waiting.append(pool.submit(_run, item))
                    if len(waiting) > 2 * workers:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
    except BrokenProcessPool:
        raise OptionError(
            "a process that prepares text died, perhaps for want of memory, or since a "
            'script trains outside of `if __name__ == "__main__":`; choose fewer with '
            "{0}, or 0 for none.",
            "data.workers",
        ) from None


@contextmanager
def _no_interrupts() -> Iterator[None]:
    """Keeps Ctrl-C from this thread, and for ever from processes that it starts.

    A terminal sends it to all of them. This process stops the others.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_with_parent() -> None:
    """Ends this worker process once its parent is gone, which may have been killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _install(work: Callable[[Any], Any]) -> None:
    end_with_parent()
    _WORK[:] = [work]


def _run(item: Any) -> Any:
    return _WORK[0](item)
