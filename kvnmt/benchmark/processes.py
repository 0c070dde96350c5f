# SPDX-License-Identifier: Apache-2.0
"""Programs run in processes of their own, on so many cores."""

import contextlib
import io
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

from kvnmt.benchmark.peers.base import Arguments, Program
from kvnmt.data.text import decode_lines
from kvnmt.errors import UserError, reason_of

TAIL = 3  # lines of a log that are shown


class Installed(NamedTuple):
    """A program and the Python that runs it."""

    program: Program
    python: Path


@dataclass(frozen=True)
class Output:
    """What came of a run."""

    log: str
    lines: list[str]  # of standard output, where there was an input
    seconds: float  # from start to end


def version(installed: Installed) -> str:
    """The version of a program.

    Raises:
        UserError: Its Python cannot import it; what to type is named.
    """
    (name, module, install, *_), python = installed
    code = f"import {module}; print(getattr({module}, '__version__', '?'))"
    remedy = (
        f"install {name} in an environment of its own (python3 -m venv peer, then "
        f"peer/bin/{install}) and give --peer-python peer/bin/python."
    )
    try:
        tried = subprocess.run([str(python), "-c", code], capture_output=True)
    except OSError as error:
        reason = reason_of(error)
        raise UserError(f"'{python}' cannot be run: {reason}; {remedy}") from None
    told = tried.stdout.decode(errors="replace").split()
    if tried.returncode or not told:
        raise UserError(f"'{python}' cannot import {module}; {remedy}")
    return told[-1]


def run(
    installed: Installed,
    commands: Sequence[Arguments],
    *,
    threads: int,
    log: Path,
    lines: Path | None = None,
) -> Output:
    """Runs commands of a program one after the other.

    Args:
        installed: The program.
        commands: What its Python is given.
        threads: Cores that it may use.
        log: Where what it prints is kept.
        lines: A file for its standard input; its standard output is the result then,
            and otherwise is printed into the log too.

    Raises:
        UserError: One fails.
    """
    program = installed.program
    start, result = time.perf_counter(), b""
    with log.open("wb") as errors, _on_cores(threads):
        for arguments in commands:
            done = _execute(installed, arguments, threads, errors, lines)
            result = done.stdout or b""
            if done.returncode:
                raise _failed(program, log, done.returncode)
    seconds = time.perf_counter() - start
    text = log.read_text(encoding="utf-8", errors="replace")
    printed = decode_lines(io.BytesIO(result), f"the output of {program.name}")
    return Output(text, printed, seconds)


def _execute(
    installed: Installed,
    arguments: Arguments,
    threads: int,
    errors: IO[bytes],
    lines: Path | None,
) -> subprocess.CompletedProcess[bytes]:
    program, python = installed
    counts = {f"{library}_NUM_THREADS": f"{threads}" for library in ("OMP", "MKL")}
    with (lines or Path(os.devnull)).open("rb") as stdin:
        return subprocess.run(
            [str(python), *arguments],
            stdin=stdin,
            stdout=subprocess.PIPE if lines else errors,
            stderr=errors,
            env={**os.environ, **counts, **program.environment},
        )


@contextlib.contextmanager
def _on_cores(threads: int) -> Iterator[None]:
    """What is started meanwhile has only so many cores, if the system can do that."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(allowed)[:threads])
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def _failed(program: Program, log: Path, status: int) -> UserError:
    printed = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return UserError(
        f"{program.name} ended with status {status}: {' / '.join(printed[-TAIL:])} "
        f"('{log}' has all that it printed)."
    )
