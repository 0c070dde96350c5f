# SPDX-License-Identifier: Apache-2.0
"""The command: what it refuses, and how it ends."""

import os
import re
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from kvnmt.cli import serve
from kvnmt.inference.config import SearchConfig
from kvnmt.inference.translate import translate_lines
from kvnmt.runs.directory import load_run
from kvnmt.serve.guard import VARIABLE
from tests.helpers import toy_lines, trained

COMMAND = [sys.executable, "-c", "import sys; from kvnmt.cli import main; main()"]


@pytest.fixture(scope="module", name="folder")
def _folder(tmp_path_factory) -> Path:
    return trained(tmp_path_factory.getbasetemp())


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_another_address_needs_a_token(kvnmt, folder, monkeypatch, host):
    monkeypatch.delenv(VARIABLE, raising=False)
    said = kvnmt("serve", folder, "--host", host)
    assert said.status == 2 and VARIABLE in said.err and host in said.err
    monkeypatch.setenv(VARIABLE, "short")
    said = kvnmt("serve", folder, "--host", host)
    assert said.status == 2 and "16 characters" in said.err


def test_what_is_missing_is_said(kvnmt, folder, monkeypatch):
    monkeypatch.setattr(serve, "NEEDED", ("starlette", "uvicorn_of_another_name"))
    said = kvnmt("serve", folder)
    assert said.status == 2 and said.err.count("\n") == 1
    assert "uvicorn_of_another_name; install" in said.err and "[serve]" in said.err


def test_an_address_that_is_taken_is_said(kvnmt, folder):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = kvnmt("serve", folder, "--port", port)
    assert said.status == 2 and f"--port {port}: Address already in use." in said.err


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
        lines = toy_lines(5, 30)

        def ask(line: str) -> str:
            reply = httpx.post(f"{url}translate", json={"lines": [line]}, timeout=120)
            return reply.json()["translations"][0]["translation"]

        with ThreadPoolExecutor(len(lines)) as threads:
            asked = [threads.submit(ask, line) for line in lines]
            while not any(one.done() for one in asked):
                waiting = httpx.get(f"{url}health", timeout=60).json()["waiting_lines"]
                if waiting:
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
    assert len(found) > 10 and set(found) <= set(expected)
