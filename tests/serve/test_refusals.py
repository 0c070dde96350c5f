# SPDX-License-Identifier: Apache-2.0
"""What the service refuses: bad questions, other pages, and who has no token."""

import base64
import json
import socket
import time
from contextlib import suppress
from dataclasses import replace

import httpx
import pytest

from kvnmt.errors import UserError
from kvnmt.serve.guard import Guard, guard_of
from kvnmt.serve.limits import Limits, Refusal
from kvnmt.serve.questions import Asker
from tests.serve.asking import JSON, LINES, refused, translations
from tests.serve.serving import SEARCH, started

TOKEN = "a token that is long enough"


def test_metrics_are_told_to_who_may_ask(runs):
    with started(runs, guard=guard_of("127.0.0.1", TOKEN)) as service:
        refused(service.get("/metrics"), 401, "token")
        assert service.get("/health").status_code == 200


BAD = [
    ("/translate", b"{", 400, "no JSON"),
    ("/translate", b"\xff{}", 400, "no JSON in UTF-8"),
    ("/translate", b"[" * 10_000, 400, "nested too deep"),
    ("/translate", b'{"lines": ["a"], "search": {"alpha": NaN}}', 400, "NaN"),
    ("/translate", b'{"lines": ["a"], "search": {"alpha": 1e999}}', 400, "a finite"),
    ("/translate", b'{"lines": ["\\ud800"]}', 400, "surrogate"),
    ("/translate", b'{"\\ud800": 1}', 400, "no field"),
    ("/translate", {"x" * 10_000: 1}, 400, "no field 'xxx"),
    ("/translate", [], 400, "no JSON object"),
    ("/translate", {}, 400, "'lines' is missing"),
    ("/translate", {"lines": "a"}, 400, "'lines' is missing, or no list"),
    ("/translate", {"lines": ["a", 1]}, 400, "line 2 of 'lines' is no string"),
    ("/translate", {"lines": ["a\nb"]}, 400, "line feed"),
    ("/translate", {"lines": ["a"] * 41}, 413, "41 lines but may have 40"),
    ("/translate", {"lines": ["a " * 149] * 40}, 413, "more than 512 lines once long"),
    (
        "/translate",
        {"lines": ["a"] * 33, "alignments": True},
        *(413, "for 33 alignments, once long"),
    ),
    (
        "/translate",
        {"lines": ["a " * 25] * 16, "alignments": True},
        *(413, "for 48 alignments, once long"),
    ),
    (
        "/translate",
        {"lines": ["a"] * 17, "alignments": True, "search": {"nbest": 2}},
        *(413, "for 34 alignments, once long"),
    ),
    ("/translate", {"lines": ["a" * 301]}, 413, "301 characters but may have 300"),
    ("/translate", {"lines": [], "line": 1}, 400, "did you mean 'lines'?"),
    ("/translate", {"text": "a b"}, 400, "no field 'text'. Known: "),
    ("/translate", LINES | {"beam": 2}, 400, "put it into 'search'"),
    ("/translate", LINES | {"search": {"top_k": 2}}, 400, "where the service is start"),
    (
        "/translate",
        LINES | {"search": {"sample": True, "nbest": 5}},
        400,
        "'nbest' may be 4 at most",
    ),
    ("/translate", LINES | {"system": "plane"}, 400, "did you mean 'plain'?"),
    ("/translate", LINES | {"system": ["plain"]}, 400, "no system"),
    ("/translate", LINES | {"alignments": 1}, 400, "neither true nor false"),
    ("/translate", LINES | {"prefixes": []}, 400, "1 lines but 0 prefixes"),
    ("/translate", LINES | {"prefixes": ["A " * 13]}, 413, "13 tokens"),
    ("/translate", LINES | {"search": {"baem": 2}}, 400, "did you mean 'beam'?"),
    ("/translate", LINES | {"search": {"length_extra": 9**9}}, 400, "for all"),
    ("/translate", LINES | {"search": {"beam": 5}}, 400, "may be 4 at most"),
    ("/translate", LINES | {"search": {"beam": 0}}, 400, "at least 1"),
    ("/translate", LINES | {"search": {"beam": True}}, 400, "a whole number"),
    ("/translate", LINES | {"search": {"beam": 2.0}}, 400, "a whole number"),
    ("/translate", LINES | {"search": {"unknown": 0}}, 400, "True or False"),
    ("/translate", LINES | {"search": {"seed": 2**40}}, 400, "at most 2147483647"),
    ("/translate", LINES | {"search": {"seed": 2}}, 400, "seed is for drawing words"),
    ("/translate", LINES | {"search": {"nbest": 3}}, 400, "holds no more"),
    ("/translate", LINES | {"search": {"normalization": "x"}}, 400, "one of gnmt"),
    ("/score", {"source": ["a"], "target": []}, 400, "1 source lines but 0"),
    ("/score", {"source": ["a"], "target": ["A " * 13]}, 413, "13 tokens"),
    ("/explore", {"line": None}, 400, "'line' is no string"),
    ("/explore", {"line": "a " * 13}, 413, "13 tokens"),
    ("/explore", {"line": "a", "prefixes": ["A"]}, 400, "for every system"),
    ("/explore", {"line": "a", "prefixes": ""}, 400, "for every system"),
]


@pytest.mark.parametrize("path, body, status, part", BAD)
def test_a_bad_question_is_refused_in_a_sentence(service, path, body, status, part):
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    kind = {"Content-Type": "application/json; charset=utf-8"}
    found = httpx.post(f"{service.url}{path}", content=content, headers=kind)
    refused(found, status, part)
    assert found.headers["x-content-type-options"] == "nosniff"


def test_a_field_that_is_null_is_not_there(service):
    fields = ("system", "search", "prefixes", "alignments")
    answer = service.post("/translate", LINES | dict.fromkeys(fields))
    assert answer.json() == service.post("/translate", LINES).json()


def test_other_addresses_methods_and_kinds_are_refused(service, runs):
    refused(service.get("/nothing"), 404, "nothing at this address")
    refused(service.post("/translate/", {"lines": ["a"]}), 404, "at this address")
    refused(service.get("/translate"), 405, "another method")
    form = httpx.post(f"{service.url}/translate", data={"lines": "a"})
    refused(form, 415, "application/json")
    huge = {"content": b" " * 10_000_000, "headers": {"Content-Type": JSON}}
    # Far too much is not read to its end, so that a client may not hear why.
    with suppress(httpx.WriteError, httpx.ReadError):
        httpx.post(f"{service.url}/translate", **huge)
    assert service.get("/health").json()["status"] == "ready"
    with started(runs, kilobytes=1024) as wider:
        refused(httpx.post(f"{wider.url}/translate", **huge), 413, "1024 KiB")


def test_who_is_refused_is_heard_out(runs, monkeypatch):
    """Unless that takes too long; else a client that sends may not hear why."""
    guard = guard_of("127.0.0.1", TOKEN)
    knows = {"Authorization": f"Bearer {TOKEN}", "Content-Type": JSON}

    def slowly():
        for _ in range(4):
            yield b" " * 50_000
            time.sleep(0.1)

    with started(runs, guard=guard, sending=3) as service:
        for status, headers in (
            (401, {}),
            (403, {"Origin": "https://evil.example"}),
            (415, knows | {"Content-Type": "text/plain"}),
            (413, knows),
            (503, knows),
        ):
            if status == 503:
                monkeypatch.setattr(service.serving.batcher, "waiting", lambda: 9999)
            url = f"{service.url}/translate"
            found = httpx.post(url, content=slowly(), headers=headers)
            refused(found, status, "")
            assert "connection" not in found.headers  # which may be used again
        assert found.headers["retry-after"] == "1"
        for more in (b"", b"Expect: 100-continue\r\n"):  # which asks for a word before
            with socket.create_connection(("127.0.0.1", service.port)) as connection:
                head = b"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n"
                connection.sendall(head + more + b"\r\n")
                connection.settimeout(5)
                told = b"".join(iter(lambda: connection.recv(4096), b""))
                assert told.startswith(b"HTTP/1.1 401")


def test_other_pages_cannot_ask_by_way_of_a_browser(service):
    for headers in (
        {"Host": "evil.example"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Host": "evil.example", "Origin": "http://evil.example"},
        {"Host": "["},
        {"Origin": "http://["},
    ):
        for path in ("/translate", "/explore", "/score"):
            refused(service.post(path, {}, headers=headers), 403, "")
        known = service.get("/health", headers=headers).json()
        assert "systems" not in known
    refused(service.get("/", headers={"Host": "evil.example"}), 403, "names alone")
    own = {"Origin": service.url}
    assert service.post("/translate", LINES, headers=own).status_code == 200
    for host in ("localhost", "[::1]:80"):
        assert service.get("/", headers={"Host": host}).status_code == 200


def test_with_a_token_any_name_of_a_host_will_do():
    """A proxy on the same machine may keep the name that it is called by."""
    asked = {"host": "example.org", "authorization": f"Bearer {TOKEN}"}
    guard_of("127.0.0.1", TOKEN).check(asked)
    for headers, guard in (
        (asked, guard_of("127.0.0.1", None)),
        ({"host": "example.org"}, guard_of("127.0.0.1", TOKEN)),
    ):
        with pytest.raises(Refusal):
            guard.check(headers)


def test_a_line_is_split_where_the_command_line_splits_it(runs):
    run = runs["plain"]
    data = replace(run.experiment.data, max_length=250)
    longer = run._replace(experiment=replace(run.experiment, data=data))
    line = "a b c d e f g h " * 30
    for given, limits, parts in (
        (run, Limits(), 2),
        (longer, Limits(), 1),
        (longer, Limits(tokens=100), 3),
    ):
        asker = Asker({"plain": given}, SEARCH, limits)
        (items,) = asker.translation({"lines": [line]}).items
        assert len(items) == parts


def test_a_token_is_asked_for(runs):
    origin = "https://good.example"
    guard = Guard(TOKEN, None, (origin,))
    basic = base64.b64encode(f"anybody:{TOKEN}".encode()).decode()
    with started({"plain": runs["plain"]}, guard=guard) as service:
        for given in ("", "Bearer x", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer ä"):
            headers = {"Authorization": given.encode()}
            refused(service.post("/translate", LINES, headers=headers), 401, "token")
            answer = service.get("/", headers=headers)
            refused(answer, 401, "token")
            assert answer.headers["www-authenticate"].startswith("Basic ")
            assert "systems" not in service.get("/health", headers=headers).json()
        for given in (f"Bearer {TOKEN}", f"bearer {TOKEN}", f"Basic {basic}"):
            headers = {"Authorization": given, "Origin": origin}
            found = service.post("/translate", LINES, headers=headers)
            assert len(translations(found)) == 1
            assert found.headers["access-control-allow-origin"] == origin
        asks = {"Origin": origin, "Access-Control-Request-Method": "POST"}
        asks["Access-Control-Request-Headers"] = "authorization,content-type"
        ask = httpx.options(f"{service.url}/translate", headers=asks)
        assert ask.status_code == 200
        ask = httpx.options(
            f"{service.url}/translate", headers=asks | {"Origin": "https://bad.example"}
        )
        assert ask.status_code == 400


@pytest.mark.parametrize("token", ["short", "a" * 16 + "\n", " " + "a" * 16, "ä" * 16])
def test_a_token_that_no_header_can_have_is_refused(token):
    with pytest.raises(UserError, match="no blank or line feed at its ends"):
        guard_of("0.0.0.0", token)


def test_an_origin_is_as_browsers_write_it():
    given = "https://Good.example:443/", "http://localhost:3000", "http://[::1]:80"
    found = guard_of("127.0.0.1", None, given).origins
    assert found == ("https://good.example", "http://localhost:3000", "http://[::1]")
    wrongs = ["good.example", "*", "https://good.example/page", "https://["]
    wrongs += ["https://*", "https://me@good.example", "https://gut.käse"]
    for wrong in wrongs:
        with pytest.raises(UserError, match="is no origin"):
            guard_of("127.0.0.1", None, (wrong,))
