# SPDX-License-Identifier: Apache-2.0
"""The process that serves: a socket, uvicorn, and how both end."""

import contextlib
import signal
import socket
import threading
from collections.abc import Callable
from typing import Any, NoReturn

import uvicorn

from kvnmt.errors import StoppedError, UserError
from kvnmt.evaluation.exploration import system
from kvnmt.inference.config import SearchConfig
from kvnmt.pictures.explorer import live_page
from kvnmt.runs.directory import Run
from kvnmt.serve.app import Answers, make_app
from kvnmt.serve.batcher import Batcher, FullError
from kvnmt.serve.guard import Guard
from kvnmt.serve.limits import Limits
from kvnmt.serve.questions import Asker
from kvnmt.serve.service import Service, most_rows

LEAVING = 5.0  # seconds beyond the time limit of requests until a stop is forced
HANDLED = (signal.SIGTERM, signal.SIGINT)


def serve(
    runs: dict[str, Run],
    search: SearchConfig,
    limits: Limits,
    guard: Guard,
    address: tuple[str, int],
    *,
    compile_first: bool = True,
    tell: Callable[[str], None] = lambda message: None,
) -> NoReturn:
    """Serves until a signal comes; what was asked before is answered.

    Args:
        runs: Trained models by name.
        search: How is searched, unless a request says otherwise.
        limits: Of requests.
        guard: Who may ask.
        address: Host and port; 0 for a free one.
        compile_first: Compile at the start what short lines need.
        tell: Told where it serves, and that it leaves.

    Raises:
        UserError: The address cannot be used.
        StoppedError: A signal came.
    """
    listening = listen(*address)
    service = Service(runs)
    batcher = Batcher(service, size=most_rows, room=limits.waiting)
    page = live_page([system(name, run) for name, run in runs.items()])
    asker = Asker(runs, search, limits)
    answers = Answers(service, batcher, asker, guard, limits, page)
    config = uvicorn.Config(
        make_app(answers),
        log_level="warning",
        access_log=False,
        lifespan="off",
        ws="none",
        http="h11",
        server_header=False,
        timeout_graceful_shutdown=int(limits.seconds + LEAVING) + 1,
    )
    if compile_first:
        threading.Thread(target=_compile, args=(batcher, service, search)).start()
    host, port = listening.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    tell(f"serving {', '.join(runs)} at http://{shown}:{port}/")
    with _stopping(tell):
        try:
            uvicorn.Server(config).run(sockets=[listening])
        finally:
            batcher.close(LEAVING)
    raise StoppedError("stopped.", signal.SIGTERM)


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
        reason = getattr(error, "strerror", None) or error
        raise UserError(
            f"nothing can be served at --host {host} --port {port}: {reason}."
        ) from None


def _compile(batcher: Batcher, service: Service, search: SearchConfig) -> None:
    """Asks for what needs the usual programs, a batch after the other."""
    for task, lines in service.usual(search):
        with contextlib.suppress(FullError):
            batcher.submit(task, lines).exception()


@contextlib.contextmanager
def _stopping(tell: Callable[[str], None]) -> Any:
    """Within it, a signal that uvicorn passes on once all is answered is told."""

    def stop(number: int, frame: object) -> NoReturn:
        raise StoppedError(f"{signal.Signals(number).name}: all is answered.", number)

    before = {number: signal.signal(number, stop) for number in HANDLED}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
