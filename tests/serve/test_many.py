# SPDX-License-Identifier: Apache-2.0
"""Many askers at once: nothing is lost or mixed up, and none holds up the others.

``KVNMT_CLIENTS=64 KVNMT_SECONDS=60`` lets so many ask among others, so long; how much
was answered is printed (``-s``).
"""

import gc
import itertools
import json
import os
import random
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import httpx
import pytest

from kvnmt.inference.translate import translate_lines
from kvnmt.serve import server, works
from tests.helpers import toy_lines
from tests.serve.asking import JSON, LINES, refused, translations
from tests.serve.serving import SEARCH, Started, started

CLIENTS = int(os.environ.get("KVNMT_CLIENTS", "12"))
SECONDS = float(os.environ.get("KVNMT_SECONDS", "0"))  # six requests of each at least


def until(what: Callable[[], bool]) -> None:
    for _ in range(500):
        if what():
            return
        time.sleep(0.01)
    raise AssertionError("it did not happen")


def raw(service: Started, plain: object) -> socket.socket:
    """A connection on which a question was begun."""
    body = json.dumps(plain).encode()
    connection = socket.create_connection(("127.0.0.1", service.port))
    lines = (
        "POST /translate HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Content-Length: {len(body)}\r\n"
        "Content-Type: application/json\r\n\r\n"
    )
    connection.sendall(lines.encode() + body)
    return connection


def test_nothing_is_lost_or_mixed_up_among_many(service, runs):
    """While others send nonsense, read slowly, send slowly or are killed."""
    lines = toy_lines(9, 60)
    expected = dict(zip(lines, translate_lines(runs["plain"], lines, SEARCH)))
    assert len({*expected.values()}) > 20

    def honest(seed: int) -> None:
        drawn = random.Random(seed)
        with httpx.Client(base_url=service.url, timeout=60) as client:
            for _ in range(6):
                asked = drawn.choices(lines, k=drawn.choice([1, 1, 1, 5, 20]))
                found = translations(client.post("/translate", json={"lines": asked}))
                assert found == [expected[line] for line in asked]
                answered.append(len(asked))

    def killed(seed: int) -> None:
        for _ in range(6):
            raw(service, {"lines": lines[:30]}).close()

    def slow_reader(seed: int) -> None:
        asked = {"lines": lines[:30], "alignments": True}
        with raw(service, asked) as connection:
            found, start = b"", time.monotonic()
            while time.monotonic() < start + 1:
                found += connection.recv(100)
                time.sleep(0.02)
            assert found.startswith(b"HTTP/1.1 200")

    def slow_sender(seed: int) -> None:
        with socket.create_connection(("127.0.0.1", service.port)) as connection:
            connection.sendall(
                b"POST /translate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99\r\n"
                b"Content-Type: application/json\r\n\r\n{"
            )
            assert connection.recv(8).startswith(b"HTTP/1.1")
            connection.settimeout(3)  # less than one is kept that goes on
            told = b"".join(iter(partial(connection.recv, 4096), b""))
            assert told.startswith(b" 408")

    def nonsense(seed: int) -> None:
        for _ in range(4):
            with socket.create_connection(("127.0.0.1", service.port)) as connection:
                connection.sendall(random.Random(seed).randbytes(500) + b"\r\n\r\n")
                with suppress(ConnectionError):
                    connection.recv(100)

    def large(seed: int) -> None:
        sent = {"content": b" " * 200_000, "headers": {"Content-Type": JSON}}
        found = httpx.post(f"{service.url}/translate", timeout=60, **sent)
        refused(found, 413, "16 KiB")

    others, answered = [killed, slow_reader, slow_sender, nonsense, large], []
    end = time.monotonic() + SECONDS

    def on_and_on(act: Callable[[int], None], seed: int) -> None:
        for turn in itertools.count():
            act(seed + 1000 * turn)
            if time.monotonic() >= end:
                return

    everybody = [*[honest] * CLIENTS, *others]
    with ThreadPoolExecutor(len(everybody)) as threads:
        work = [threads.submit(on_and_on, act, n) for n, act in enumerate(everybody)]
        for one in work:
            one.result(SECONDS + 120)
    until(lambda: service.waiting() == 0)
    print(f"{len(answered)} requests, {sum(answered)} lines")
    assert len(answered) >= 6 * CLIENTS


def test_who_goes_away_leaves_the_queue(runs, caplog, few_objects):
    with started(runs, seconds=60, waiting=30) as service:
        service.gate.clear()
        first = raw(service, {"lines": ["a"]})  # is under way, and does not end
        assert service.begun.acquire(timeout=60)
        gone = raw(service, {"lines": ["a"] * 29})
        until(lambda: service.waiting() == 29)
        full = service.post("/translate", {"lines": ["b"] * 2})
        refused(full, 503, "ask again")
        assert full.headers["retry-after"] == "1"
        assert "connection" not in full.headers
        # There is room for one of the two systems: for neither, then.
        refused(service.post("/explore", {"line": "a"}), 503, "ask again")
        assert service.waiting() == 29
        last = raw(service, {"lines": ["a"]})
        until(lambda: service.waiting() == 30)
        refused(service.post("/translate", {"lines": 1}), 503, "ask again")  # unread
        for connection in (gone, last):
            connection.close()
        until(lambda: service.waiting() == 0)
        left = 'path="/translate",status="499"} 2'
        until(lambda: left in service.get("/metrics").text)
        service.gate.set()
        assert first.recv(100).startswith(b"HTTP/1.1 200")
        first.close()
    gc.collect()
    assert not caplog.messages  # of a future that nobody looked at


def test_who_waits_too_long_is_told(runs, caplog, few_objects):
    with started({"plain": runs["plain"]}, seconds=1.5) as service:
        service.gate.clear()
        first = raw(service, {"lines": ["a"]})
        assert service.begun.acquire(timeout=60)
        late = service.post("/translate", {"lines": ["b"] * 2})
        refused(late, 504, "within 1.5 s")
        assert service.waiting() == 0
        assert first.recv(100).startswith(b"HTTP/1.1 504")
        first.close()
        service.gate.set()
        assert len(translations(service.post("/translate", {"lines": ["b"]}))) == 1
    gc.collect()
    assert not caplog.messages


def test_health_tells_of_a_program_that_is_compiled(runs, monkeypatch):
    """Who waits too long meanwhile is told; the next who asks has the program."""
    begun, go, search = threading.Event(), threading.Event(), works.translate_nbest

    def slow(*arguments, **options):
        begun.set()
        assert go.wait(60)
        return search(*arguments, **options)

    monkeypatch.setattr(works, "translate_nbest", slow)
    with started({"plain": runs["plain"]}, seconds=3) as service:
        late = service.post("/translate", LINES)
        refused(late, 504, "a program is being compiled")
        health = service.get("/health").json()
        assert health["status"] == "compiling" and health["compiling_seconds"] > 0.5
        go.set()
        until(lambda: service.get("/health").json()["status"] == "ready")
        assert len(translations(service.post("/translate", LINES))) == 1
        go.clear()
        begun.clear()
        with ThreadPoolExecutor(1) as threads:
            asked = threads.submit(service.post, "/translate", LINES)
            assert begun.wait(60)
            assert service.get("/health").json()["status"] == "ready"
            go.set()
            assert asked.result(60).status_code == 200


def test_health_waits_for_all_of_the_usual_programs(runs, monkeypatch):
    """And whoever cannot have them is told once; then it is as ready as it gets."""
    said, health = list[str](), list[dict[str, object]]()
    monkeypatch.setattr(server, "say", said.append)
    with started({"plain": runs["plain"]}) as service:

        def fails(*arguments, **options):
            health.append(service.get("/health").json())
            raise ValueError("no room")

        monkeypatch.setattr(works, "translate_nbest", fails)
        service.serving.service.preparing = True
        assert service.get("/health").json()["status"] == "compiling"
        service.serving.compile(SEARCH)
        assert service.get("/health").json()["status"] == "ready"
    assert [one["status"] for one in health] == ["compiling"]
    assert said == ["the usual programs cannot be used: no room."]


def test_who_needs_a_program_holds_up_nobody_else(runs, monkeypatch):
    begun, go, search = threading.Event(), threading.Event(), works.translate_nbest

    def slow(model, params, source, config, **options):
        if config.beam == 3:
            begun.set()
            assert go.wait(60)
        return search(model, params, source, config, **options)

    monkeypatch.setattr(works, "translate_nbest", slow)
    with started({"plain": runs["plain"]}) as service:
        service.work.aside = True  # as with one device
        (usual,) = translations(service.post("/translate", LINES))
        with ThreadPoolExecutor(2) as threads:
            wide = LINES | {"search": {"beam": 3}}
            asked = [threads.submit(service.post, "/translate", wide)]
            assert begun.wait(60)
            # Its search has a program, but not what reads the translation.
            asked.append(threads.submit(service.post, "/explore", {"line": "a"}))
            until(lambda: service.waiting() == 1)
            assert service.get("/health").json()["status"] == "compiling"
            assert translations(service.post("/translate", LINES)) == [usual]
            go.set()
            assert [one.result(60).status_code for one in asked] == [200, 200]


def test_stopping_answers_what_was_asked(runs):
    with started({"plain": runs["plain"]}) as service:
        service.gate.clear()
        with ThreadPoolExecutor(2) as threads:
            asked = [threads.submit(service.post, "/translate", LINES)]
            assert service.begun.acquire(timeout=60)
            asked.append(threads.submit(service.post, "/translate", LINES))
            until(lambda: service.waiting() == 1)
            service.serving.server.should_exit = True
            time.sleep(0.2)
            service.gate.set()
            assert all(len(translations(one.result(60))) == 1 for one in asked)
    with pytest.raises(httpx.ConnectError):
        service.get("/health")
