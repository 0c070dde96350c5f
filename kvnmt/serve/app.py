# SPDX-License-Identifier: Apache-2.0
"""The addresses of the service, as an application of Starlette.

Whatever goes wrong is answered by a JSON object whose ``error`` is one sentence.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from kvnmt import __version__
from kvnmt.console import json_bytes
from kvnmt.errors import OptionError, UserError
from kvnmt.evaluation.exploration import difference
from kvnmt.inference.describe import grouped, join
from kvnmt.serve.batcher import Batcher, FullError
from kvnmt.serve.body import has_ended, read_body
from kvnmt.serve.guard import Guard
from kvnmt.serve.limits import GONE, Limits, Refusal
from kvnmt.serve.questions import Asker, Question, read_json
from kvnmt.serve.service import Service
from kvnmt.serve.traffic import KIND, Noting, Traffic

T = TypeVar("T")
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True)
class Answers:
    """What stands behind the addresses."""

    service: Service
    batcher: Batcher
    asker: Asker
    guard: Guard
    limits: Limits
    page: str  # of the explorer
    traffic: Traffic

    async def explorer(self, request: Request) -> Response:
        """GET /: the page."""
        self.guard.check(request.headers)
        return HTMLResponse(self.page, headers=HEADERS)

    async def health(self, request: Request) -> Response:
        """GET /health: whether it is ready, and how busy; a token is not needed."""
        compiling = self.service.compiling()
        plain = {
            "status": "ready" if compiling is None else "compiling",
            "compiling_seconds": round(compiling or 0.0, 3),
            "waiting_lines": self.batcher.waiting(),
        }
        with contextlib.suppress(Refusal):
            self.guard.check(request.headers)
            plain |= {"systems": [*self.service.runs], "version": __version__}
        return _json(plain)

    async def metrics(self, request: Request) -> Response:
        """GET /metrics: what was asked so far, as Prometheus reads it."""
        self.guard.check(request.headers)
        now = {
            "compiling_seconds": self.service.compiling() or 0.0,
            "waiting_lines": self.batcher.waiting(),
        }
        return Response(self.traffic.text(now), headers=HEADERS, media_type=KIND)

    async def translate(self, request: Request) -> Response:
        """POST /translate: lines to their translations."""
        question = await self._read(self.asker.translation, request)
        (records,) = await self._ask(request, [question])
        return _json({"translations": [join(parts) for parts in records]})

    async def score(self, request: Request) -> Response:
        """POST /score: pairs of lines to log-probabilities."""
        question = await self._read(self.asker.score, request)
        (records,) = await self._ask(request, [question])
        return _json({"scores": [record for (record,) in records]})

    async def explore(self, request: Request) -> Response:
        """POST /explore: a line to what the explorer's page shows of it."""
        line, questions = await self._read(self.asker.exploration, request)
        records = await self._ask(request, questions)
        outputs = [output for ((output,),) in records]
        plain = {
            "source": line,
            "reference": None,
            "difference": round(difference([one["text"] for one in outputs]), 2),
            "outputs": outputs,
        }
        return _json(plain)

    async def _read(self, read: Callable[[Any], T], request: Request) -> T:
        """What is asked; long lines take a while to cut, in a thread of its own."""
        body = await self._body(request)
        request.state.until = asyncio.get_running_loop().time() + self.limits.seconds
        try:
            async with asyncio.timeout_at(request.state.until):
                return await asyncio.to_thread(read, body)
        except TimeoutError:
            raise self._late() from None

    async def _body(self, request: Request) -> dict[str, Any]:
        """The JSON object that was sent, by one who may ask."""
        try:
            self._admit(request.headers)
        except Refusal:
            # Who waits to be asked for the body has not begun to send it.
            if request.headers.get("expect", "").lower() != "100-continue":
                with contextlib.suppress(Refusal):
                    await read_body(request, self.limits, kept=False)
            raise
        return read_json(await read_body(request, self.limits))

    def _admit(self, headers: Headers) -> None:
        """Refuses what can be refused before its body is read."""
        self.guard.check(headers)
        if self.batcher.waiting() >= self.limits.waiting:
            raise _full()  # before long lines are cut
        kind = headers.get("content-type", "").partition(";")[0].strip()
        if kind.lower() != "application/json":
            raise Refusal(415, "send JSON, with 'Content-Type: application/json'.")

    async def _ask(
        self, request: Request, questions: Sequence[Question]
    ) -> list[list[list[Any]]]:
        """The results of every line of every question."""
        futures: list[Future[list[Any]]] = []
        try:
            for task, items in questions:
                flat = [item for several in items for item in several]
                futures.append(self.batcher.submit(task, flat))
            answers = await self._wait(request, futures)
        except FullError:
            raise _full() from None
        except OptionError:
            raise  # an option that the system cannot have
        except UserError as error:  # the question was read, so the system is at fault
            raise Refusal(500, str(error)) from None
        finally:
            for future in futures:
                future.cancel()  # what nobody waits for leaves the queue
        return [[*grouped(one, asked.items)] for one, asked in zip(answers, questions)]

    async def _wait(
        self, request: Request, futures: Sequence["Future[list[Any]]"]
    ) -> list[list[Any]]:
        """The results, unless the time is over or the client goes away first."""
        answers = asyncio.gather(*map(asyncio.wrap_future, futures))
        gone = asyncio.ensure_future(_gone(request))
        try:
            await asyncio.wait(
                (answers, gone),
                timeout=max(request.state.until - asyncio.get_running_loop().time(), 0),
                return_when=asyncio.FIRST_COMPLETED,
            )
            if answers.done():
                return answers.result()
            if gone.done():
                raise Refusal(GONE, "the client went away.")
            raise self._late()
        except asyncio.CancelledError:
            raise Refusal(503, "the service ends before this is answered.") from None
        finally:
            gone.cancel()
            answers.cancel()
            # Looked at, so that asyncio does not tell of it.
            answers.add_done_callback(lambda one: one.cancelled() or one.exception())

    def _late(self) -> Refusal:
        compiles = self.service.compiling() is not None
        why = "a program is being compiled" if compiles else "busy"
        return Refusal(
            504,
            f"there was no answer within {self.limits.seconds:g} s ({why}); ask "
            "again, with fewer lines.",
        )


def _full() -> Refusal:
    return Refusal(503, "too many lines wait already; ask again in a moment.")


def make_app(answers: Answers) -> Starlette:
    """The application."""
    gets = {
        "/": answers.explorer,
        "/health": answers.health,
        "/metrics": answers.metrics,
    }
    posts = {
        "/translate": answers.translate,
        "/score": answers.score,
        "/explore": answers.explore,
    }
    handlers: dict[Any, Callable[[Request, Any], Awaitable[Response]]] = {
        Refusal: _refused,
        UserError: _mistaken,
        HTTPException: _not_found,
    }
    noting = {"traffic": answers.traffic, "paths": {*gets, *posts}}
    across = Middleware(
        CORSMiddleware,
        allow_origins=answers.guard.origins,
        allow_methods=("GET", "POST"),
        allow_headers=("Authorization", "Content-Type"),
    )
    app = Starlette(
        routes=[
            *(Route(path, act) for path, act in gets.items()),
            *(Route(path, act, methods=["POST"]) for path, act in posts.items()),
        ],
        middleware=[
            Middleware(Noting, **noting),
            *([across] if answers.guard.origins else []),
            # Starlette's own stands around all, and pages of origins cannot read it.
            Middleware(ServerErrorMiddleware, handler=_failed),
        ],
        exception_handlers=handlers,
    )
    # Another address would be told before it is known who asks, and by which name.
    app.router.redirect_slashes = False
    return app


async def _refused(request: Request, refusal: Refusal) -> Response:
    extra = {
        401: {"WWW-Authenticate": 'Basic realm="kvnmt", charset="UTF-8"'},
        503: {"Retry-After": "1"},
    }
    headers = extra.get(refusal.status, {})
    if not has_ended(request):  # what still comes is not waited for
        headers = headers | {"Connection": "close"}
    return _error(refusal.message, refusal.status, headers)


async def _mistaken(request: Request, error: UserError) -> Response:
    return _error(str(error), 400, {})


async def _not_found(request: Request, error: HTTPException) -> Response:
    what = {
        404: "there is nothing at this address; see GET /.",
        405: "this address is asked by another method; see GET /.",
    }
    message = what.get(error.status_code, f"{error.detail}.")
    return _error(message, error.status_code, dict(error.headers or {}))


async def _failed(request: Request, error: Exception) -> Response:
    return _error("the service failed; its log says why.", 500, {})


def _error(message: str, status: int, headers: dict[str, str]) -> Response:
    return _json({"error": message}, status, headers)


def _json(
    plain: dict[str, Any], status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    body = json_bytes(plain, allow_nan=False)
    kind = "application/json"
    return Response(body, status, HEADERS | (headers or {}), media_type=kind)


async def _gone(request: Request) -> None:
    """Returns once the client has gone away."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
