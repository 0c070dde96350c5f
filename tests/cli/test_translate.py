# SPDX-License-Identifier: Apache-2.0
"""Lines in, lines out: as many, in order, as soon as they are known."""

import dataclasses
import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from jax.errors import JaxRuntimeError

from kvnmt.cli import answers as answering
from kvnmt.cli.answers import answers
from kvnmt.cli.translate import Translate
from kvnmt.data.vocabulary import EOS, PAD
from kvnmt.data.words import cut
from kvnmt.errors import UserError
from kvnmt.inference.config import SearchConfig, shape_of
from kvnmt.inference.program import _limits
from kvnmt.inference.score import score
from kvnmt.inference.translate import translate, translate_lines
from kvnmt.runs.directory import load_run, longest_input
from tests.cli.translating import GREEDY, PLAIN, lines_of, narrow
from tests.helpers import toy_lines, untrained


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
