# SPDX-License-Identifier: Apache-2.0
"""What `kvnmt evaluate` refuses, before any work or beside the figures of it."""

import json
import os
import shutil
from typing import Any

import numpy as np
import pytest

from kvnmt.data import sources
from kvnmt.data.outputs import in_file
from kvnmt.errors import UserError
from kvnmt.evaluation import MEASURES, Measure, base, inputs
from kvnmt.inference.forced import force_lines
from tests.cli.commands import check_sentence, filled
from tests.cli.evaluating import LINES
from tests.helpers import untrained


def test_what_stops_a_measure_takes_no_figure_away(kvnmt, text, monkeypatch):
    def stop(test, systems):
        raise UserError("it stops.")

    monkeypatch.setitem(MEASURES, "adequacy", Measure(stop, lambda *_: None))
    perfect = text.write("said", [line.upper() for line in LINES])
    given = perfect, "--reference", text.folder / "test.ref", "--json"
    said = kvnmt("evaluate", *given, "--measures", "score", "adequacy")
    assert said.status == 2 and "it stops." in said.err
    assert json.loads(said.out)["score"][0]["rows"][0]["bleu"] == pytest.approx(100)


@pytest.mark.parametrize(
    ("measure", "part"),
    [
        ("significance", "there is only one system"),
        ("self-attention", "no system attends to earlier words"),
        ("frequency", "the training text is not there"),
        ("alignment", "--gold is not given"),
    ],
)
def test_what_cannot_be_measured_is_told_before_the_work(
    kvnmt, text, monkeypatch, measure, part
):
    monkeypatch.setattr(inputs, "translate_lines", None)  # nobody calls it
    monkeypatch.setattr(sources, "open_text", refuse)
    said = kvnmt("evaluate", text.memory, *text.sides, "--measures", "score", measure)
    check_sentence(said, part)


@pytest.mark.parametrize("measure", ["score", "all"])
def test_a_tokenizer_without_its_package_is_told_before_the_work(
    kvnmt, text, monkeypatch, measure
):
    monkeypatch.setattr(inputs, "translate_lines", None)  # nobody calls it
    monkeypatch.setattr(base, "bleu_metric", refuse)
    said = kvnmt("evaluate", text.memory, *text.sides, "--measures", measure)
    check_sentence(said, "is no file")


def refuse(*arguments: object) -> None:
    raise UserError("'train.de' is no file.")


def test_figures_are_told_before_what_stops_the_next(kvnmt, text, monkeypatch):
    """They were taken, and may have taken long."""
    stopped = Measure(refuse, lambda *_: None)
    monkeypatch.setitem(MEASURES, "length", stopped)
    measures = "--measures", "score", "length"
    said = kvnmt("evaluate", text.memory, *text.sides, *measures)
    assert said.status == 2 and b"chrF2" in said.out and "no file" in said.err


def test_a_run_of_the_same_direction_is_no_other_direction(kvnmt, text, tmp_path):
    """Its vocabularies tell."""
    copy = tmp_path / "copy"
    shutil.copytree(text.memory, copy)
    gold = text.write("some.align", [""] * (len(LINES) - 1) + ["0-0"])
    sides = *text.sides[:2], "--target", text.sides[3]
    for asked in (
        ("evaluate", text.memory, *text.sides, "--gold", gold, "--reverse", copy),
        ("align", text.memory, *sides, "--reverse", copy),
    ):
        check_sentence(kvnmt(*asked), "which translates in the same direction; name a")


def test_coverage_is_refused_before_anything_is_translated(
    kvnmt, text, tmp_path_factory, monkeypatch
):
    blind = untrained(tmp_path_factory.getbasetemp(), "rnnencdec")
    monkeypatch.setattr("kvnmt.evaluation.inputs.translate_lines", refuse)
    asked = text.memory, blind, *text.sides, "--search.coverage", 0.2
    said = kvnmt("evaluate", *asked)
    check_sentence(said, f"--search.coverage needs attention, and '{blind.name}' has")
    said = kvnmt("explore", *asked, "--output", tmp_path_factory.getbasetemp() / "x")
    check_sentence(said, f"--search.coverage needs attention, and '{blind.name}' has")


def test_a_link_that_is_out_of_a_pair_is_told_by_the_right_sides(kvnmt, text):
    """Also where links are of the other direction: source first, as in the pair."""
    source = text.write("two.src", ["a b"])
    reference = text.write("three.ref", ["A B C"])
    sides = "--source", source, "--reference", reference
    gold = text.write("far.align", ["4-0"])
    asked = "evaluate", reference, *sides, "--measures", "adequacy", "--gold", gold
    said = kvnmt(*asked, "--swap")
    check_sentence(said, "link 0-4 lies outside a pair of 2 source and 3 target words")


MISTAKES = [
    ([], "name at least one run"),
    (["RUN", "--measures", "blue"], "no measure 'blue'"),
    (["RUN", "--gold", "TEXT/short"], "short' has 1 line for 11 sentence pairs"),
    (["RUN", "--gold", "TEXT/outside"], "outside, line 6: link 7-0 lies outside"),
    (["RUN", "--gold", "TEXT/empty"], "empty' holds no links"),
    (["RUN", "--gold", "TEXT/test.src"], "test.src, line 1: "),
    (["RUN", "--links", "TEXT/test.align"], "--links is for alignment error"),
    (["RUN", "--reverse", "RUN"], "--reverse is for alignment error"),
    (["RUN", "--brackets", "TEXT/short.tree"], "has 1 trees but there are 11"),
    (
        ["RUN", "--gold", "TEXT/test.align", "--measures", "score"],
        "--gold is for alignment, adequacy; name one in --measures",
    ),
    (["RUN", "--brackets", "TEXT/other.tree"], "line 1: the tree has 2 words"),
    (["RUN", "--output", "TEXT/test.ref"], "is read too"),
    (["TEXT/short"], "short' has 1 line but there are 11 references"),
    (["RUN", "TEXT/short", "--ensemble", "RUN"], "--ensemble goes with one run"),
    (["RUN", "RUN"], "is named twice"),
    (["RUN", "--draw", "0"], "--draw takes numbers"),
    (["RUN", "--draw", "4"], "give --pictures too"),
    (["RUN", "--pictures", "TEXT/new", "--draw", "12"], "line 12 but the test set has"),
    (["TEXT/test.ref", "--ensemble", "RUN"], "--ensemble is for runs"),
    (["TEXT/test.ref", "--search.beam", "3"], "--search.beam is for runs"),
    (
        ["TEXT/test.ref", "TEXT/test.src", "--output", "TEXT/new"],
        "--output is for runs",
    ),
    (["RUN", "--ensemble", "RUN"], "is named twice"),
    (["RUN", "--stem", "0"], "--stem is 0"),
    (
        ["RUN", "--gold", "TEXT/test.align", "--stem", "3"],
        "--stem is for adequacy; name that in --measures",
    ),
    (
        ["RUN", "--gold", "TEXT/test.align", "--links", "TEXT/test.align"]
        + ["--measures", "adequacy"],
        "--links is for alignment; name that in --measures",
    ),
    (
        ["RUN", "--gold", "TEXT/test.align", "--lowercase", "--measures", "adequacy"],
        "--lowercase is for score, significance, length, frequency, edits; name one",
    ),
    (["TEXT/test.ref", "--tokenize", "char", "--measures", "edits"], "--tokenize is"),
    (
        ["RUN", "--tokenize", "char", "--measures", "perplexity"],
        "--tokenize is for score",
    ),
    (
        ["RUN", "--gold", "TEXT/test.align", "--links", *["TEXT/test.align"] * 2],
        "is named twice",
    ),
    (
        ["RUN", "--search.nbest", "3", "--search.beam", "3"],
        "and one is measured; --search.mbr chooses it",
    ),
    (["TEXT/nothing"], "nothing'; name a run directory or a file of translations"),
    (["RUN", "--measures", "self-attention"], "self-attention cannot be measured"),
]


@pytest.mark.parametrize(("arguments", "part"), MISTAKES)
def test_mistakes(kvnmt, text, arguments, part):
    text.write("short", ["0-0"])
    text.write("empty", [])
    text.write("short.tree", ["(a b)"])
    text.write("other.tree", ["(a b)"] * len(LINES))
    text.write("outside", ["7-0" if n == 5 else "" for n in range(len(LINES))])
    places = {"RUN": text.good, "TEXT": text.folder}
    given = filled(arguments, **places)
    searched = "RUN" in arguments[:1] and "self-attention" not in arguments
    flags = text.sides if searched else text.files
    check_sentence(kvnmt("evaluate", *given, *flags), part)
    assert not (text.folder / "new").exists()


def test_trees_that_no_measure_reads_are_refused(kvnmt, tmp_path):
    text, trees = tmp_path / "text", tmp_path / "trees"
    text.write_text("a b\n")
    trees.write_text("(a b)\n")
    flags = "--reference", text, "--brackets", trees, "--measures", "score"
    check_sentence(kvnmt("evaluate", text, *flags), "--brackets is for self-attention")


def test_files_alone_need_no_source_to_be_drawn(kvnmt, text, tmp_path):
    reference = text.folder / "test.ref"
    asked = "evaluate", reference, "--reference", reference, "--pictures", tmp_path
    assert kvnmt(*asked).status == 0
    assert [path.name for path in tmp_path.iterdir()] == ["bleu-by-length.png"]


def test_a_folder_of_pictures_that_cannot_be_is_told_first(kvnmt, text, tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "new" / "bleu-by-length.png").mkdir(parents=True)
    asked = "evaluate", text.good, *text.sides, "--output", tmp_path / "output"
    for folder, reason in (("file", "cannot be made"), ("new", "cannot be written")):
        check_sentence(kvnmt(*asked, "--pictures", tmp_path / folder), reason)
    assert not (tmp_path / "output").exists()


def test_figures_are_told_whatever_a_picture_meets(kvnmt, text, tmp_path, monkeypatch):
    """And names are as long, or as odd, as those of files may be."""

    def draw(*inputs: object) -> None:
        raise UserError("'a.png' cannot be written: No space left on device.")

    odd = text.folder / "caf\udce9"
    odd.write_text("".join(f"{line.upper()}\n" for line in LINES))
    asked = "evaluate", odd, *text.files, "--measures", "score"
    pictures = "--pictures", tmp_path
    assert b"caf\\udce9" in kvnmt(*asked, *pictures).out
    assert in_file(f"{'ä' * 300}/b") != in_file(f"{'ä' * 300}/c")
    assert len(in_file("𝄞" * 300).encode()) < 200 and in_file("a/b") == "a-b"
    monkeypatch.setattr("kvnmt.evaluation.pictures.draw", draw)
    said = kvnmt(*asked, *pictures)
    assert said.status == 2 and b"BLEU" in said.out and "No space left" in said.err
    monkeypatch.setattr("kvnmt.cli.evaluate.check_bleu", refuse)
    monkeypatch.setattr("kvnmt.cli.evaluate.take", pytest.fail)
    check_sentence(kvnmt(*asked, *pictures), "is no file")


@pytest.mark.parametrize("gold", [False, True])
def test_fonts_are_looked_for_in_what_is_drawn(
    kvnmt, text, tmp_path, monkeypatch, gold
):
    """Attention is drawn over translations or, where there is gold, references."""
    looked: list[str] = []
    monkeypatch.setattr("kvnmt.evaluation.pictures.missing_font", looked.extend)
    links = ("--gold", text.folder / "test.align") if gold else ()
    asked = "evaluate", text.good, *text.sides, *links, "--measures", "score"
    pictures = "--pictures", tmp_path / "new", "--draw", 2
    assert kvnmt(*asked, *pictures, "--output", tmp_path / "output").status == 0
    drawn = (tmp_path / "output").read_text().splitlines()[1]
    assert drawn not in (text.folder / "test.ref").read_text().splitlines()
    assert (drawn in looked) is not gold


def test_pictures_of_weights_that_are_no_numbers_are_left_out(
    kvnmt, text, tmp_path, monkeypatch
):
    def spoilt(*given: Any, **choices: Any) -> Any:
        pairs = force_lines(*given, **choices)
        for scored, *_ in pairs:
            scored.alignments[-1][:] = np.nan
        return pairs

    monkeypatch.setattr(base, "force_lines", spoilt)
    asked = "evaluate", text.good, *text.sides, "--pictures", tmp_path
    said = kvnmt(*asked)
    assert said.status == 0 and "BLEU" in said.out.decode()
    assert "not all can be drawn: in line 1" in said.err
    assert [path.name for path in tmp_path.iterdir()] == ["bleu-by-length.png"]


def test_a_wrong_seed_is_told_before_anything_is_translated(
    kvnmt, text, tmp_path, monkeypatch
):
    monkeypatch.setenv("SACREBLEU_SEED", "abc")
    both = "evaluate", text.good, text.folder / "test.ref", *text.sides
    check_sentence(
        kvnmt(*both, "--output", tmp_path / "new"), "SACREBLEU_SEED is 'abc'"
    )
    assert not list(tmp_path.glob("new/*"))


def test_a_pipe_may_hold_translations(kvnmt, text):
    perfect = text.write("said", [line.upper() for line in LINES])
    ours, theirs = os.pipe()
    os.write(theirs, perfect.read_bytes())
    os.close(theirs)
    given = "--reference", text.folder / "test.ref", "--json"
    said = kvnmt("evaluate", f"/dev/fd/{ours}", *given)
    os.close(ours)
    assert json.loads(said.out)["score"][0]["rows"][0]["bleu"] == pytest.approx(100)


def test_a_run_needs_a_source(kvnmt, text):
    said = kvnmt("evaluate", text.good, "--reference", text.folder / "test.ref")
    check_sentence(said, "give --source")
