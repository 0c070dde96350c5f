# SPDX-License-Identifier: Apache-2.0
"""The process that serves: a socket, uvicorn, and how both end."""

import atexit
import contextlib
import os
import signal
import socket
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn

import uvicorn

from kvnmt.console import say
from kvnmt.errors import StoppedError, UserError, first_line
from kvnmt.evaluation.exploration import system
from kvnmt.inference.config import SearchConfig
from kvnmt.inference.shortlist import Shortlist
from kvnmt.pictures.explorer import live_page
from kvnmt.runs.directory import Run
from kvnmt.serve.app import Answers, make_app
from kvnmt.serve.batcher import Batcher, FullError
from kvnmt.serve.guard import Guard
from kvnmt.serve.limits import Limits
from kvnmt.serve.questions import Asker
from kvnmt.serve.service import Service, length, most_rows
from kvnmt.serve.traffic import Traffic

KEPT = 75  # seconds after an answer until a connection ends; proxies hold them 60
LEAVING = 5.0  # seconds beyond the time limit of requests until a stop is forced
HANDLED = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True)
class Serving:
    """What a service is made of, once it can answer."""

    service: Service
    batcher: Batcher
    server: uvicorn.Server

    def run(self, listening: socket.socket) -> None:
        """Answers until it is told to stop; what was asked before is answered."""
        # Nobody is to read of a signal that comes before uvicorn hears any.
        warnings.filterwarnings("ignore", "coroutine 'Server.serve' was never awaited")
        try:
            self.server.run(sockets=[listening])
        finally:
            # Nobody waits for the usual programs.
            self.batcher.close(0 if self.service.preparing else LEAVING)

    def compile(self, search: SearchConfig) -> None:
        """Compiles the usual programs by asking for batches that need them, one by one.

        If one cannot be used, the log says why, and so do answers that need it.
        """
        try:
            for task, lines in self.service.usual(search):
                with contextlib.suppress(FullError):
                    if error := self.batcher.submit(task, lines).exception():
                        say(f"the usual programs cannot be used: {first_line(error)}.")
                        return
        finally:
            self.service.preparing = False


def make_serving(
    runs: dict[str, Run],
    search: SearchConfig,
    limits: Limits,
    guard: Guard,
    shortlists: Mapping[str, Shortlist] = {},
    log: Path | None = None,
) -> Serving:
    """Puts a service together.

    Args:
        runs: Trained models by name.
        search: How is searched, unless a request says otherwise.
        limits: Of requests.
        guard: Who may ask.
        shortlists: As of `kvnmt.serve.service.Service`.
        log: As of `kvnmt.serve.traffic.Traffic`.
    """
    service = Service(runs, shortlists)
    batcher = Batcher(service, size=most_rows, length=length, room=limits.waiting)
    page = live_page([system(name, run) for name, run in runs.items()])
    asker = Asker(service.runs, search, limits)
    answers = Answers(service, batcher, asker, guard, limits, page, Traffic(log))
    config = uvicorn.Config(
        make_app(answers),
        log_level="error",  # warnings are of clients that speak no HTTP
        access_log=False,
        timeout_keep_alive=KEPT,
        lifespan="off",
        ws="none",
        http="h11",
        server_header=False,
        timeout_graceful_shutdown=int(limits.seconds + LEAVING) + 1,
    )
    return Serving(service, batcher, _Server(config))


class _Server(uvicorn.Server):
    """Ignores what was ignored at the start, as a shell lets background jobs do."""

    def __init__(self, config: uvicorn.Config):
        """Notes which they are: Uvicorn listens to all."""
        super().__init__(config)
        ignoring = signal.SIG_IGN
        self._ignored = {n for n in HANDLED if signal.getsignal(n) is ignoring}

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Ends the service."""
        if sig not in self._ignored:
            super().handle_exit(sig, frame)


def serve(
    serving: Serving,
    listening: socket.socket,
    search: SearchConfig | None,
    tell: Callable[[str], None],
) -> NoReturn:
    """Serves until a signal comes.

    Args:
        serving: What is served.
        listening: Where.
        search: Of the programs that are compiled at the start; None: none are.
        tell: Told where it serves.

    Raises:
        StoppedError: A signal came; it tells whether all that was asked is answered.
    """
    if search is not None:
        serving.service.preparing = True
        threading.Thread(target=serving.compile, args=(search,), daemon=True).start()
    host, port = listening.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    try:
        with _stopping(serving.server):
            tell(f"serving {', '.join(serving.service.runs)} at http://{shown}:{port}/")
            serving.run(listening)
    except StoppedError as stopped:
        if not serving.batcher.close(0):
            # Python's end would tear a thread out of the compiler, which then aborts.
            atexit.register(os._exit, stopped.status)
        raise
    raise UserError("the service ended by itself; its log says why.")


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens.

    Raises:
        UserError: The address is none of this machine, or is taken.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, *_, where = found[0]
        return socket.create_server(where[:2], family=family, backlog=512)
    except (OSError, OverflowError, UnicodeError) as error:
        number = getattr(error, "errno", None) or 0
        reason = os.strerror(number) if number > 0 else error
        raise UserError(
            f"nothing can be served at --host {host} --port {port}: {reason}."
        ) from None


@contextlib.contextmanager
def _stopping(server: uvicorn.Server) -> Iterator[None]:
    """Within it a signal ends the work.

    Uvicorn passes it on once all is answered, the time for that is over, or a second
    SIGINT has come.
    """

    def stop(number: int, frame: object) -> NoReturn:
        name = signal.Signals(number).name
        what = "not all" if server.server_state.connections else "all"
        raise StoppedError(f"{name}: {what} that was asked is answered.", number)

    before = {
        number: signal.signal(number, stop)
        for number in HANDLED
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
