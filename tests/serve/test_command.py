# SPDX-License-Identifier: Apache-2.0
"""The command: what it refuses, and how it ends."""

import atexit
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest

from kvnmt.cli import serve
from kvnmt.data.vocabularies import load_vocabularies
from kvnmt.errors import StoppedError
from kvnmt.inference.config import SearchConfig
from kvnmt.inference.ensemble import count_members
from kvnmt.inference.shortlist import Lexicon, Shortlist
from kvnmt.inference.shortlist_file import write_shortlist
from kvnmt.inference.translate import translate_lines
from kvnmt.runs.directory import load_run
from kvnmt.serve import server
from kvnmt.serve.guard import VARIABLE, Guard
from tests.helpers import toy_lines, untrained
from tests.serve.serving import LIMITS, SEARCH

COUNT = 40  # lines of a request
COMMAND = [sys.executable, "-c", "import sys; from kvnmt.cli import main; main()"]


@pytest.fixture(autouse=True, name="exits")
def _exits(monkeypatch) -> list:
    """How processes would end whose threads still work; this one goes on."""
    exits = []
    monkeypatch.setattr(atexit, "register", lambda *end: exits.append(end))
    return exits


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_another_address_needs_a_token(kvnmt, folder, monkeypatch, host):
    monkeypatch.delenv(VARIABLE, raising=False)
    said = kvnmt("serve", folder, "--host", host)
    assert said.status == 2 and VARIABLE in said.err and host in said.err
    monkeypatch.setenv(VARIABLE, "short")
    said = kvnmt("serve", folder, "--host", host)
    assert said.status == 2 and "16 characters" in said.err


def test_an_empty_token_is_none_that_may_be(kvnmt, folder, monkeypatch):
    """A variable that was not set would leave the service open."""
    monkeypatch.delenv(VARIABLE, raising=False)
    said = kvnmt("serve", folder, "--token", "")
    assert said.status == 2 and "16 characters" in said.err
    monkeypatch.setenv(VARIABLE, "")
    said = kvnmt("serve", folder)
    assert said.status == 2 and "16 characters" in said.err


def test_what_is_missing_is_said(kvnmt, folder, monkeypatch):
    monkeypatch.setattr(serve, "NEEDED", ("starlette", "uvicorn_of_another_name"))
    said = kvnmt("serve", folder)
    assert said.status == 2 and said.err.count("\n") == 1
    assert "uvicorn_of_another_name; install" in said.err and "[serve]" in said.err


def test_an_ensemble_and_a_shortlist_are_read(kvnmt, folder, tmp_path, monkeypatch):
    """A table of other vocabularies is refused, and so is a run of others."""
    base = folder.parent
    other, turned = (untrained(base, "rnnsearch", turned=t) for t in (False, True))
    table, served = tmp_path / "table", []
    lexicon = Lexicon(np.array([2]), np.array([3]), np.array([1.0]))
    words = load_vocabularies(folder)
    write_shortlist(
        Shortlist(lexicon, len(words.source), len(words.target)), words, table
    )
    monkeypatch.setattr(server, "make_serving", lambda *made: served.append(made))
    monkeypatch.setattr(server, "serve", lambda *rest: None)
    drawn = "--search.top-k", 5, "--search.temperature", 0.5  # by requests that draw
    flags = "--port", 0, *drawn, "--shortlist", table, "--ensemble"
    assert kvnmt("serve", folder, other, *flags, other).status == 0
    ((runs, search, *_, words, log),) = served
    assert (search.top_k, search.sample) == (5, False)
    assert log is None
    assert [count_members(run.params) for run in runs.values()] == [2, 1]
    assert [*runs] == [*words] == [folder.name, other.name]
    assert all(one.lexicon.target.tolist() == [3] for one in words.values())
    said = kvnmt("serve", folder, *flags, turned)
    assert said.status == 2 and "an ensemble shares both" in said.err
    said = kvnmt("serve", folder, turned, *flags[:-1])
    assert said.status == 2 and "with another source vocabulary" in said.err
    assert len(served) == 1


def test_an_address_that_is_taken_is_said(kvnmt, folder):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = kvnmt("serve", folder, "--port", port)
    assert said.status == 2 and f"--port {port}: Address already in use." in said.err


@pytest.mark.parametrize("field", ["beam", "nbest"])
def test_a_search_that_answers_nothing_is_refused_at_the_start(kvnmt, folder, field):
    given = ("--search.beam", 2, "--search.nbest", 5)
    said = kvnmt("serve", folder, *given)
    assert said.status == 2 and "widen --search.beam" in said.err
    draws = ["--search.sample"] * (field == "nbest")
    wide = (f"--search.{field}", 30, *draws)
    said = kvnmt("serve", folder, *wide)
    assert said.status == 2
    assert f"--search.{field} is 30 but --limits.beam 20" in said.err


def test_a_beam_that_does_nothing_may_be_wide(kvnmt, folder, tmp_path, monkeypatch):
    """That of a run which is asked to draw words."""
    wide = tmp_path / "wide"
    shutil.copytree(folder, wide)
    config = json.loads((wide / "config.json").read_text())
    config["search"]["beam"] = 30
    (wide / "config.json").write_text(json.dumps(config))
    monkeypatch.setenv("KVNMT_TOKEN", "short")  # refused behind what is tried
    draws = "--search.sample", "--search.nbest", 5
    for flags, sentence in ((), "--search.beam is 30"), (draws, "token"):
        said = kvnmt("serve", wide, "--host", "0.0.0.0", *flags)
        assert said.status == 2 and sentence in said.err


def test_larger_batches_than_a_service_makes_are_refused(kvnmt, folder):
    said = kvnmt("serve", folder, "--search.batch-size", 65)
    assert said.status == 2 and "answers 64 lines at a time" in said.err


def test_coverage_is_refused_where_nothing_is_read(kvnmt, folder, tmp_path_factory):
    blind = untrained(tmp_path_factory.getbasetemp(), "rnnencdec")
    said = kvnmt("serve", folder, blind, "--search.coverage", 0.2)
    assert said.status == 2 and f"'{blind.name}' has none" in said.err


@pytest.mark.parametrize("ends, what", [(True, "all"), (False, "not all")])
def test_a_signal_that_ends_it_tells_whether_all_is_answered(
    runs, monkeypatch, exits, ends, what
):
    """In this process; a batch ends only if it ``ends``."""
    monkeypatch.setattr(server, "LEAVING", 30.0 if ends else 0.1)
    serving = server.make_serving(runs, SEARCH, LIMITS, Guard())
    serving.server.config.timeout_graceful_shutdown = 30 if ends else 1
    begun, go, answers = threading.Event(), threading.Event(), []

    def work(task, items, long):
        begun.set()
        assert go.wait(60)
        return ["done"] * len(items)

    def ask(url):
        reply = httpx.post(f"{url}translate", json={"lines": ["a"]}, timeout=60)
        answers.append((reply.status_code, reply.json()))

    def interrupt():
        assert begun.wait(60)
        os.kill(os.getpid(), signal.SIGINT)
        if ends:
            go.set()

    serving.batcher._work = work
    with ThreadPoolExecutor(2) as threads:

        def tell(line):
            threads.submit(ask, line.split()[-1])
            threads.submit(interrupt)

        said = f"^SIGINT: {what} that was asked is answered.$"
        listening = server.listen("127.0.0.1", 0)
        with listening, pytest.raises(StoppedError, match=said):
            server.serve(serving, listening, None, tell)
        go.set()
    assert exits == [(os._exit, 128 + signal.SIGINT)] * (not ends)
    told = {"error": "the service ends before this is answered."}
    assert answers == [(200, {"translations": ["done"]}) if ends else (503, told)]


def test_a_signal_that_a_shell_ignores_does_not_end_it(runs):
    """As Control-C is ignored in what a script runs in the background."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        serving = server.make_serving(runs, SEARCH, LIMITS, Guard())

        def interrupt(url):
            assert httpx.get(f"{url}health", timeout=60).status_code == 200
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.3)
            alive.append(httpx.get(f"{url}health", timeout=60).status_code)
            os.kill(os.getpid(), signal.SIGTERM)

        alive = []
        with ThreadPoolExecutor(1) as threads:
            listening = server.listen("127.0.0.1", 0)
            with listening, pytest.raises(StoppedError, match="^SIGTERM: all"):
                server.serve(
                    serving,
                    listening,
                    None,
                    lambda line: threads.submit(interrupt, line.split()[-1]),
                )
        assert alive == [200]
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_signal_at_the_start_ends_it_at_once(runs, exits):
    """As soon as it says where it serves, while it compiles."""
    began = []
    serving = server.make_serving(runs, SEARCH, LIMITS, Guard())
    begun, go, before = threading.Event(), threading.Event(), threading.enumerate()

    def work(task, items, long):
        begun.set()
        go.wait(60)
        return items

    def tell(line):
        assert begun.wait(60)
        began.append(time.monotonic())
        signal.raise_signal(signal.SIGTERM)

    serving.batcher._work = work
    listening = server.listen("127.0.0.1", 0)
    with listening, pytest.raises(StoppedError, match="^SIGTERM: all"):
        server.serve(serving, listening, SEARCH, tell)
    new = [thread for thread in threading.enumerate() if thread not in before]
    assert new and all(thread.daemon for thread in new)
    assert exits == [(os._exit, 128 + signal.SIGTERM)]
    assert time.monotonic() - began[0] < server.LEAVING
    go.set()
    serving.batcher.close(10)


def test_a_process_that_compiles_is_not_aborted(folder):
    """Python ends while a thread is in the compiler."""
    process = subprocess.Popen(
        [*COMMAND, "serve", str(folder), "--port", "0", "--program-cache", "none"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )
    assert process.stderr is not None
    try:
        assert "serving" in process.stderr.readline()
        process.terminate()
        said = process.communicate(timeout=60)[1]
    finally:
        process.kill()
    assert process.returncode == 128 + signal.SIGTERM
    assert said == "kvnmt: SIGTERM: all that was asked is answered.\n"


def test_a_signal_ends_it_once_all_is_answered(folder):
    """As a process of its own, as people start it."""
    flags = "--port 0 --no-compile-first --search.beam 1 --search.batch-size 1".split()
    process = subprocess.Popen(
        [*COMMAND, "serve", str(folder), *flags],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )
    assert process.stderr is not None
    try:
        said = process.stderr.readline()
        (url,) = re.findall(r"at (http://127\.0\.0\.1:\d+/)$", said)
        lines, several = toy_lines(5, COUNT), range(6)

        def ask(n: int) -> list[str]:
            turned = {"lines": lines[n:] + lines[:n]}
            reply = httpx.post(f"{url}translate", json=turned, timeout=120).json()
            found = [one["translation"] for one in reply["translations"]]
            return found[-n:] + found[:-n] if n else found

        with ThreadPoolExecutor(len(several)) as threads:
            asked, waiting = [threads.submit(ask, n) for n in several], 0
            while waiting <= len(several[1:]) * COUNT:
                waiting = httpx.get(f"{url}health", timeout=60).json()["waiting_lines"]
                if any(one.done() for one in asked):
                    break
            process.send_signal(signal.SIGTERM)
            found = [one.result(120) for one in asked if not one.exception(120)]
        said = process.communicate(timeout=60)[1]
        assert process.returncode == 128 + signal.SIGTERM
        assert said == "kvnmt: SIGTERM: all that was asked is answered.\n"
    finally:
        process.kill()
    search = SearchConfig(beam=1, batch_size=8)
    expected = translate_lines(load_run(folder), lines, search)
    assert found and all(one == expected for one in found)
    assert len(found) * COUNT >= waiting  # what waited before the signal is answered
