# SPDX-License-Identifier: Apache-2.0
"""The command that makes a shortlist, and translating with what it made."""

import json
from collections import Counter

import numpy as np
import pytest

from kvnmt.inference.shortlist_file import read_shortlist
from kvnmt.inference.token_links import attended_links
from kvnmt.runs.directory import load_run
from tests.helpers import toy_lines

GREEDY = ("--search.beam", 1, "--search.batch-size", 8)


@pytest.fixture(name="text")
def _text(tmp_path) -> tuple:
    """The flags that name a text of the toy language."""
    lines = toy_lines(1, 40)
    (tmp_path / "source").write_text("".join(f"{line}\n" for line in lines))
    (tmp_path / "target").write_text("".join(f"{line.upper()}\n" for line in lines))
    return "--source", tmp_path / "source", "--target", tmp_path / "target"


def test_own_links_are_those_of_align(kvnmt, folder, text, tmp_path):
    """So a table by the run is the one by the file that kvnmt align writes."""
    own, other, links = (tmp_path / name for name in ("own", "other", "links"))
    assert kvnmt("shortlist", folder, *text, "--output", own).status == 0
    links.write_bytes(kvnmt("align", folder, *text).out)
    made = kvnmt("shortlist", folder, *text, "--output", other, "--links", links)
    assert made.status == 0
    head, *lines = other.read_text().splitlines()
    assert f"{len(lines):,} entries are in" in made.err
    assert head.endswith(f" {len(lines)}")
    assert own.read_text() == other.read_text()
    flags = "--output", tmp_path / "best", "--best", 1, "--common", 1
    assert kvnmt("shortlist", folder, *text, *flags).status == 0
    run = load_run(folder)
    sides = toy_lines(1, 1), [toy_lines(1, 1)[0].upper()]
    some, left_out = attended_links(run, *sides, 99)
    assert len(some) and not left_out
    mixed = ([*lines, "a " * 9] for lines in sides)
    again, left_out = attended_links(run, *mixed, 8)
    assert np.array_equal(some, again) and left_out == 1
    first, *_ = read_shortlist(tmp_path / "best", run.vocabularies).lexicon
    counts = Counter(int(word) for word in first if word >= 0)
    assert counts and set(counts.values()) == {1}


def test_pairs_that_are_too_long_are_told(kvnmt, folder, tmp_path):
    """A run that never saw their like would link them as it comes."""
    (tmp_path / "long").write_text("a " * 120 + "\n" + "a b\n")
    text = "--source", tmp_path / "long", "--target", tmp_path / "long"
    output = "--output", tmp_path / "table"
    said = kvnmt("shortlist", folder, *text, *output)
    assert said.status == 0 and "warning: 1 pair longer than" in said.err
    (tmp_path / "long").write_text("a " * 120 + "\n")
    said = kvnmt("shortlist", folder, *text, *output)
    assert said.status == 2 and "no pair is left to link" in said.err
    (tmp_path / "long").write_bytes(b"a " * 120 + b"\n\n\xff\n")
    said = kvnmt("shortlist", folder, *text, *output)
    assert (
        "warning: 2 pairs with a side that is blank or not UTF-8 were left" in said.err
    )
    assert said.status == 2 and "no pair is left to link" in said.err
    (tmp_path / "links").write_text("0-0\n" * 3)
    (tmp_path / "long").write_bytes(b"\n\n\xff\n")
    said = kvnmt("shortlist", folder, *text, *output, "--links", tmp_path / "links")
    assert said.status == 2 and "warning: 3 pairs with a side" in said.err


@pytest.mark.parametrize("linked", [False, True])
def test_pairs_that_training_may_skip_are_skipped(kvnmt, folder, tmp_path, linked):
    """The run's own text may have some (`--data.faulty skip`), or nothing else."""
    tables = []
    for name, faulty in ("whole", b""), ("faulty", b"\xff\n\n"):
        path = tmp_path / name
        path.write_bytes(faulty + b"a b\n")
        links = tmp_path / f"{name}.links"
        links.write_text("\n" * faulty.count(b"\n") + "0-0 1-1\n")
        text = "--source", path, "--target", path, "--output", tmp_path / "table"
        flags = ("--links", links) if linked else ()
        said = kvnmt("shortlist", folder, *text, *flags)
        assert said.status == 0, said.err
        tables.append((tmp_path / "table").read_text())
    assert tables[0] == tables[1]


def test_a_table_is_translated_with(kvnmt, folder, text, tmp_path):
    """Every word by its capital, whatever the model has learnt."""
    table, links = tmp_path / "table", tmp_path / "links"
    lines = toy_lines(1, 40)
    links.write_text(
        "".join(
            " ".join(f"{i}-{i}" for i in range(len(line.split()))) + "\n"
            for line in lines
        )
    )
    flags = "--links", links, "--common", 1, "--output", table
    assert kvnmt("shortlist", folder, *text, *flags).status == 0
    run = load_run(folder)
    entries = read_shortlist(table, run.vocabularies).lexicon
    names = run.vocabularies.source.pieces(range(10))
    target = run.vocabularies.target.pieces(range(10))
    pairs = {(names[i], target[j]): p for i, j, p in zip(*entries) if i >= 0}
    assert pairs == {(letter, letter.upper()): 1.0 for letter in "abcdefgh"}
    (common,) = (target[j] for i, j, _ in zip(*entries) if i < 0)
    flags = "--shortlist", table, "--search.no-unknown"
    said = kvnmt("translate", folder, *GREEDY, *flags, given=b"a b c\n\nd\n")
    assert said.status == 0, said.err
    first, empty, last = said.out.decode().split("\n")[:-1]
    assert set(first.split()) <= {"A", "B", "C", common} and not empty
    assert set(last.split()) <= {"D", common}
    flags = *flags, "--json"
    told = kvnmt("translate", folder, *GREEDY, *flags, given=b"a b c\n\nd\n")
    records = [json.loads(line) for line in told.out.splitlines()]
    assert [record["translation"] for record in records] == [first, empty, last]
    shortlist = read_shortlist(table, run.vocabularies)
    assert run.translate(["", ""], shortlist=shortlist) == ["", ""]


def test_bad_input_is_one_sentence(kvnmt, folder, text, tmp_path):
    links, table = tmp_path / "links", tmp_path / "table"

    def refused(*flags) -> str:
        said = kvnmt("shortlist", folder, *text, "--output", table, *flags)
        assert said.status == 2 and said.err.count("\n") == 1
        return said.err

    links.write_text("0-0\n")
    assert "has 1 line for 40 sentence pairs" in refused("--links", links)
    links.write_text("\n" * 39 + "0-0 1:1\n")
    assert "line 40: '1:1' is not a link" in refused("--links", links)
    links.write_text("\n" * 39 + "0-99\n")
    assert "line 40: link 0-99 lies outside" in refused("--links", links)
    assert "is read too" in refused("--links", table)
    assert "--best is 0 but must be at least 1" in refused("--best", 0)
    said = kvnmt("translate", folder, "--shortlist", tmp_path / "none", given=b"a\n")
    assert said.status == 2 and "none" in said.err
