# SPDX-License-Identifier: Apache-2.0
"""Lines that are shifted or missing are located."""

import random

import pytest

from kvnmt.data import synthetic
from kvnmt.data.inspection.association import make_lexicon
from kvnmt.data.inspection.scan import Index, scan
from tests.data.inspection.helpers import (
    Lines,
    look,
    names,
    only,
)


def shifted(lines: Lines, first: int, last: int, shift: int) -> Lines:
    """Lines first to last rotated, so that n stands at n + shift."""
    part = lines[first : last + 1]
    turned = [part[(i - shift) % len(part)] for i in range(len(part))]
    return [*lines[:first], *turned, *lines[last + 1 :]]


@pytest.mark.parametrize(
    ("shift", "first"),
    [(-2, 700), (-1, 0), (-1, 1460), (1, 0), (1, 1460), (2, 700)],
)
def test_a_run_of_shifted_lines_is_found(tmp_path, clean, shift, first):
    source, target = clean["train"]
    report = look(
        tmp_path, {"train": [source, shifted(target, first, first + 39, shift)]}
    )
    finding = only(report, "shifted")
    assert finding.severity == "error"
    assert 34 <= finding.count <= 42
    (place,) = finding.examples
    assert place.file.endswith("train.source")
    assert abs(place.line - (first + 1)) <= 4
    assert f"shift {shift}" in place.note
    assert f"(n belongs to n {shift:+d})" in finding.message
    assert report.serious


@pytest.mark.parametrize("shift", [1, -1])
def test_several_runs_are_found(tmp_path, clean, shift):
    source, target = clean["train"]
    target = shifted(shifted(target, 300, 349, 1), 362, 420, shift)
    finding = only(look(tmp_path, {"train": [source, target]}), "shifted")
    ends = [(300, "shift 1"), (362, f"shift {shift}")]
    for place, (first, shift) in zip(finding.examples, ends, strict=True):
        assert abs(place.line - first) <= 5
        assert place.note.endswith(shift)


def test_a_shift_of_a_whole_text_is_found(tmp_path, clean):
    source, target = clean["train"]
    finding = only(
        look(tmp_path, {"train": [source, shifted(target, 0, 1499, 1)]}), "shifted"
    )
    assert finding.count > 1490


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize(("at", "count"), [(5, 1), (800, 1), (800, 3), (1400, 1)])
def test_a_missing_line_is_located(tmp_path, clean, side, at, count):
    sides = list(map(list, clean["train"]))
    del sides[side][at : at + count]
    report = look(tmp_path, {"train": sides})
    assert only(report, "line-counts").count == count
    finding = only(report, "missing-line")
    assert (finding.severity, finding.count) == ("error", count)
    assert all(abs(place.line - at) <= 6 for place in finding.examples)
    lacking = ("train.source", "train.target")[side]
    assert f"of {tmp_path / lacking} must be missing" in finding.message
    assert "shifted" not in names(report)


def test_two_lines_missing_apart_are_located_apart(tmp_path, clean):
    source, target = map(list, clean["train"])
    del target[1000], target[400]
    report = look(tmp_path, {"train": [source, target]})
    findings = [f for f in report.findings if f.name == "missing-line"]
    assert [f.count for f in findings] == [1, 1]
    for finding, at in zip(findings, (400, 1000)):
        assert abs(finding.examples[0].line - at) <= 6


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("kept", [1200, 1497])
def test_lines_missing_at_the_end_are_told(tmp_path, clean, side, kept):
    sides = list(clean["train"])
    sides[side] = sides[side][:kept]
    report = look(tmp_path, {"train": sides})
    assert abs(only(report, "missing-end").examples[0].line - kept) <= 4
    assert "missing-line" not in names(report)


@pytest.mark.parametrize("side", [0, 1])
def test_a_side_of_which_little_is_left_is_told(tmp_path, side):
    pairs = synthetic.make_corpus(1, train=6000, valid=1, test=1).train
    sides = [[" ".join(p.source) for p in pairs], [" ".join(p.target) for p in pairs]]
    sides[side] = sides[side][:210]
    report = look(tmp_path, {"train": sides})
    assert abs(only(report, "missing-end").examples[0].line - 210) <= 4
    assert "unrelated" not in names(report)


@pytest.mark.parametrize("side", [0, 1])
def test_many_missing_lines_are_located(tmp_path, clean, side):
    sides = list(map(list, clean["train"]))
    del sides[side][700:900]
    finding = only(look(tmp_path, {"train": sides}), "missing-line")
    assert finding.severity == "error"
    assert abs(finding.examples[0].line - 700) <= 4


def test_sides_that_do_not_belong_together_are_told(tmp_path, clean):
    source, target = clean["train"]
    mixed = random.Random(3).sample(target, len(target))
    report = look(tmp_path, {"train": [source, mixed]})
    assert only(report, "unrelated").severity == "warning"
    assert "shifted" not in names(report)


def test_a_stretch_of_other_text_is_no_shift(tmp_path, clean):
    source, target = map(list, clean["train"])
    target[600:1000] = random.Random(4).sample(target[600:1000], 400)
    assert "shifted" not in names(look(tmp_path, {"train": [source, target]}))


def test_words_are_compared_in_lower_case_and_signs_one_by_one(tmp_path):
    path, index = tmp_path / "text", Index()
    path.write_text(
        "".join(f"filler{i}\n" for i in range(40)) + "The, THE 我们我 the.\n" * 4
    )
    text = scan(path, index)
    rows = make_lexicon(text, index).rows(text)
    assert rows.size == 3
    assert (rows.words[:40] == -1).all()
    first = rows.words[40].tolist()
    assert first[0] == first[1] == first[5]
    assert first[2] == first[4] != first[3]
    assert first[6:] == [-1] * 6
