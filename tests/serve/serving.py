# SPDX-License-Identifier: Apache-2.0
"""A service on a free port, for tests; its work can be held up."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx

from kvnmt.inference.config import SearchConfig
from kvnmt.inference.shortlist import Shortlist
from kvnmt.runs.directory import Run
from kvnmt.serve.guard import Guard, guard_of
from kvnmt.serve.limits import Limits
from kvnmt.serve.server import Serving, listen, make_serving

# Two programs for each kind of question: 8 and 16 rows on the four devices of tests.
SEARCH = SearchConfig(beam=2, max_length=8, batch_size=16)
LIMITS = Limits(lines=40, characters=300, tokens=12, kilobytes=16, beam=4, sending=2)


@dataclass
class Started:
    """A service that answers, and what one asks it with."""

    serving: Serving
    port: int
    gate: threading.Event  # shut, no batch is worked on
    begun: threading.Semaphore  # has one for every batch that was begun
    work: Any  # the `Service` behind it

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def post(self, path: str, plain: Any, **options: Any) -> httpx.Response:
        return httpx.post(f"{self.url}{path}", json=plain, timeout=60, **options)

    def get(self, path: str, **options: Any) -> httpx.Response:
        return httpx.get(f"{self.url}{path}", timeout=60, **options)

    def waiting(self) -> int:
        return self.get("/health").json()["waiting_lines"]


@contextmanager
def started(
    runs: dict[str, Run],
    *,
    guard: Guard | None = None,
    search: SearchConfig = SEARCH,
    shortlists: Mapping[str, Shortlist] = {},
    log: Path | None = None,
    **limits: Any,
) -> Iterator[Started]:
    """Serves within it."""
    guard = guard or guard_of("127.0.0.1", None)
    bounds = replace(LIMITS, **limits)
    serving = make_serving(runs, search, bounds, guard, shortlists, log)
    gate, begun = threading.Event(), threading.Semaphore(0)
    work = serving.batcher._work
    gate.set()

    def held(task: Any, items: list[Any], long: bool) -> Any:
        begun.release()
        assert gate.wait(60)
        return work(task, items, long)

    serving.batcher._work = held
    listening = listen("127.0.0.1", 0)
    thread = threading.Thread(target=serving.run, args=(listening,))
    thread.start()
    try:
        yield Started(serving, listening.getsockname()[1], gate, begun, work)
    finally:
        gate.set()
        serving.server.should_exit = True
        thread.join(60)
        listening.close()
        assert not thread.is_alive()
