# SPDX-License-Identifier: Apache-2.0
"""Orbax's event loops end once everything in them has ended, after a failure, too.

Orbax closes a loop at the first array that cannot be written, while others are still
being written. Each of those then prints a traceback that nobody can act on: the first
error says it all. It has no setting for that.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from orbax.checkpoint._src import asyncio_utils

T = TypeVar("T")


def run_to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Runs work in a loop of its own, and whatever it began there to its end."""
    loop = asyncio.new_event_loop()
    try:
        asyncio.set_event_loop(loop)
        return loop.run_until_complete(work)
    finally:
        begun = asyncio.all_tasks(loop)
        if begun:
            loop.run_until_complete(asyncio.wait(begun))
        for task in begun:
            _ = task.cancelled() or task.exception()  # seen, so that nothing logs it
        asyncio.set_event_loop(None)
        loop.close()


def wait_in_loops() -> None:
    """Makes orbax run its loops so, in this process."""
    asyncio_utils._run_sync_via_new_loop = run_to_the_end
