# SPDX-License-Identifier: Apache-2.0
"""What was asked of a service: counted for GET /metrics, and noted line by line.

Metrics are text as Prometheus reads it. Of a request no text is kept.
"""

import os
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kvnmt.console import json_bytes, say
from kvnmt.errors import reason_of
from kvnmt.serve.limits import GONE

OTHER = "other"  # addresses that there are not: whoever asks would make new names
KIND = "text/plain; version=0.0.4; charset=utf-8"


class Traffic:
    """How many requests were answered, how, and in how many seconds."""

    def __init__(self, log: Path | None = None):
        """Nothing was asked yet.

        Args:
            log: A file that gets a line of JSON for each request; None: none does.
        """
        self._log, self._lock = log, threading.Lock()
        self._told = False  # that the file cannot be written
        self._requests: Counter[tuple[str, int]] = Counter()
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def note(self, path: str, status: int, seconds: float) -> None:
        """Counts a request, and writes it down.

        A service goes on while it cannot be written, and says so once.
        """
        with self._lock:
            self._requests[path, status] += 1
            self._seconds[path] += seconds
            if self._log is None:
                return
            record = {
                "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
                "path": path,
                "status": status,
                "seconds": round(seconds, 4),
            }
            try:
                with open(self._log, "ab", opener=_at_once) as file:
                    file.write(json_bytes(record) + b"\n")
                self._told = False
            except OSError as error:
                if not self._told:
                    why = f"cannot be written: {reason_of(error)}"
                    say(f"'{self._log}' {why}; until it can, requests are not noted")
                self._told = True

    def text(self, now: Mapping[str, float]) -> str:
        """All counts, and what else is known at this moment."""
        lines = ["# TYPE kvnmt_requests_total counter"]
        with self._lock:
            lines += [
                f'kvnmt_requests_total{{path="{path}",status="{status}"}} {count}'
                for (path, status), count in sorted(self._requests.items())
            ]
            lines.append("# TYPE kvnmt_seconds_total counter")
            lines += [
                f'kvnmt_seconds_total{{path="{path}"}} {seconds:.4f}'
                for path, seconds in sorted(self._seconds.items())
            ]
        for name, value in now.items():
            lines += [f"# TYPE kvnmt_{name} gauge", f"kvnmt_{name} {value:g}"]
        return "".join(f"{line}\n" for line in lines)


def _at_once(path: str, flags: int) -> int:
    """Opens a file; of a pipe that nobody reads it does not wait for a reader."""
    return os.open(path, flags | os.O_NONBLOCK, 0o666)


class Noting:
    """Middleware that notes every request once it is answered."""

    def __init__(
        self,
        app: ASGIApp,
        traffic: Traffic,
        paths: Collection[str],
    ):
        """Stands around an application.

        Args:
            app: What answers.
            traffic: What is told.
            paths: The addresses that there are.
        """
        self._app, self._traffic, self._paths = app, traffic, paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Lets the application answer."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        status, began = None, time.perf_counter()

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            status = status or GONE
            path = scope["path"] if scope["path"] in self._paths else OTHER
            self._traffic.note(path, status, time.perf_counter() - began)
