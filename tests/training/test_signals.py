# SPDX-License-Identifier: Apache-2.0
"""Signals in a notebook; `test_kills` has those that end a process."""

import builtins
import os
import signal
import subprocess
import sys
import time

import pytest

from kvnmt.errors import LEAVING
from kvnmt.training.signals import ECHO, Signals


def test_a_signal_that_was_ignored_stays_so():
    """Such as SIGINT behind a shell that runs a command in the background."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        told: list[str] = []
        with Signals(told.append) as signals:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGTERM)
            deadline = time.monotonic() + 10
            while not told and time.monotonic() < deadline:
                time.sleep(0.01)
            assert signals.asked == signal.SIGTERM
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    (said,) = told
    assert said.startswith("SIGTERM: saving")


def test_a_signal_that_another_program_handles_stays_with_it(monkeypatch):
    """Of such handlers Python knows nothing, and could not put them back."""
    getsignal, before = signal.getsignal, signal.getsignal(signal.SIGUSR1)
    unknown = lambda n: None if n == signal.SIGUSR1 else getsignal(n)  # noqa: E731
    with monkeypatch.context() as patch:
        patch.setattr(signal, "getsignal", unknown)
        with Signals(print):
            assert getsignal(signal.SIGUSR1) == before
            assert getsignal(signal.SIGTERM) != signal.SIG_DFL
    assert getsignal(signal.SIGTERM) == signal.SIG_DFL


ENDLESS = """
import os, signal, time
from kvnmt.training.signals import Signals
with Signals(print):
    for _ in range(6):  # the thread may hear the first of them late
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(ECHO + 0.1)
""".replace("ECHO", str(ECHO))


def test_a_second_signal_ends_a_process_at_once():
    done = subprocess.run([sys.executable, "-c", ENDLESS])
    assert done.returncode == 128 + signal.SIGTERM


TWICE = """
import os, signal, time
from kvnmt.training.signals import Signals
with Signals(lambda said: None) as signals:
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.3)
    print("saved", signals.asked)
"""


def test_a_signal_that_is_sent_twice_is_one():
    """As `timeout` does: to the process, then to its group."""
    done = subprocess.run([sys.executable, "-c", TWICE], capture_output=True)
    assert done.stdout.split() == [b"saved", b"%d" % signal.SIGTERM]
    assert done.returncode == 0


CLOSED = """
import os, signal, time
from kvnmt.training.signals import Signals

with Signals(lambda said: None) as signals:
    for _ in range(3):
        os.kill(os.getpid(), signal.SIGHUP)
        time.sleep(0.5)
    print("saved", signals.asked)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)
"""


def test_a_terminal_may_say_twice_that_it_is_closed():
    """Another signal behind that leaves at once."""
    done = subprocess.run([sys.executable, "-uc", CLOSED], capture_output=True)
    assert done.stdout.split() == [b"saved", b"%d" % signal.SIGHUP]
    assert done.returncode == 128 + signal.SIGTERM


def test_a_signal_breaks_what_may_be_left():
    with pytest.raises(KeyboardInterrupt), Signals(lambda said: None) as signals:
        with signals.breaking():
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)
            pytest.fail("nothing was raised")


LATE = """
import builtins, os, signal, threading, time
from kvnmt.training.signals import Signals

builtins.__IPYTHON__ = True
read = threading.Event()
try:
    with Signals(lambda said: read.wait()):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(ECHO + 0.1)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
except KeyboardInterrupt:
    del builtins.__IPYTHON__
    read.set()
    time.sleep(0.3)
    print("alive")
""".replace("ECHO", str(ECHO))


def test_a_notebook_is_one_to_the_end():
    """Though the thread reads the second signal only once all is over."""
    done = subprocess.run([sys.executable, "-c", LATE], capture_output=True)
    assert (done.returncode, done.stdout) == (0, b"alive\n")


WAITING = """
import builtins, ctypes, os, signal, threading, time
from kvnmt.training.signals import Signals

builtins.__IPYTHON__ = True

def stop():
    for _ in range(2):
        time.sleep(ECHO + 0.4)
        os.kill(os.getpid(), signal.SIGINT)
sender = threading.Thread(target=stop)
sender.start()
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # nothing wakes this thread
try:
    with Signals(lambda said: None):
        ctypes.CDLL(None).usleep(int(1e6 * (2 * ECHO + 1.3)))  # as a compiler
        time.sleep(60)
except KeyboardInterrupt:
    print("left")
""".replace("ECHO", str(ECHO))


def test_a_notebook_is_left_though_the_main_thread_waits():
    """The handler then runs once for both signals."""
    done = subprocess.run([sys.executable, "-c", WAITING], capture_output=True)
    assert (done.returncode, done.stdout) == (0, b"left\n")


AGAIN = [number for number in LEAVING if number != signal.SIGHUP]


@pytest.mark.parametrize("number", AGAIN)
def test_a_second_signal_leaves_a_notebook_alive(monkeypatch, number):
    monkeypatch.setattr(builtins, "__IPYTHON__", True, raising=False)
    told: list[str] = []
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), Signals(told.append) as signals:
        signal.raise_signal(number)
        assert signals.asked == number
        signal.raise_signal(number)  # the same, sent twice
        time.sleep(ECHO + 0.1)
        told.append("later")
        signal.raise_signal(number)
        time.sleep(10)  # interrupted
        pytest.fail("nothing was raised")
    deadline = time.monotonic() + 10
    while len(told) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(told) == 2 and "later" in told
    assert any("once more leaves at once" in said for said in told)
    assert signal.getsignal(number) == before
