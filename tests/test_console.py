# SPDX-License-Identifier: Apache-2.0
"""Messages, tables, and what a file of messages is told of long work."""

import io
import json
import os
import subprocess
import sys

import pytest
from rich.console import Console
from rich.table import Table

from kvnmt import console
from kvnmt.console import Pulse, counting, is_watched, print_json, print_table, say
from tests.helpers import FullDisk


@pytest.fixture(name="clock")
def _clock(monkeypatch) -> list[float]:
    """Seconds, which a test moves on."""
    now = [0.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    return now


def test_a_line_is_told_at_times(clock, monkeypatch):
    """More often in a notebook, whose reader looks and sees no bar."""
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    said = []
    pulse = Pulse("step", 5000, said.append)
    for seconds, done in ((200, 1200), (300, 1300), (590, 1500), (900, 1600)):
        clock[0] = seconds
        pulse.beat(done, "loss 2.500")
    assert said == [
        "step 1,300 of 5,000  loss 2.500  1:01:40 left",  # 100 in 100 s
        "step 1,600 of 5,000  loss 2.500  1:39:10 left",  # 400 in 700 s
    ]
    monkeypatch.setitem(sys.modules, "ipykernel", console)
    for seconds in (930, 940):
        clock[0] = seconds
        pulse.beat(1600 + seconds)
    assert len(said) == 3


def test_of_what_nobody_knows_nothing_is_told(clock):
    said = []
    pulse, stuck = Pulse("linking", None, said.append), Pulse("at", 9, said.append)
    clock[0] = 600.0
    pulse.beat(20)
    stuck.beat(0)
    assert said == ["linking 20", "at 0 of 9"]


def test_a_file_has_lines_in_the_place_of_a_bar(clock, capsys):
    with counting("translating", 20) as advance:
        advance(5)
        clock[0] = 400.0
        advance(5)
        advance(5)
    assert capsys.readouterr().err == "translating 10 of 20  0:13:20 left\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("typed", [None, io.StringIO(), Terminal()])
def test_no_bar_lies_over_what_is_typed_or_written(monkeypatch, typed):
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    with counting("translating", 20, [None, typed]) as advance:
        advance(5)
    assert ("translating" in sys.stderr.getvalue()) != isinstance(typed, Terminal)


@pytest.mark.parametrize("width", [30, 60, 200])
def test_a_narrow_terminal_cuts_no_word(width, monkeypatch, capsys):
    """Cells are broken between words, and lines are longer where that is not enough."""
    monkeypatch.setattr(console, "is_watched", lambda _: True)
    monkeypatch.setenv("COLUMNS", str(width))
    table = Table("system", "what it is", "tokens/s", box=None)
    name, figure = "kvmematt-r2-atteos", "1,234,567"
    table.add_row(name, "keys are rewritten, values stay", figure)
    print_table(table)
    lines = capsys.readouterr().out.splitlines()
    assert {name, "rewritten,", figure} <= {*" ".join(lines).split()}
    assert (len(lines) == 2) == (width == 200)
    assert max(map(len, lines)) <= max(width, 43)


def test_a_file_is_no_terminal_whatever_colours_are_asked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    with (tmp_path / "log").open("w") as file:
        assert Console(file=file).is_terminal
        assert not is_watched(Console(file=file))


def test_what_is_said_on_a_full_disk_ends_nothing():
    say("anything", Console(file=FullDisk()))


def test_a_name_is_said_and_shown_as_it_is(capsys):
    """Rich would make signs of words between colons."""
    name = "lr:on:2"
    say(name)
    print_table(Table(name), [name])
    told = capsys.readouterr()
    assert told.err == f"{name}\n" and told.out.count(name) == 2


def test_json_may_hold_the_name_of_any_file(capfdbinary):
    print_json({"name": os.fsdecode(b"t\xff.txt"), "word": "ü"})
    line = capfdbinary.readouterr().out
    assert json.loads(line) == {"name": "t\udcff.txt", "word": "ü"}
    assert "ü".encode() in line


def test_whoever_no_longer_reads_what_is_said_ends_nothing():
    """Rich would end the program, and its results would go nowhere."""
    code = (
        "import os; from kvnmt.console import people_console, say\n"
        "reader, writer = os.pipe(); os.close(reader); os.dup2(writer, 2)\n"
        "console = people_console()\n"
        "for _ in range(2): say('a note'); say('a note', console)\n"
        "print('the result')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "the result\n")
