# SPDX-License-Identifier: Apache-2.0
"""The command that scores given translations, and n-best lists of them."""

import gzip
import json
from pathlib import Path

import pytest

from kvnmt.inference.moses import read_lists
from tests.helpers import toy_lines


@pytest.fixture(name="source")
def _source(tmp_path) -> Path:
    (tmp_path / "source").write_text("".join(f"{x}\n" for x in toy_lines(1, 5)))
    return tmp_path / "source"


def lines_of(said) -> list[str]:
    assert said.status == 0, said.err
    return said.out.decode().splitlines()


def _fields(lines: list[str]) -> list[list[str]]:
    return [[field.strip() for field in line.split("|||")] for line in lines]


def test_lists_come_back_with_one_more_feature(kvnmt, folder, source, tmp_path):
    """It is what the line has that is scored by itself, and the rest is as it was."""
    several = "--search.beam", 4, "--search.nbest", 3, "--moses", "--alignment"
    lists = kvnmt("translate", folder, "--input", source, *several).out
    (tmp_path / "lists.gz").write_bytes(gzip.compress(lists))
    asked = "score", folder, "--source", source, "--nbest", tmp_path / "lists.gz"
    before, after = (
        _fields(lists.decode().splitlines()),
        _fields(lines_of(kvnmt(*asked))),
    )
    lines = source.read_text().splitlines()
    repeated = [lines[int(entry[0])] for entry in before]
    (tmp_path / "repeated").write_text("".join(f"{line}\n" for line in repeated))
    (tmp_path / "target").write_text("".join(f"{entry[1]}\n" for entry in before))
    pairs = "--source", tmp_path / "repeated", "--target", tmp_path / "target"
    alone = lines_of(kvnmt("score", folder, *pairs))
    assert len(before) == 15
    for old, new, value in zip(before, after, alone, strict=True):
        assert new[:2] == old[:2] and new[3:] == old[3:]
        assert new[2] == f"{old[2]} Score= {value}"
    named = lines_of(kvnmt(*asked, "--feature", "other"))
    assert all(" other= -" in line and "Score=" not in line for line in named)
    told = [json.loads(line) for line in lines_of(kvnmt(*asked, "--json"))]
    assert [f"{one['log_prob']:.6f}" for one in told] == alone
    assert [str(one["number"]) for one in told] == [entry[0] for entry in before]
    (tmp_path / "again").write_text("0 ||| a ||| Score= 1 ||| 2\n")
    again = "score", folder, "--source", source, "--nbest", tmp_path / "again"
    assert "has a feature Score already; call this one" in kvnmt(*again).err
    assert kvnmt(*again, "--feature", "Other").status == 0


def test_lists_are_sorted_anew(kvnmt, folder, source, tmp_path):
    """By their scores and so many times what the model says; each by itself."""
    path = tmp_path / "lists"
    texts = "ZZ", "A", "&#124;&#124;&#124; B"
    path.write_text(
        "".join(f"{n} ||| {text} ||| |||  -1.5\n" for n in (0, 3) for text in texts)
        + "4 ||| C\n4 ||| D ||| given= 1 2\n"
    )
    asked = "score", folder, "--source", source, "--nbest", path
    plain = _fields(lines_of(kvnmt(*asked)))
    assert [entry[1] for entry in plain] == [*texts * 2, "C", "D"]
    assert [len(entry) for entry in plain] == [4] * 6 + [3] * 2
    assert plain[-1][2].startswith("given= 1 2 Score= -")
    values = [float(entry[2].split()[-1]) for entry in plain]
    tokens = [1 + len(entry[1].split()) for entry in plain]  # and EOS
    for flags, divided in (
        (("--weight", 2), lambda n: (5 + n) / 6),  # as a search does by default
        (("--weight", -1, "--normalization", "none"), lambda n: 1),
        (("--weight", 0.5, "--normalization", "length"), lambda n: n),
    ):
        got = _fields(lines_of(kvnmt(*asked, *flags)))
        given = [-1.5] * 6 + [0.0] * 2
        wanted = [
            base + flags[1] * value / divided(n)
            for base, value, n in zip(given, values, tokens)
        ]
        ranks = []
        for part in (slice(0, 3), slice(3, 6), slice(6, 8)):
            ranks += sorted(range(8)[part], key=lambda n: -wanted[n])
        assert [entry[:2] for entry in got] == [plain[n][:2] for n in ranks]
        missing = kvnmt(*asked, *flags, "--best")
        assert "that of number 1 is not in its place" in missing.err
        alone = "score", folder, "--source", source, "--nbest", path.with_suffix(".all")
        lines = path.read_text().splitlines()
        lines[3:3] = ["1 ||| |||", "2 ||| x ||| Score= 1"]  # which it had before
        path.with_suffix(".all").write_text("".join(f"{line}\n" for line in lines))
        best = lines_of(kvnmt(*alone, *flags, "--best"))
        firsts = [got[n][1].replace("&#124;", "|") for n in (0, 3, 6)]
        assert best == [firsts[0], "", "x", *firsts[1:]]
        scores = [float(entry[3]) for entry in got]
        assert scores == pytest.approx([wanted[n] for n in ranks], abs=1e-5)


def test_lists_are_scored_backward(kvnmt, folder, source, tmp_path):
    """By how likely the source line is, given each entry."""
    texts = "B", "A", "b a"
    (tmp_path / "lists").write_text("".join(f"3 ||| {text}\n" for text in texts))
    lines = source.read_text().splitlines()
    (tmp_path / "same").write_text(f"{lines[3]}\n" * 3)
    (tmp_path / "entries").write_text("".join(f"{text}\n" for text in texts))
    turned = "--source", tmp_path / "entries", "--target", tmp_path / "same"
    alone = lines_of(kvnmt("score", folder, *turned))
    asked = "score", folder, "--source", source, "--nbest", tmp_path / "lists"
    got = lines_of(kvnmt(*asked, "--backward"))
    assert [line.split("Score= ")[1] for line in got] == alone
    assert len({*alone}) > 1 and got != lines_of(kvnmt(*asked))
    told = [json.loads(x) for x in lines_of(kvnmt(*asked, "--backward", "--json"))]
    assert [f"{one['log_prob']:.6f}" for one in told] == alone


def test_lists_of_one_line_are_sorted_together(kvnmt, folder, source, tmp_path):
    """Though they are of two searches, one behind the other."""
    path = tmp_path / "lists"
    one = [f"{n} ||| A ||| ||| -{n}" for n in range(5)]
    two = [f"{n} ||| B C ||| ||| -0.5" for n in range(5)]
    path.write_text("".join(f"{line}\n" for line in one + two))
    asked = "score", folder, "--source", source, "--nbest", path, "--weight", 0
    both = [entry[:2] for entry in _fields(lines_of(kvnmt(*asked)))]
    assert both[:4] == [["0", "A"], ["0", "B C"], ["1", "B C"], ["1", "A"]]
    best = lines_of(kvnmt(*asked, "--best"))
    assert best == ["A", *["B C"] * 4]


def test_what_is_escaped_is_read_as_it_was(tmp_path):
    (tmp_path / "lists").write_text("0 ||| a &#124;&#124;&#124; b ||| x= 1 ||| -inf\n")
    (entry,) = read_lists(tmp_path / "lists")
    assert (entry.text, entry.score) == ("a ||| b", float("-inf"))
    assert str(entry) == "0 ||| a &#124;&#124;&#124; b ||| x= 1 ||| -inf"


@pytest.mark.parametrize(
    ("before", "features"),
    [
        ("", "F0= -2"),
        ("0-0 1-1 ||| ", "F0= -2"),
        ("0-0 ||| WordScores= -1 -1 ||| ", "F0= -2 F1= -1"),
        (" ||| ", "F0= -2"),  # a translation of which nothing is linked
        ("", "0-0"),  # features that have no names
    ],
)
def test_lists_of_marian_are_read(tmp_path, before, features):
    """Which may have links and scores of words before the features."""
    line = f"0 ||| a b ||| {before}{features} ||| -1.5"
    (tmp_path / "lists").write_text(f"{line}\n")
    (entry,) = read_lists(tmp_path / "lists")
    assert (entry.text, entry.features, entry.score) == ("a b", features, -1.5)
    more = str(entry.also("Score", -3, 0.5))
    wanted = f"0 ||| a b ||| {before}{features} Score= -3.000000 ||| -1.000000"
    assert more.replace("  ", " ") == wanted.replace("  ", " ")


@pytest.mark.parametrize(
    "text, said",
    [
        ("", "is empty; it needs n-best lists"),
        ("0 ||| a\n\n", "lists, line 2: an entry of an n-best list is 'number ||| "),
        ("a b c\n", "lists, line 1: an entry of an n-best list"),
        ("-1 ||| a\n", "lists, line 1: an entry of an n-best list"),
        ("0 ||| a\n5 ||| a\n", "lists, line 2: number 5 is of a line that the source"),
        ("0 ||| a ||| b ||| c\n", "lists, line 1: the score 'c' of the entry is no nu"),
        ("0 ||| a ||| b ||| nan\n", "lists, line 1: the score 'nan' of the entry is "),
    ],
)
def test_faulty_lists_are_told(kvnmt, folder, source, tmp_path, text, said):
    (tmp_path / "lists").write_text(text)
    flags = "--source", source, "--nbest", tmp_path / "lists"
    got = kvnmt("score", folder, *flags)
    assert (got.status, got.out) == (2, b"") and said in got.err


@pytest.mark.parametrize(
    "flags, said",
    [
        ([], "give either --target"),
        (["--target", "t", "--nbest", "t"], "give either --target"),
        (["--target", "t", "--feature", "x"], "--feature is for the n-best lists"),
        (["--target", "t", "--weight", "1"], "--weight is for the n-best lists"),
        (["--nbest", "t", "--json", "--weight", "1"], "--weight is for the n-best"),
        (["--target", "t", "--backward"], "--backward is for n-best lists; of"),
        (["--nbest", "t", "--feature", "a b"], "--feature 'a b' must be one word"),
        (["--nbest", "t", "--feature", "a=b"], "--feature 'a=b' must be one word"),
        (
            ["--nbest", "t", "--normalization", "none"],
            "--normalization is of",
        ),
        (["--target", "t", "--best"], "--best is for the n-best lists"),
        (["--nbest", "t", "--best", "--feature", "x"], "--feature is of lists"),
        (["--nbest", "t", "--best"], "--best chooses by what --weight adds"),
        (["--nbest", "t", "--feature", ""], "--feature '' must be one word"),
        (["--nbest", "t", "--weight", "inf"], "--weight is inf but must be a finite"),
        (["--nbest", "t"], "reads a source; give --source too"),
    ],
)
def test_flags_that_do_not_go_together_are_told(kvnmt, folder, flags, said):
    got = kvnmt("score", folder, *flags)
    assert got.status == 2 and said in got.err


def test_an_empty_source_is_told(kvnmt, folder, tmp_path):
    (tmp_path / "lists").write_text("0 ||| a\n")
    (tmp_path / "none").write_text("")
    flags = "--source", tmp_path / "none", "--nbest", tmp_path / "lists"
    assert "none' is empty; it needs what was" in kvnmt("score", folder, *flags).err
