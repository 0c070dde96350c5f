# SPDX-License-Identifier: Apache-2.0
"""Every fault that is planted is reported, with its lines and how bad it is."""

import pytest

from kvnmt.data.config import DataConfig
from kvnmt.data.corpus import load_corpora
from kvnmt.data.encoding import Dropped
from kvnmt.data.inspection.findings import line_numbers
from kvnmt.data.inspection.scan import KINDS
from kvnmt.data.inspection.validate import ValidateConfig, validate
from tests.data.inspection.helpers import look, look_bytes, names, only, toy


def test_different_line_counts_are_an_error(tmp_path):
    report = look_bytes(tmp_path, *toy(target=b"A\nB\n"))
    finding = only(report, "line-counts")
    assert (finding.severity, finding.count) == ("error", 38)
    for part in ("a.src has 40 lines", "a.trg has 2 lines"):
        assert part in finding.message
    assert report.pairs is None


@pytest.mark.parametrize(
    ("character", "name", "severity"),
    [
        ("\r", "carriage-return", "warning"),
        ("\u2028", "line-separator", "warning"),
        ("\u2029", "paragraph-separator", "warning"),
        ("\x85", "next-line", "warning"),
        ("\f", "form-feed", "warning"),
        ("\v", "vertical-tab", "warning"),
        ("\ufeff", "byte-order-mark", "warning"),
        ("\x1c", "information-separator", "warning"),
        ("\x1e", "information-separator", "warning"),
        ("\0", "control", "warning"),
        ("\x1f", "control", "warning"),
        ("\ufffd", "lost", "warning"),
        ("\xad", "zero-width", "note"),
        ("\u202e", "zero-width", "note"),
        ("\u2069", "zero-width", "note"),
        ("\x1b", "control", "warning"),
        ("\x9f", "control", "warning"),
        ("\t", "tab", "note"),
        ("\u200b", "zero-width", "note"),
        ("\u200d", "zero-width", "note"),
        ("\xa0", "odd-space", "note"),
        ("\u3000", "odd-space", "note"),
    ],
)
def test_odd_characters_are_counted(tmp_path, character, name, severity):
    lines = [f"a{character}b", "c", f"{character}d{character}e", "f"]
    data = ("x\n" * 6 + "".join(f"{line}\n" for line in lines)).encode()
    report = look_bytes(tmp_path, data, b"y\n" * 10)
    finding = only(report, name)
    assert (finding.severity, finding.count) == (severity, 3)
    assert [place.line for place in finding.examples] == [7]
    assert "a.src" in finding.message and "line 7" in finding.message
    assert len({n for n in names(report) if n in KINDS}) == 1
    assert not report.serious


def test_line_ends_of_windows_are_no_lone_carriage_returns(tmp_path):
    report = look_bytes(tmp_path, b"a\r\n" * 9 + b"a\r\r\n", b"b\n" * 9 + b"b\r")
    ends = only(report, "windows-line-end", "a.src")
    assert (ends.severity, ends.count) == ("note", 10)
    assert only(report, "carriage-return").examples[0].line == 10
    last = only(report, "windows-line-end", "a.trg")  # without a line feed
    assert (last.count, last.examples[0].line) == (1, 10)


@pytest.mark.parametrize("blank", [b"", b"  ", b"\t", b"\r", "\u2003".encode()])
def test_empty_lines_are_told(tmp_path, blank):
    data = b"a\n" * 4 + blank + b"\n" + b"a\n" * 4 + blank + b"\n"
    finding = only(look_bytes(tmp_path, b"b\n" * 10, data), "empty-line")
    assert (finding.severity, finding.count) == ("error", 2)
    assert [place.line for place in finding.examples] == [5, 10]
    assert "a.trg, lines 5 and 10" in finding.message
    report = look_bytes(tmp_path, b"b\n" * 10, data, faulty="skip")
    assert only(report, "empty-line").severity == "note"
    assert (report.pairs, report.dropped) == (8, Dropped(empty=2))


def test_what_is_not_utf8_is_left_out_where_it_is_skipped(tmp_path):
    """As training does; no word of it is known."""
    source, target = b"a\nb\xff c\n\xff\nd\n", b"A\nB\n\n\n"
    stopped = look_bytes(tmp_path, source, target, min_count=1)
    assert only(stopped, "undecodable").severity == "error"
    report = look_bytes(tmp_path, source, target, min_count=1, faulty="skip")
    assert only(report, "undecodable").severity == "note" and not report.serious
    assert "lost" not in names(report)  # nobody lost it before
    assert (report.pairs, report.dropped) == (1, Dropped(empty=1, undecodable=2))
    assert [file.unknown for file in report.files] == [4, 1]
    paths = tmp_path / "a.src", tmp_path / "a.trg"
    data = DataConfig(*paths, *paths, min_count=1, faulty="skip")
    assert "1 with an empty side, 2 not UTF-8" in load_corpora(data).report


def test_an_empty_line_of_a_test_set_is_a_warning(tmp_path, clean):
    source, target = clean["test"]
    report = look(tmp_path, clean | {"test": [["", *source[1:]], target]})
    finding = only(report, "empty-line")
    assert finding.severity == "warning" and "--data.faulty" not in finding.message
    assert not report.serious


def test_empty_files_are_told(tmp_path):
    report = look_bytes(tmp_path, b"", b"")
    assert [f.severity for f in report.findings if f.name == "empty-file"] == [
        "error",
        "error",
    ]


def test_uneven_and_long_pairs_are_told(tmp_path):
    source = b"a\n" * 20 + b"a a a\na a a a\n" + b"a " * 12 + b"\n"
    report = look_bytes(tmp_path, source, b"b\n" * 22 + b"b " * 11, max_length=11)
    uneven, long = only(report, "ratio"), only(report, "too-long")
    assert [place.line for place in uneven.examples] == [22]
    assert (uneven.severity, long.severity) == ("warning", "note")
    assert [place.line for place in long.examples] == [23]
    assert long.message.endswith(
        "more than 11 words; training on words leaves such pairs out."
    )
    assert (report.pairs, report.dropped) == (22, Dropped(too_long=1))


def test_sides_without_spaces_are_compared_by_their_characters(tmp_path):
    """A line of Japanese is one word, however many it translates."""
    source = "今日はとても良い天気ですね。\n" * 20 + "はい\n"
    target = "the weather is nice today .\n" * 21
    report = look_bytes(tmp_path, source.encode(), target.encode())
    uneven = only(report, "ratio")
    assert [place.line for place in uneven.examples] == [21]
    assert "3 times as many characters as usual" in uneven.message


def test_identical_and_repeated_pairs_are_told(tmp_path):
    source = "a|b b|c|a |d|b b|a|a".replace("|", "\n").encode()
    target = "A|B B|c|A|D|B X|A|A".replace("|", "\n").encode()
    report = look_bytes(tmp_path, source, target)
    lines = {
        finding.name: [place.line for place in finding.examples]
        for finding in report.findings
        if finding.examples
    }
    assert lines["identical"] == [3]
    assert lines["duplicate"] == [4, 7, 8]
    assert lines["several-targets"] == [6]


def test_pairs_that_are_alike_are_not_the_same(tmp_path):
    report = look_bytes(tmp_path, b"a\nb\nc\nd\n", b"b\na\nc\nd\n")
    assert not {"duplicate", "several-targets"} & names(report)


def test_a_text_given_twice_is_no_fault(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(toy()[0])
    assert "identical" not in names(validate(ValidateConfig(path, path)))


@pytest.mark.parametrize("part", ["valid", "test"])
def test_pairs_that_were_trained_on_are_told(tmp_path, clean, part):
    source, target = map(list, clean[part])
    train = clean["train"]
    for line, trained in ((4, 100), (9, 7)):
        source[line], target[line] = train[0][trained], train[1][trained]
    source[20] = train[0][33]
    report = look(tmp_path, clean | {part: [source, target]})
    pairs, sources = (
        only(report, f"{part}-overlap"),
        only(report, f"{part}-source-overlap"),
    )
    path = tmp_path / "train.source"
    assert (pairs.severity, pairs.count) == ("warning", 2)
    assert [(p.line, p.note) for p in pairs.examples] == [
        (5, f"line 101 of {path}"),
        (10, f"line 8 of {path}"),
    ]
    assert (sources.severity, sources.count) == ("note", 1)
    assert [(p.line, p.note) for p in sources.examples] == [(21, f"line 34 of {path}")]
    assert not report.serious


@pytest.mark.parametrize(
    ("numbers", "count", "text"),
    [
        ([4], 1, "line 4"),
        ([4, 7], 2, "lines 4 and 7"),
        ([1, 2, 3, 4, 5], 5, "lines 1, 2, 3, 4 and 5"),
        ([1, 2, 3, 4, 5, 6], 1006, "lines 1, 2, 3, 4, 5 and 1,001 more"),
    ],
)
def test_line_numbers_are_told(numbers, count, text):
    assert line_numbers(numbers, count) == text
