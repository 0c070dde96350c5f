# SPDX-License-Identifier: Apache-2.0
"""The service as its askers see it: a real server on a free port, real clients.

``KVNMT_CLIENTS=64 KVNMT_SECONDS=60`` lets so many ask among others, so long; how much
was answered is printed (``-s``).
"""

import base64
import gc
import itertools
import json
import os
import random
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import httpx
import jax
import numpy as np
import pytest

from kvnmt.cli.answers import answers
from kvnmt.cli.translate import Translate
from kvnmt.errors import UserError
from kvnmt.evaluation.exploration import explore
from kvnmt.inference.describe import describe
from kvnmt.inference.score import score_lines
from kvnmt.inference.shortlist import NO_TOKEN, Lexicon, Shortlist
from kvnmt.inference.translate import translate_lines
from kvnmt.serve import server, works
from kvnmt.serve.guard import Guard, guard_of
from kvnmt.serve.limits import Limits, Refusal
from kvnmt.serve.questions import Asker
from kvnmt.serve.traffic import Traffic
from tests.helpers import toy_lines
from tests.serve.serving import LIMITS, SEARCH, Started, started

ODD = (
    "a\u2028b|a\x85b|a\x0cb|a\rb|c\r|\x0b|\x00 a|a\tb|\ufeffa|\U0001f600 b||  |a b a c"
)
CLIENTS = int(os.environ.get("KVNMT_CLIENTS", "12"))
SECONDS = float(os.environ.get("KVNMT_SECONDS", "0"))  # six requests of each at least
TOKEN = "a token that is long enough"
LINES = {"lines": ["a"]}
JSON = "application/json"


@pytest.fixture(scope="module", name="service")
def _service(runs) -> Iterator[Started]:
    with started(runs) as service:
        yield service


def until(what: Callable[[], bool]) -> None:
    for _ in range(500):
        if what():
            return
        time.sleep(0.01)
    raise AssertionError("it did not happen")


def translations(reply: httpx.Response) -> list[str]:
    assert reply.status_code == 200, reply.text
    return [one["translation"] for one in reply.json()["translations"]]


def refused(reply: httpx.Response, status: int, part: str) -> None:
    """Answered by one sentence."""
    assert reply.status_code == status, reply.text
    (message,) = reply.json().values()
    assert part in message and message.endswith(".") and "\n" not in message


# --- answers -------------------------------------------------------------------------


def test_lines_are_those_of_the_command_line(service, runs):
    lines = [*ODD.split("|"), "a b c d e f g h " * 4]
    options = Translate(run=Path("run"), search=SEARCH, max_input=LIMITS.tokens)
    read = [line.removesuffix("\r") for line in lines]
    (found,) = answers(runs["plain"], [read], options)
    assert found.long == 1
    assert translations(service.post("/translate", {"lines": lines})) == found.lines
    assert translations(service.post("/translate", {"lines": []})) == []


def test_everything_is_told_of_lines(service, runs):
    lines = ["a b c", "", "d"]
    search = {"nbest": 2, "mbr": 0, "alpha": 1, "beam": 3}
    asked = {"lines": lines, "search": search, "alignments": True, "system": "memory"}
    config = replace(SEARCH, nbest=2, mbr=0.0, alpha=1.0, beam=3)
    expected = describe(runs["memory"], lines, config, expected=16)
    found = service.post("/translate", asked).json()["translations"]
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.keys() == theirs.keys()
        assert ours["tokens"] == theirs["tokens"]
        np.testing.assert_allclose(
            ours["token_log_probs"], theirs["token_log_probs"], atol=1e-4
        )
        texts = [
            [(one["translation"], one["links"]) for one in x["nbest"]]
            for x in (ours, theirs)
        ]
        assert texts[0] == texts[1]
    plain = asked | {"search": search | {"mbr": None}}
    best, *_ = service.post("/translate", plain).json()["translations"]
    assert best["score"] == max(one["score"] for one in best["nbest"])
    np.testing.assert_allclose(
        found[0]["alignment"], expected[0]["alignment"], atol=1e-4
    )


def test_draws_are_those_of_the_seed(service, runs):
    lines = toy_lines(3, 20)
    search = {"sample": True, "temperature": 2000, "seed": 5}
    config = replace(SEARCH, sample=True, temperature=2000.0, seed=5)
    expected = translate_lines(runs["plain"], lines, config)
    for _ in range(2):
        found = service.post("/translate", {"lines": lines, "search": search})
        assert translations(found) == expected


def test_a_line_that_is_cut_changes_no_draw_of_others(service, runs):
    lines = toy_lines(3, 6)
    search = {"sample": True, "temperature": 2, "seed": 5}
    asked = {"lines": lines, "search": search}
    before = translations(service.post("/translate", asked))
    asked["lines"] = [" ".join("abcdefgh" * 5), *lines[1:]]
    after = translations(service.post("/translate", asked))
    assert before[0] != after[0] and before[1:] == after[1:]


def test_scores_are_those_of_forced_decoding(service, runs):
    source, target = ["a b", "", "c"], ["A B", "A", "zzz"]
    expected = score_lines(runs["plain"], source, target)
    found = service.post("/score", {"source": source, "target": target})
    assert found.status_code == 200, found.text
    for ours, theirs in zip(found.json()["scores"], expected, strict=True):
        assert ours["log_prob"] == pytest.approx(theirs.log_prob, abs=1e-4)
        assert len(ours["tokens"]) == len(theirs.token_log_probs)
        assert ours["tokens"][-1] == "</s>"


def test_the_page_gets_what_the_explorer_shows(service, runs):
    found = service.post("/explore", {"line": "a b c"}).json()
    data = explore(runs, ["a b c"], None, SEARCH).data
    (expected,) = data["sentences"]
    assert found["difference"] == expected["difference"]
    for ours, theirs in zip(found["outputs"], expected["outputs"], strict=True):
        assert ours.pop("begun") == ""  # what was forced
        assert ours.keys() == theirs.keys()
        for name in ("text", "source", "target"):
            assert ours[name] == theirs[name]
        np.testing.assert_allclose(ours["rounds"], theirs["rounds"], atol=1)
    assert found["outputs"][1]["memory"] and not found["outputs"][0]["memory"]


def test_translations_begin_as_asked(service, runs):
    free = translations(service.post("/translate", {"lines": ["a b c"]}))
    asked = {"lines": ["a b c", "a b c"], "prefixes": ["H G", ""]}
    forced, again = translations(service.post("/translate", asked))
    assert forced.startswith("H G") and [again] == free
    page = {"line": "a b c", "prefixes": ["H G", ""]}
    found = service.post("/explore", page).json()["outputs"]
    assert [one["begun"] for one in found] == ["H G", ""]
    assert found[0]["text"] == forced and not found[1]["text"].startswith("H G")


def test_an_ensemble_answers_as_one_and_writes_what_a_shortlist_lets_it(both):
    words = both.vocabularies
    pairs = [(NO_TOKEN, words.target.encode("A")[0])]
    pairs += [(words.source.encode(x)[0], words.target.encode("B")[0]) for x in "bc"]
    lexicon = Lexicon(*map(np.array, zip(*pairs)), np.ones(len(pairs)))
    few = Shortlist(lexicon.ranked(), len(words.source), len(words.target))
    lines, search = ["a c", "a a", "c b"], {"unknown": False, "min_length": 2}
    config = replace(SEARCH, unknown=False, min_length=2)
    expected = translate_lines(both, lines, config, shortlist=few)
    assert set("".join(expected)) == set("AB ") and "B" not in expected[1]
    with started({"both": both}, shortlists={"both": few}) as service:
        asked = {"lines": lines, "search": search}
        assert translations(service.post("/translate", asked)) == expected
        forced = service.post("/explore", {"line": "c", "prefixes": ["C"]}).json()
    (output,) = forced["outputs"]
    assert output["text"].startswith("C")  # what was asked for is a candidate
    assert output["memory"] is output["weights"] is output["self_attention"] is None
    assert np.shape(output["rounds"]) == (1, len(output["target"]), 2)  # their mean


# --- many at once, and some who misbehave --------------------------------------------


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


def test_who_goes_away_leaves_the_queue_and_who_waits_too_long_is_told(
    runs, caplog, few_objects
):
    plain = {"plain": runs["plain"]}
    with started(plain, seconds=1.5, waiting=30) as service:
        service.gate.clear()
        first = raw(service, {"lines": ["a"]})  # is under way, and does not end
        assert service.begun.acquire(timeout=60)
        gone = raw(service, {"lines": ["a"] * 29})
        until(lambda: service.waiting() == 29)
        full = service.post("/translate", {"lines": ["b"] * 2})
        refused(full, 503, "ask again")
        assert full.headers["retry-after"] == "1"
        gone.close()
        until(lambda: service.waiting() == 0)
        late = service.post("/translate", {"lines": ["b"] * 2})
        refused(late, 504, "within 1.5 s")
        assert service.waiting() == 0
        assert first.recv(100).startswith(b"HTTP/1.1 504")
        first.close()
        service.gate.set()
        assert len(translations(service.post("/translate", {"lines": ["b"]}))) == 1
    gc.collect()
    assert not caplog.messages  # of a future that nobody looked at


def test_health_tells_of_a_program_that_is_compiled(runs, monkeypatch):
    """Who waits too long meanwhile is told; the next who asks has the program."""
    begun, go, search = threading.Event(), threading.Event(), works.translate_nbest

    def slow(*arguments, **options):
        begun.set()
        assert go.wait(60)
        return search(*arguments, **options)

    monkeypatch.setattr(works, "translate_nbest", slow)
    with started({"plain": runs["plain"]}, seconds=1) as service:
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


def test_requests_are_counted_and_noted(runs, tmp_path):
    """What somebody made up is no new name, and no text is kept."""
    log = tmp_path / "log"
    with started(runs, log=log) as service:
        service.post("/translate", {"lines": ["a b"]})
        service.post("/translate", {"lines": "a b"})
        for number in range(3):
            service.get(f"/made-up/{number}")
        reply = service.get("/metrics")
    counts = reply.text.splitlines()
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    for count in (
        'kvnmt_requests_total{path="/translate",status="200"} 1',
        'kvnmt_requests_total{path="/translate",status="400"} 1',
        'kvnmt_requests_total{path="other",status="404"} 3',
        "kvnmt_waiting_lines 0",
    ):
        assert count in counts
    assert all(re.fullmatch(r"kvnmt_\w+({.+})? \S+|# TYPE \w+ \w+", x) for x in counts)
    noted = [json.loads(line) for line in log.read_text().splitlines()]
    assert [one["status"] for one in noted] == [200, 400, 404, 404, 404, 200]
    assert noted[0].keys() == {"time", "path", "status", "seconds"}
    assert 0 < noted[0]["seconds"] < 60


def test_a_log_that_cannot_be_written_stops_nothing(tmp_path, capsys):
    log = tmp_path / "later" / "log"
    traffic = Traffic(log)
    for _ in range(2):
        traffic.note("/health", 200, 0.5)
    assert 'path="/health",status="200"} 2' in traffic.text({})
    assert capsys.readouterr().err.count("requests are not noted") == 1
    log.parent.mkdir()
    traffic.note("/health", 200, 0.5)
    assert log.read_text().count("\n") == 1
    log.unlink()
    os.mkfifo(log)  # that nobody reads
    traffic.note("/health", 200, 0.5)
    assert capsys.readouterr().err.count("requests are not noted") == 1


def test_metrics_are_told_to_who_may_ask(runs):
    with started(runs, guard=guard_of("127.0.0.1", TOKEN)) as service:
        refused(service.get("/metrics"), 401, "token")
        assert service.get("/health").status_code == 200


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


# --- refusals ------------------------------------------------------------------------

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
    assert form.headers["connection"] == "close"  # whatever it still sends
    huge = {"content": b" " * 10_000_000, "headers": {"Content-Type": JSON}}
    # Far too much is not read to its end, so that a client may not hear why.
    with suppress(httpx.WriteError, httpx.ReadError):
        httpx.post(f"{service.url}/translate", **huge)
    assert service.get("/health").json()["status"] == "ready"
    with started(runs, kilobytes=1024) as wider:
        refused(httpx.post(f"{wider.url}/translate", **huge), 413, "1024 KiB")


def test_an_error_of_ours_is_told_and_leaves_the_service_up(service, monkeypatch):
    def fail(*arguments):
        raise RuntimeError("hidden")

    with monkeypatch.context() as patch:
        patch.setattr(service.serving.batcher, "_work", fail)
        found = service.post("/translate", LINES)
    refused(found, 500, "its log says why")
    assert "hidden" not in found.text
    counted = service.get("/metrics").text
    assert 'kvnmt_requests_total{path="/translate",status="500"} 1' in counted
    assert service.post("/translate", LINES).status_code == 200


def test_what_is_read_with_no_finite_number_is_one_sentence(runs):
    run = runs["plain"]
    spoilt = jax.tree.map(lambda leaf: leaf * np.nan, run.params)
    with started({"spoilt": run._replace(params=spoilt)}) as service:
        answer = service.post("/explore", {"line": "a b"})
        refused(answer, 400, "'spoilt' reads line 1 with numbers that are not finite")


# --- who may ask ---------------------------------------------------------------------


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


def test_the_page_is_whole(service):
    text = service.get("/").text
    assert "connect-src 'self'" in text and 'id="line"' in text
    assert not re.findall(r"innerHTML|document\.write|\{\{|https?://(?!www\.w3)", text)
