# SPDX-License-Identifier: Apache-2.0
"""Processes that work together: none waits for one that has failed.

JAX knows of no failure but that of a machine: who waits on a device for a process that
never comes does so for minutes, and is then aborted in the words of C++. Here a process
that fails writes so into the store that all share, and the others, which look there in
a thread, end soon after. What they know before they meet on devices they compare there,
too, where nobody's time runs out.
"""

import atexit
import itertools
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import jax
from jax._src import distributed  # no public name leads to the store of all processes

from kvnmt.errors import StoppedError, UserError, tell

LOOK = 0.5  # seconds between two looks whether another has failed
GRACE = 30.0  # seconds that the others have to end by themselves, once one has failed
DAY = 86_400_000  # milliseconds; text may take one process longer than another
ANOTHER = "another process has failed; it says why."
FAILED, GONE = "kvnmt/failed", "kvnmt/gone"
_numbers = itertools.count()  # the same in all processes, which do the same


def store() -> Any:
    """What all processes write to and read."""
    return distributed.global_state.client


@contextmanager
def together() -> Iterator[None]:
    """Within it this process ends where another fails, and the others where it does.

    One that fails ends with what it says, and status 2 if that is a user's mistake.
    """
    if jax.process_count() == 1:
        yield
        return
    ended = threading.Event()
    threading.Thread(target=_watch, args=(ended,), daemon=True).start()
    try:
        yield
    except StoppedError:  # all leave by themselves
        raise
    except BaseException as error:
        status = 130 if isinstance(error, KeyboardInterrupt) else 1
        # What a device says of a process that is gone is no news.
        is_echo = isinstance(error, Exception) and bool(_named(FAILED))
        _write(FAILED)
        if is_echo or isinstance(error, UserError):
            status = 2
        # Before JAX waits there for the others to come to the end.
        atexit.register(_leave, status)
        if is_echo and not isinstance(error, UserError):
            raise UserError(ANOTHER) from None
        raise
    finally:
        ended.set()  # JAX takes the store away when Python ends


def check_alike(what: str) -> None:
    """Waits for all processes, however long they need, and compares what they have.

    Args:
        what: Tells apart what must be the same: configs, vocabularies, texts.

    Raises:
        UserError: This one has another than the first.
    """
    if jax.process_count() == 1:
        return
    place = f"kvnmt/alike/{next(_numbers)}"
    if jax.process_index() == 0:
        store().key_value_set(place, what)
    if store().blocking_key_value_get(place, DAY) != what:
        raise UserError(
            "this process has other choices or other text than the first; start all "
            "with the same flags, and give them the same files."
        )
    store().wait_at_barrier(place, DAY)


def _watch(ended: threading.Event) -> None:
    """Ends this process some time after another one has failed, unless it has ended."""
    while not _named(FAILED):
        if ended.wait(LOOK):
            return
    if ended.wait(GRACE):
        return
    tell(f"kvnmt: {ANOTHER}")
    _leave(2)


def _leave(status: int) -> None:
    """Ends this process at once; the first, which has the store, as the last."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    _write(GONE)
    end = time.monotonic() + 2 * GRACE
    while jax.process_index() == 0 and time.monotonic() < end:
        if len(_named(GONE)) == jax.process_count():
            break
        time.sleep(LOOK)
    os._exit(status)


def _write(folder: str) -> None:
    store().key_value_set(f"{folder}/{jax.process_index()}", "", allow_overwrite=True)


def _named(folder: str) -> list[Any]:
    return store().key_value_dir_get(folder)
