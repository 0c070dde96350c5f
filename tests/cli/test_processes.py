# SPDX-License-Identifier: Apache-2.0
"""Commands in a process of their own: their streams, their devices, their ends."""

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import pytest

from kvnmt.runs import train as experiment
from tests.cli.commands import command, flags


def test_help_and_version_import_nothing_heavy():
    heavy = {"jax", "numpy", "tyro", "rich", "kvnmt.model.assembly", "kvnmt.cli.train"}
    code = (
        "import sys; from kvnmt.cli import main; "
        f"main(['--help']); main(['--version']); print({heavy} & {{*sys.modules}})"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.stdout.endswith("set()\n"), found.stderr


def test_a_command_imports_no_other():
    code = (
        "import sys; from kvnmt.cli import main; "
        "main(['systems', '--systems', 'memdec', '--json']); "
        "print(*(name for name in sys.modules if name.startswith('kvnmt.cli.')))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    modules = set(found.stdout.splitlines()[-1].split())
    parts = ("main", "flag_files", "own_code", "systems", "flags")
    assert modules == {f"kvnmt.cli.{name}" for name in parts}


def test_interrupting_is_no_crash(kvnmt, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(experiment, "run", interrupted)
    said = kvnmt("train", "new")
    assert said.status == 130
    assert said.err == "kvnmt: interrupted.\n"


def test_the_command_works_in_its_own_process(folder):
    """Where standard output is bytes, whatever the locale is."""
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0"}
    given = "a\u2028b é\n\nb c".encode()
    found = command("translate", folder, input=given, env=environment)
    assert found.returncode == 0, found.stderr
    ours = found.stdout.decode().split("\n")
    assert len(ours) == 4 and ours[1] == ours[3] == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device")
@pytest.mark.parametrize("arguments", [["--help"], ["systems", "--systems", "memdec"]])
def test_output_that_cannot_be_written_is_told(arguments):
    with open("/dev/full", "wb") as full:
        words = [sys.executable, "-m", "kvnmt", *arguments]
        found = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, timeout=300)
    assert found.returncode == 2
    assert b"cannot be written (No space left" in found.stderr
    assert found.stderr.count(b"\n") == 1


def test_closed_streams_are_told(folder):
    words = f"{sys.executable} -m kvnmt translate {folder}"
    found = subprocess.run(f"{words} <&-", shell=True, capture_output=True, timeout=300)
    assert (found.returncode, found.stdout, found.stderr) == (0, b"", b"")
    found = subprocess.run(f"{words} >&-", shell=True, capture_output=True, timeout=300)
    assert found.returncode == 2 and b"standard output is closed" in found.stderr


def test_a_device_that_is_not_there_is_told(folder):
    environment = {**os.environ, "JAX_PLATFORMS": "nothing"}
    found = command("translate", folder, input=b"a\n", env=environment)
    assert (found.returncode, found.stdout) == (2, b"")
    said = found.stderr.decode().splitlines()[-1]
    assert said.startswith("kvnmt: JAX finds no device of the kind 'nothing'")
    assert "Traceback" not in found.stderr.decode()


def test_a_device_that_cannot_be_started_is_told(kvnmt, folder, monkeypatch):
    """Asked for devices once more JAX has the processor, which was not meant."""

    def work() -> None:
        why = "Unable to initialize backend 'cuda': no driver. (you may need to set X)"
        raise RuntimeError(why)

    monkeypatch.setattr(sys.modules["kvnmt.cli.main"], "_parse", lambda *_: work)
    before = jax.config.jax_platforms  # pyright: ignore
    jax.config.update("jax_platforms", None)
    try:
        said = kvnmt("translate", folder)
    finally:
        jax.config.update("jax_platforms", before)
    assert said.status == 2
    assert "started (Unable to initialize backend 'cuda': no driver.);" in said.err
    assert "set JAX_PLATFORMS=cpu to work on" in said.err


def test_a_terminal_that_is_closed_ends_a_training_that_is_saved(tmp_path):
    """Who looked is gone, and the signal comes from the kernel and from a shell."""
    folder, (master, slave) = tmp_path / "run", pty.openpty()
    given = [*flags(tmp_path / "data"), "--training.epochs", "100000"]
    # The process takes the terminal for its own, as that of a shell does.
    lead = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)"
    words = ["-c", f"{lead}; {KVNMT[1]}", "train", folder, *given]
    words += ["--training.validate-every", "10000000"]
    training = subprocess.Popen(
        [sys.executable, *map(str, words)],
        **dict.fromkeys(("stdin", "stdout", "stderr"), slave),
        start_new_session=True,
    )
    os.close(slave)
    seen, deadline = b"", time.monotonic() + 120
    while b"target tokens/s" not in seen and time.monotonic() < deadline:
        seen += os.read(master, 65536)
    os.close(master)
    os.kill(training.pid, signal.SIGHUP)
    assert training.wait(120) == 128 + signal.SIGHUP, seen[-500:]
    assert [
        path for path in (folder / "checkpoints").iterdir() if path.name.isdecimal()
    ]


KVNMT = ["-c", "from kvnmt.cli import main; main()"]


@pytest.mark.parametrize(
    "words",
    [
        [*KVNMT, "--help"],
        [*KVNMT, "systems", "--systems", "memdec"],
        ["-m", "experiments.growth", "--help"],
    ],
)
def test_a_reader_that_leaves_ends_it_silently(words):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, *words]
    found = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, timeout=300)
    os.close(writer)
    assert (found.returncode, found.stderr) == (141, b"")
