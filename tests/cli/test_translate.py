# SPDX-License-Identifier: Apache-2.0
"""Lines in, lines out: as many, in order, as soon as they are known."""

import dataclasses
import errno
import gzip
import io
import json
import os
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.errors import JaxRuntimeError

from kvnmt.cli import answers as answering
from kvnmt.cli import translate as command
from kvnmt.cli.answers import answers
from kvnmt.cli.translate import Translate
from kvnmt.cli.windows import awaited_lines, read_windows
from kvnmt.data.vocabulary import EOS, PAD
from kvnmt.data.words import cut
from kvnmt.errors import UserError
from kvnmt.inference import describe as describing
from kvnmt.inference.config import SearchConfig, shape_of
from kvnmt.inference.program import _limits
from kvnmt.inference.score import score
from kvnmt.inference.translate import translate, translate_lines
from kvnmt.runs.directory import Run, load_run, longest_input
from tests.helpers import DEVICES, toy_lines, untrained

GREEDY = ("--search.beam", 1, "--search.batch-size", DEVICES)
PLAIN = SearchConfig(beam=1, batch_size=DEVICES)


@pytest.fixture(scope="module", name="run")
def _run(folder) -> Run:
    return load_run(folder)


def lines_of(said) -> list[str]:
    assert said.status == 0, said.err
    return said.out.decode().split("\n")[:-1]


def narrow(monkeypatch) -> None:
    """Lets a window have one batch."""
    for name in ("answers", "translate"):
        monkeypatch.setattr(f"kvnmt.cli.{name}.WINDOW", 1)


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


def test_long_lines_are_split_or_truncated(kvnmt, folder, run):
    long, short = "a b c d e f g h a b", "c d"
    text = f"{long}\n{short}\n".encode()
    common = "translate", folder, *GREEDY, "--max-input", 5
    parts = translate_lines(run, ["a b c d e", "f g h a b", short], PLAIN)
    said = kvnmt(*common, given=text)
    assert lines_of(said) == [f"{parts[0]} {parts[1]}".strip(), parts[2]]
    assert "1 line had more than 5 tokens and was split" in said.err
    said = kvnmt(*common, "--too-long", "truncate", given=text)
    assert lines_of(said) == [parts[0], parts[2]]
    assert "truncated" in said.err
    six = b"a b c d e f\n"  # of which five are translated, not the half of six
    said = kvnmt(*common, "--too-long", "truncate", given=six)
    assert lines_of(said) == [parts[0]]
    told = [json.loads(line) for line in lines_of(kvnmt(*common, "--json", given=text))]
    assert [one["translation"] for one in told[0]["parts"]] == parts[:2]
    assert told[0]["log_prob"] == sum(one["log_prob"] for one in told[0]["parts"])
    assert "parts" not in told[1]
    said = kvnmt("translate", folder, *GREEDY, given=text)
    assert "warning" not in said.err


def test_plain_text_is_not_written_under_the_name_of_packed_text(
    kvnmt, folder, tmp_path
):
    path = tmp_path / "out.gz"
    said = kvnmt("translate", folder, *GREEDY, "--output", path, given=b"a\n")
    assert said.status == 2 and "would hold plain text" in said.err
    assert not path.exists()


def test_a_line_is_split_if_it_is_longer_than_any_that_was_trained_on(run):
    longer = replace(run.experiment.data, max_length=300)
    changed = run._replace(experiment=replace(run.experiment, data=longer))
    assert (longest_input(run), longest_input(changed)) == (199, 300)
    line = "a b c d e f g h " * 30
    for one, most, splits in ((run, None, 1), (changed, None, 0), (changed, 7, 1)):
        options = Translate(run=Path(), search=PLAIN, max_input=most)
        (found,) = answering.answers(one, [[line]], options)
        assert found.long == splits


def test_progress_counts_lines_not_their_parts(kvnmt, run, monkeypatch):
    told = []
    options = Translate(run=Path(), search=PLAIN, max_input=2)
    windows = [["a b c d e", "", "a"], ["", " "], ["a b c"]]
    for answer in answers(run, windows, options, told.append):
        list(answer.lines)
    assert sum(told) == 6 and min(told) >= 0


@pytest.mark.parametrize("flags", [(), ("--json",), ("--prefix", "PREFIX")])
def test_an_output_goes_on_where_it_was_cut(
    kvnmt, folder, tmp_path, flags, monkeypatch
):
    """Behind its last whole line; what it has is not translated again."""
    narrow(monkeypatch)
    text, output = tmp_path / "text", tmp_path / "output"
    text.write_text("".join(f"{line}\n" for line in toy_lines(3, 20)))
    (tmp_path / "prefix").write_text("A\n" * 20)
    filled = [tmp_path / "prefix" if flag == "PREFIX" else flag for flag in flags]
    draw = "--search.sample", "--search.beam", 1  # by the number of the line
    asked = "translate", folder, *draw, "--input", text, "--output", output, *filled
    assert kvnmt(*asked).status == 0
    whole = output.read_bytes()
    lines = whole.splitlines(keepends=True)

    def said(line: bytes) -> str:  # scores depend on the batch, in their last digits
        is_json = "--json" in flags
        return json.loads(line)["translation"] if is_json else line.decode().strip()

    cut = b"".join(lines[:7]) + lines[7][:3]
    for there in (cut,) if flags else (cut, b"", b"".join(lines[:7]), whole):
        output.write_bytes(there)
        assert kvnmt(*asked, "--resume").status == 0
        assert [*map(said, output.read_bytes().splitlines())] == [*map(said, lines)]
    output.unlink()
    assert kvnmt(*asked, "--resume").status == 0
    assert len(output.read_bytes().splitlines()) == 20
    output.write_bytes(whole + b"more\n")
    many = kvnmt(*asked, "--resume")
    assert many.status == 2 and "is of more lines than" in many.err
    assert output.read_bytes() == whole + b"more\n"


def test_what_cannot_go_on_is_told(kvnmt, folder, tmp_path):
    (tmp_path / "text").write_text("a\n")
    asked = "translate", folder, "--resume", "--output", tmp_path / "output"
    assert "give --input and --output" in kvnmt(*asked).err
    asked += "--input", tmp_path / "text", "--moses"
    for lists in ("a ||| b\n", "0 ||| A\n2 ||| A\n", "999999999 ||| A\n"):
        (tmp_path / "output").write_text(lists)
        assert "does not hold n-best lists of all" in kvnmt(*asked).err
    (tmp_path / "output").write_text("0 ||| A\n1 ||| A\n")
    assert "is of more lines than" in kvnmt(*asked).err
    assert (tmp_path / "output").read_text() == "0 ||| A\n1 ||| A\n"


def test_lists_go_on_where_they_were_cut(kvnmt, folder, tmp_path, monkeypatch):
    """The last list may not be whole, and is made again."""
    narrow(monkeypatch)
    text, output = tmp_path / "text", tmp_path / "output"
    text.write_text("".join(f"{line}\n" for line in toy_lines(3, 20)))
    beam = "--search.beam", 3, "--search.nbest", 2, "--moses"
    asked = "translate", folder, *beam, "--input", text, "--output", output
    assert kvnmt(*asked).status == 0
    whole = output.read_bytes().splitlines(keepends=True)
    said = [line.split(b" ||| ")[:2] for line in whole]
    for there in (0, 1, 14, 15, len(whole)):
        output.write_bytes(b"".join(whole[:there]) + b"7 ||| cut"[:there])
        assert kvnmt(*asked, "--resume").status == 0
        again = output.read_bytes().splitlines(keepends=True)
        assert [line.split(b" ||| ")[:2] for line in again] == said
    assert again[:-2] == whole[:-2]  # and nothing else is


@pytest.mark.parametrize("beam", [1, 3])
def test_translations_begin_as_asked(kvnmt, folder, run, tmp_path, beam, monkeypatch):
    lines, asked = ["a b c", "", "d e"], ["H G zzz", "A", ""]
    path = tmp_path / "prefix"
    path.write_text("".join(f"{line}\n" for line in asked))
    command = "translate", folder, "--search.beam", beam, "--prefix", path
    text = "".join(f"{line}\n" for line in lines).encode()
    found = [
        json.loads(line) for line in lines_of(kvnmt(*command, "--json", given=text))
    ]
    one_by_one = "--search.batch-size", 1  # and a line in a window
    narrow(monkeypatch)
    again = lines_of(kvnmt(*command, *one_by_one, given=text))
    assert again == [one["translation"] for one in found]
    ids = [run.vocabularies.target.encode(one["translation"]) for one in found]
    wanted = [run.vocabularies.target.encode(line) for line in asked]
    assert ids[0][:3] == wanted[0] and ids[1] == []
    free = kvnmt("translate", folder, "--search.beam", beam, given=text)
    assert found[2]["translation"] == lines_of(free)[2]
    source = [run.vocabularies.source.encode(line) for line in lines]
    for one, again in list(zip(found, score(run.model, run.params, source, ids)))[::2]:
        assert one["log_prob"] == pytest.approx(again.log_prob, abs=1e-5)
    path.write_text("A\n")
    said = kvnmt(*command, given=text)
    assert said.status == 2 and "has 1 line but the input has more" in said.err
    file = tmp_path / "input"
    file.write_text("a\n" * 4)
    for count, reason in ((3, "the input has more"), (5, "but the input 4")):
        path.write_text("A\n" * count)
        said = kvnmt(*command, "--input", file)
        assert said.status == 2 and reason in said.err
        assert not said.out  # it is known before anything is translated
    path.write_text("A\n")
    said = kvnmt(*command, given=b"")
    assert said.status == 2 and "has 1 line but the input 0" in said.err


def test_a_device_that_runs_short_of_memory_is_told(kvnmt, folder, monkeypatch):
    def short(*_: object) -> None:
        raise JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.")

    monkeypatch.setattr("kvnmt.cli.answers.cut", short)
    said = kvnmt("translate", folder, given=b"a\n")
    assert said.status == 2 and "ran short of memory; take smaller batches" in said.err


def test_a_prefix_is_written_as_it_stands(kvnmt, folder, tmp_path):
    """Where unknown words are replaced; a word of the source takes no place of its."""
    path = tmp_path / "prefix"
    path.write_text("H zzz G\n")
    asked = "translate", folder, *GREEDY, "--prefix", path
    (plain,) = lines_of(kvnmt(*asked, given=b"a b c\n"))
    assert plain.startswith("H <unk> G")
    (replaced,) = lines_of(kvnmt(*asked, "--replace-unknown", given=b"a b c\n"))
    assert replaced.startswith("H zzz G")


def test_the_first_part_with_words_has_the_prefix(tmp_path_factory):
    """A wide space that stands alone before what is too long is no part of it."""
    base = tmp_path_factory.getbasetemp()
    run = load_run(untrained(base, "rnnsearch-star", vocabulary="bpe", subwords=14))
    lines = ["\u3000 abcdefgh abcdefgh", "\u3000"]
    options = Translate(run=Path(), search=PLAIN, max_input=8)
    cuts = [cut(run.vocabularies.source, line, 8) for line in lines]
    assert not run.vocabularies.source.encode(cuts[0][0]) and len(cuts[0]) > 1
    assert answering._begun(run, ["A B", "C"], cuts)[:2] == ["", "A B"]
    path = base / "first-part"
    path.write_text("A B\n\n")
    asked = dataclasses.replace(options, prefix=path)
    ((first, second),) = [one.lines for one in answers(run, [lines], asked)]
    assert first.startswith("A B") and not second


def test_lists_as_moses_writes_them(kvnmt, folder, monkeypatch):
    """Those of --json, numbered; a line that is split has the sums of its parts."""
    text = b"a b c\n\nd e f a\na b c d e f g h a b\n"
    several = "translate", folder, "--search.beam", 4, "--search.nbest", 3
    split = "--max-input", 5, "--search.batch-size", 2
    told = [
        json.loads(line)
        for line in lines_of(kvnmt(*several, *split, "--json", given=text))
    ]
    got = [
        entry.split(" ||| ")
        for entry in lines_of(kvnmt(*several, *split, "--moses", given=text))
    ]
    assert [int(entry[0]) for entry in got] == [0, 0, 0, 1, 2, 2, 2, 3, 3, 3]
    narrow(monkeypatch)
    again = lines_of(kvnmt(*several, *split, "--moses", given=text))
    assert [entry.split(" ||| ")[:2] for entry in again] == [x[:2] for x in got]
    wanted = [way for one in told[:1] + told[2:3] for way in one["nbest"]]
    halves = [part["nbest"] for part in told[3]["parts"]]
    wanted += [
        {
            "translation": " ".join(way["translation"] for way in ways),
            **{key: sum(way[key] for way in ways) for key in ("log_prob", "score")},
        }
        for ways in zip(*halves)
    ]
    for entry, way in zip(got[:3] + got[4:], wanted, strict=True):
        assert entry[1] == way["translation"]
        name, log_prob = entry[2].split(" ")
        assert name == "logP="
        numbers = float(log_prob), float(entry[3])
        assert numbers == pytest.approx((way["log_prob"], way["score"]), abs=2e-6)
    assert got[3] == ["1", "", "logP= 0.000000", "0.000000"]
    for flag in ("--json", "--nearest", "--replace-unknown"):
        value = [folder] if flag == "--nearest" else []
        said = kvnmt(*several, "--moses", flag, *value, given=text)
        assert said.status == 2 and "--moses" in said.err and "leave" in said.err


def test_links_stand_behind_translations(kvnmt, folder):
    """Those of --json; of a line that is split they count on."""
    text = b"a b c\n\nd e f a\na b c d e f g h a b\n"
    asked = "translate", folder, "--search.beam", 4, "--max-input", 5
    told = [json.loads(one) for one in lines_of(kvnmt(*asked, "--json", given=text))]
    plain = [
        one.split(" ||| ") for one in lines_of(kvnmt(*asked, "--alignment", given=text))
    ]
    assert [one[0] for one in plain] == [one["translation"] for one in told]
    assert [one[1] for one in plain[:3]] == [one["links"] for one in told[:3]]
    first, second = told[3]["parts"]
    links, words = first["links"].split(), len(first["translation"].split())
    for link in second["links"].split():
        i, j = map(int, link.split("-"))
        links.append(f"{i + 5}-{j + words}")
    assert plain[3][1].split() == links
    best = lines_of(kvnmt(*asked, "--moses", "--alignment", given=text))
    assert [one.split(" ||| ")[1::3] for one in best] == plain
    for flag in ("--json", "--nearest", "--replace-unknown"):
        value = [folder] if flag == "--nearest" else []
        said = kvnmt(*asked, "--alignment", flag, *value, given=text)
        assert said.status == 2 and "--alignment" in said.err and "leave" in said.err


def test_alignments_are_read_in_parts(kvnmt, folder, monkeypatch):
    """Which do not show."""
    text = b"a b c\n\nd e f a\na b c d e f g h a b\nc\n"
    asked = "translate", folder, "--search.beam", 4, "--search.nbest", 4

    def told() -> list:
        records = [json.loads(x) for x in lines_of(kvnmt(*asked, "--json", given=text))]
        names = "translation", "links", "tokens"  # numbers differ in their last digits
        ways = (way for one in records for way in one.get("nbest", [one]))
        linked = kvnmt(*asked, "--moses", "--alignment", given=text)
        return [lines_of(linked), *([way.get(name) for name in names] for way in ways)]

    whole = told()
    monkeypatch.setattr(describing, "ROOM", 30)
    spy = Mock(wraps=describing.score)
    monkeypatch.setattr(describing, "score", spy)
    assert told() == whole
    assert spy.call_count > 4


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


def test_a_model_without_attention_has_no_links(kvnmt, tmp_path_factory):
    other = untrained(tmp_path_factory.getbasetemp(), "rnnencdec")
    said = kvnmt("translate", other, "--alignment", given=b"a b\n")
    assert said.status == 2 and "no attention" in said.err and not said.out


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


def test_of_several_the_nearest_to_the_reference_is_written(
    kvnmt, folder, tmp_path, monkeypatch
):
    """Of a line that is split, whose parts have no reference, the best of each part."""
    lines = ["a b c", "", "d e f a", "a b c d e f g h a b"]
    text = "".join(f"{line}\n" for line in lines).encode()
    several = "translate", folder, "--search.beam", 4, "--search.nbest", 4
    split = "--max-input", 5, "--search.batch-size", 2
    told = lines_of(kvnmt(*several, *split, "--json", given=text))
    best = [json.loads(line) for line in told]
    wanted = [[way["translation"] for way in one.get("nbest", [])] for one in best]
    path = tmp_path / "references"
    for place in (0, 2, 3):
        chosen = [ways[min(place, len(ways) - 1)] if ways else "x" for ways in wanted]
        path.write_text("".join(f"{line}\n" for line in chosen))
        said = kvnmt(*several, *split, "--nearest", path, given=text)
        assert lines_of(said)[:3] == [chosen[0], "", chosen[2]]
        assert lines_of(said)[3] == best[3]["translation"]
        with monkeypatch.context() as patch:
            narrow(patch)
            again = kvnmt(*several, *split, "--nearest", path, given=text)
        assert lines_of(again) == lines_of(said)
    assert len({*wanted[0]}) == len({*wanted[2]}) == 4
    path.write_text("a b\n" * 3)
    said = kvnmt(*several, "--nearest", path, given=text)
    assert said.status == 2 and "has 3 lines but the input has more" in said.err
    path.write_text("a b\n" * 5)
    said = kvnmt(*several, "--nearest", path, given=text)
    assert said.status == 2 and "has 5 lines but the input 4" in said.err
    assert said.out.count(b"\n") == 4


def test_of_several_the_most_alike_is_written(kvnmt, folder):
    """The first of --json too; no line is compared with another."""
    text = b"a b c\n\nd e f a\nb c d e f g h\nh a h b c\nc\n"
    several = "translate", folder, "--search.beam", 8, "--search.nbest", 8
    plain, chosen = (
        [json.loads(line) for line in lines_of(kvnmt(*asked, "--json", given=text))]
        for asked in (several, (*several, "--search.mbr", 0))
    )
    said = kvnmt(*several, "--search.mbr", 0, given=text)
    assert lines_of(said) == [record["translation"] for record in chosen]

    def texts(record):
        return [way["translation"] for way in record.get("nbest", [])]

    for before, after in zip(plain, chosen, strict=True):
        assert sorted(texts(before)) == sorted(texts(after))
    assert [texts(one) for one in plain] != [texts(one) for one in chosen]
    said = kvnmt("translate", folder, "--search.mbr", 0, given=text)
    assert said.status == 2
    assert "--search.mbr chooses among several" in said.err
    assert "with --search.nbest" in said.err
    said = kvnmt(*several, "--search.mbr", 0, "--nearest", folder, given=text)
    assert said.status == 2
    assert "--nearest and --search.mbr each choose" in said.err


def test_nearest_of_one_or_of_all_is_refused(kvnmt, folder, tmp_path, monkeypatch):
    path = tmp_path / "references"
    path.write_text("a\n")
    said = kvnmt("translate", folder, "--nearest", path, given=b"a\n")
    assert said.status == 2 and "--nearest chooses among several" in said.err
    several = "--search.beam", 4, "--search.nbest", 4
    monkeypatch.setattr(answering, "bleu_metric", Mock(side_effect=UserError("none.")))
    said = kvnmt("translate", folder, *several, "--nearest", path, given=b"a\n")
    assert (said.status, said.out, said.err) == (2, b"", "kvnmt: none.\n")
    said = kvnmt("translate", folder, *several, "--json", "--nearest", path)
    assert said.status == 2 and "leave out either it or --json" in said.err
    said = kvnmt("translate", folder, *several, given=b"a\n")
    assert said.status == 2 and "--nearest or --search.mbr, which choose" in said.err


@pytest.mark.parametrize(("ratio", "words"), [(0.42, 150), (0.21, 300), (0.1, 9)])
def test_a_limit_is_not_a_word_short(ratio, words):
    """Of 0.42 times 150 words, say, which is less than 63 in float32."""
    shape = shape_of(SearchConfig(length_ratio=ratio, length_extra=1))
    source = np.full((3, words + 3), PAD)
    source[0, :words], source[0, words], source[1, 0] = 5, EOS, EOS
    limits, most = _limits(shape, source, None)
    exact = int(Fraction(str(ratio)) * words) + 1
    assert limits.tolist() == [exact, 1, 0] and exact <= most


@pytest.mark.parametrize("beam", [1, 2])
@pytest.mark.parametrize("count", [8, 27])  # as many as a table has, and fewer
def test_a_prefix_has_room(run, beam, count):
    """More words than the limit would give; the unknown word among them, if given."""
    words = ([3, 1, 4] * 9)[:count]
    config = SearchConfig(beam=beam, max_length=3, unknown=False)
    source = [run.vocabularies.source.encode("a b")]
    (one,) = translate(run.model, run.params, source, config, prefixes=[words])
    assert one.ids == words


def test_coverage_needs_an_alignment(run, kvnmt, folder, tmp_path_factory):
    other = load_run(untrained(tmp_path_factory.getbasetemp(), "rnnencdec"))
    with pytest.raises(UserError, match="coverage"):
        translate_lines(other, ["a"], SearchConfig(coverage=0.2))
    wide = SearchConfig(beam=4, coverage=2.0, alpha=0.5)
    lines = toy_lines(7, 40)
    other = SearchConfig(beam=4, alpha=0.5)
    assert translate_lines(run, lines, wide) != translate_lines(run, lines, other)
