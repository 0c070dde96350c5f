# SPDX-License-Identifier: Apache-2.0
"""Which lines come in together and go out when: windows, pipes, files, parts."""

import dataclasses
import errno
import gzip
import io
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvnmt.cli import answers as answering
from kvnmt.cli import translate as command
from kvnmt.cli.answers import answers
from kvnmt.cli.translate import Translate
from kvnmt.cli.windows import awaited_lines, read_windows
from kvnmt.errors import UserError
from kvnmt.inference.config import SearchConfig
from tests.cli.translating import GREEDY, PLAIN, lines_of
from tests.helpers import toy_lines


def test_windows_are_read_as_they_come():
    text = b"a\nb\nc\n\nd"
    assert list(read_windows(io.BytesIO(text), 2)) == [["a", "b"], ["c", ""], ["d"]]
    assert list(read_windows(io.BytesIO(b""), 2)) == []

    class Damaged(io.BytesIO):
        def __next__(self) -> bytes:
            raise OSError(errno.EIO, "Input/output error")

    with pytest.raises(UserError, match="input cannot be read: Input/output error"):
        list(read_windows(Damaged(), 2))
    marked = b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n"  # the mark at the start is no text
    assert list(read_windows(io.BytesIO(marked), 1)) == [["a"], ["\ufeffb"]]


def test_translations_go_to_a_file(kvnmt, folder, tmp_path):
    """As they would to standard output, also those before a bad line."""
    path, command = tmp_path / "out", ("translate", folder, *GREEDY)
    wanted = kvnmt(*command, given=b"a b\nb\n").out
    path.write_text("of before")
    said = kvnmt(*command, "--output", path, given=b"a b\nb\n")
    assert (said.status, said.out, path.read_bytes()) == (0, b"", wanted)
    nowhere = "--shortlist", tmp_path / "nowhere"
    said = kvnmt(*command, "--output", path, *nowhere, given=b"a\n")
    assert said.status == 2 and path.read_bytes() == wanted  # as it was
    said = kvnmt(*command, "--output", path, given=b"b\n\xff\n")
    assert said.status == 2 and path.read_bytes() == wanted.split(b"\n")[1] + b"\n"
    said = kvnmt(*command, "--output", path)
    assert (said.status, path.read_bytes()) == (0, b"")
    said = kvnmt(*command, "--input", path, "--output", path)
    assert said.status == 2 and f"'{path}' is read too" in said.err
    said = kvnmt(*command, "--output", "/dev/full", given=b"a b\n")
    assert (said.status, said.err[-25:]) == (2, "No space left on device.\n")


def test_lines_are_written_some_at_a_time(kvnmt, folder, tmp_path, monkeypatch):
    """To the last, also by a file that takes a few bytes at once."""
    text = "".join(f"{line}\n" for line in toy_lines(3, 5)).encode()
    whole = kvnmt("translate", folder, *GREEDY, given=text).out
    monkeypatch.setattr(command, "TOGETHER", 2)
    path = tmp_path / "out"
    kvnmt("translate", folder, *GREEDY, "--output", path, given=text)
    assert path.read_bytes() == whole and whole.count(b"\n") == 5
    taken = bytearray()

    def write(part):
        taken.extend(part[:3])
        return len(part[:3])

    command._write(Mock(write=write), whole)
    assert taken == whole


def test_lines_that_are_counted_are_read_all_the_same(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Mock(isatty=Mock(return_value=True)))
    stream = io.BytesIO(b"a\nb\n")
    assert awaited_lines(stream) == 2
    assert [*read_windows(stream, 9)] == [["a", "b"]]


def test_the_file_that_is_read_is_not_written(folder, tmp_path, monkeypatch):
    path = tmp_path / "lines"
    path.write_text("a b\n")
    with path.open() as file:
        monkeypatch.setattr(sys, "stdin", file)
        with pytest.raises(UserError, match="is read too"):
            Translate(run=folder, search=PLAIN, output=path)()
    assert path.read_text() == "a b\n"


def test_compressed_text_on_standard_input_is_told(kvnmt, folder):
    said = kvnmt("translate", folder, *GREEDY, given=gzip.compress(b"a b\n"))
    assert (
        said.status == 2
        and "line 1: byte 2 (0x8b) is not UTF-8; it is compressed" in said.err
    )


def test_as_many_lines_out_as_in(run):
    """Whatever they hold; one program serves them all."""
    text = st.text(st.characters(exclude_characters="\n"), max_size=40)
    programs = []  # a model is asked to encode when a program is made of it

    def encode(*arguments, **options):
        programs.append(arguments)
        return run.model.encode(*arguments, **options)

    counted = run._replace(model=run.model._replace(encode=encode))

    @given(lines=st.lists(text))
    def check(lines):
        options = Translate(run=Path("run"), search=PLAIN, max_input=7)
        (answer,) = answers(counted, [[*lines, "a b c"] * 2], options)
        found = answer.lines
        assert len(found) == 2 * len(lines) + 2
        assert not any("\n" in line for line in found)
        assert found[: len(lines) + 1] == found[len(lines) + 1 :]
        for line, translation in zip(lines, found):
            assert translation == "" or line.strip(" ")

    check()
    assert len(programs) == 1


def test_windows_know_what_was_too_long(run):
    """Whatever is done with it; and the lines of all windows are one text."""
    options = Translate(run=Path("run"), search=PLAIN, max_input=2)
    windows = [["a b c d e", "a"], [""], ["b c d"]]
    found = list(answers(run, windows, options))
    assert [len(answer.lines) for answer in found] == [2, 1, 1]
    assert [answer.long for answer in found] == [1, 0, 1]
    cut = dataclasses.replace(options, too_long="truncate")
    assert [answer.long for answer in answers(run, windows, cut)] == [1, 0, 1]


def test_windows_do_not_show(kvnmt, folder):
    """Nor does their size: draws too belong to the place in the whole input."""
    text = "".join(f"{line}\n" for line in toy_lines(4, 30)).encode()
    one = (*GREEDY[:2], "--search.batch-size", 1)
    whole = lines_of(kvnmt("translate", folder, *GREEDY, given=text))
    assert lines_of(kvnmt("translate", folder, *one, given=text)) == whole
    draw = ("--search.sample",)
    whole = lines_of(kvnmt("translate", folder, *GREEDY, *draw, given=text))
    assert lines_of(kvnmt("translate", folder, *one, *draw, given=text)) == whole
    long = b"a b c d e f g h a b c d\n" + text.split(b"\n", 1)[1]
    split = lines_of(
        kvnmt("translate", folder, *GREEDY, *draw, "--max-input", 10, given=long)
    )
    assert split[1:] == whole[1:] and split[0] != whole[0]


@pytest.mark.slow
def test_a_pipe_is_answered_line_by_line(folder):
    start = "from kvnmt.cli.main import main; main()"
    command = [sys.executable, "-c", start, "translate", str(folder)]
    command += ["--search.beam", "1", "--search.batch-size", "1"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    env = os.environ | {"JAX_PLATFORMS": "cpu"}
    with subprocess.Popen(command, **pipes, env=env) as process:
        for line in (b"a b\n", b"\n", b"c\n"):
            process.stdin.write(line)
            process.stdin.flush()
            answer = process.stdout.readline()  # the next line was not sent yet
            assert answer.endswith(b"\n") and (len(answer) > 1) == (len(line) > 1)
        process.stdin.close()
        assert process.wait() == 0


def test_who_types_is_answered_line_by_line(folder, monkeypatch):
    """In a terminal, whatever the size of a batch."""
    read = []
    windows = lambda stream, size: read.append(size) or iter([])  # noqa: E731
    monkeypatch.setattr(command, "read_windows", windows)
    asked = Translate(run=folder, search=SearchConfig(beam=1, batch_size=8))
    for typed in (False, True):
        lines = Mock(isatty=Mock(return_value=typed), seekable=Mock(return_value=False))
        monkeypatch.setattr(sys, "stdin", Mock(buffer=lines))
        asked()
    assert read == [8 * command.WINDOW, 1]


def test_plain_text_is_not_written_under_the_name_of_packed_text(
    kvnmt, folder, tmp_path
):
    path = tmp_path / "out.gz"
    said = kvnmt("translate", folder, *GREEDY, "--output", path, given=b"a\n")
    assert said.status == 2 and "would hold plain text" in said.err
    assert not path.exists()


def test_a_list_that_nobody_sees_is_not_waited_for(run, monkeypatch):
    """Nor is a translation aligned that is not written."""
    spy = Mock(wraps=answering.translate_nbest)
    monkeypatch.setattr(answering, "translate_nbest", spy)
    read = Mock(wraps=answering.linked)
    monkeypatch.setattr(answering, "linked", read)
    search = replace(PLAIN, beam=3, nbest=3)
    options = Translate(run=Path("run"), search=search, alignment=True)
    (answer,) = answers(run, [["a b", "c"]], options)
    lines = list(answer.lines)
    assert spy.call_args.args[3].nbest == 1
    options = replace(options, search=replace(search, mbr=0.0))
    (answer,) = answers(run, [["a b", "c"]], options)
    assert len(list(answer.lines)) == len(lines) == 2
    assert spy.call_args.args[3].nbest == 3
    assert [len(ways) for ways in read.call_args.args[2]] == [1, 1]


@pytest.mark.parametrize(("count", "expected"), [(None, 800), (50, 100), (2, 4)])
def test_how_many_sentences_come_is_guessed_only_where_nobody_knows(
    run, monkeypatch, count, expected
):
    spy = Mock(wraps=answering.translate_lines)
    monkeypatch.setattr(answering, "translate_lines", spy)
    options = Translate(
        run=Path("run"), search=replace(PLAIN, batch_size=1), max_input=2
    )
    lines = ["a b c"] * 20  # a full window, each of two parts
    next(answers(run, [lines[:count]], options, count=count))
    assert spy.call_args.kwargs["expected"] == expected


def test_text_may_be_a_file(kvnmt, folder, tmp_path):
    text = b"a b c\r\n\nd e f a"
    (tmp_path / "text").write_bytes(text)
    (tmp_path / "packed").write_bytes(gzip.compress(text))
    asked = "translate", folder, "--search.beam", 2
    want = kvnmt(*asked, given=text).out
    for name in ("text", "packed"):
        assert kvnmt(*asked, "--input", tmp_path / name).out == want
    said = kvnmt(*asked, "--input", tmp_path / "none")
    assert said.status == 2 and "there is no file" in said.err
