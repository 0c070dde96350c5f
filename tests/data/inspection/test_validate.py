# SPDX-License-Identifier: Apache-2.0
"""Every fault that is planted is found where it is, and nothing where there is none."""

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvnmt import cli
from kvnmt.data.config import DataConfig
from kvnmt.data.corpus import load_corpora
from kvnmt.data.inspection import scan as scanning
from kvnmt.data.inspection.association import make_lexicon
from kvnmt.data.inspection.findings import Finding, told
from kvnmt.data.inspection.scan import Index, scan
from kvnmt.data.inspection.validate import Report, ValidateConfig, validate
from kvnmt.data.synthetic import make_corpus
from kvnmt.data.text import GZIP
from kvnmt.data.vocabularies import Vocabularies, save_vocabularies
from kvnmt.data.vocabulary import Words, build_subwords, build_words, keep_words
from kvnmt.errors import UserError

Lines = list[str]
Parts = dict[str, list[Lines]]
TOY = ["one two", "three", "four five six", "seven"]  # and their capitals


@pytest.fixture(scope="module")
def clean() -> Parts:
    """Source and target of every part of a synthetic corpus."""
    corpus = make_corpus(5, train=1500, valid=150, test=150)
    return {
        part: [
            [" ".join(pair.source) for pair in pairs],
            [" ".join(pair.target) for pair in pairs],
        ]
        for part, pairs in corpus.__dict__.items()
    }


def write(folder: Path, parts: Parts) -> dict[str, Path]:
    """Files by the flag that names them."""
    paths = {}
    for part, sides in parts.items():
        for side, lines in zip(("source", "target"), sides):
            flag = side if part == "train" else f"{part}_{side}"
            paths[flag] = folder / f"{part}.{side}"
            text = "".join(f"{line}\n" for line in lines)
            paths[flag].write_bytes(text.encode())
    return paths


def look(folder: Path, parts: Parts, **choices) -> Report:
    return validate(ValidateConfig(**write(folder, parts), **choices))


def toy(source: bytes | None = None, target: bytes | None = None) -> tuple[bytes, ...]:
    """Ten times the toy text, or what is given instead."""
    whole = "".join(f"{line}\n" for line in TOY).encode() * 10
    return (
        whole if source is None else source,
        whole.upper() if target is None else target,
    )


def look_bytes(folder: Path, source: bytes, target: bytes, **choices) -> Report:
    paths = folder / "a.src", folder / "a.trg"
    for path, data in zip(paths, (source, target)):
        path.write_bytes(data)
    return validate(ValidateConfig(*paths, **choices))


def only(report: Report, name: str, file: str = "") -> Finding:
    """The finding of that name, of which there is one."""
    (found,) = (
        finding
        for finding in report.findings
        if finding.name == name and file in finding.message
    )
    return found


def names(report: Report) -> set[str]:
    return {finding.name for finding in report.findings}


def test_a_clean_corpus_has_no_faults(tmp_path, clean):
    report = look(tmp_path, clean)
    assert report.findings == []
    assert not report.serious
    assert report.kept == (1500, 0, 0)
    assert [(file.part, file.side, file.lines) for file in report.files] == [
        *(("train", "source", 1500), ("train", "target", 1500)),
        *(("valid", "source", 150), ("valid", "target", 150)),
        *(("test", "source", 150), ("test", "target", 150)),
    ]


def test_gzipped_text_is_looked_over_as_it_is(tmp_path):
    plain = toy()
    paths = [tmp_path / f"text.{side}" for side in ("source", "target")]
    for path, text in zip(paths, plain):
        path.write_bytes(gzip.compress(text))
    report = validate(ValidateConfig(source=paths[0], target=paths[1]))
    assert [file.tokens for file in report.files] == [len(t.split()) for t in plain]
    paths[0].write_bytes(gzip.compress(plain[0])[:-20])
    with pytest.raises(UserError, match="cannot be decompressed"):
        validate(ValidateConfig(source=paths[0], target=paths[1]))


def test_different_line_counts_are_an_error(tmp_path):
    report = look_bytes(tmp_path, *toy(target=b"A\nB\n"))
    found = only(report, "line-counts")
    assert (found.severity, found.count) == ("error", 38)
    for part in ("a.src has 40 lines", "a.trg has 2 lines"):
        assert part in found.message
    assert report.kept is None


@pytest.mark.parametrize("block", [1, 7, 1 << 20])
def test_bytes_that_are_not_utf8_are_told_with_their_place(
    tmp_path, monkeypatch, block
):
    monkeypatch.setattr(scanning, "BLOCK", block)
    bad = "né\n".encode() + b"caf\xe9 au\nok\n\xff\xfe\n" + b"x\n" * 5 + b"\xc3"
    found = only(look_bytes(tmp_path, bad, b"y\n" * 10), "undecodable")
    assert (found.severity, found.count) == ("error", 3)
    assert [place.line for place in found.examples] == [2, 4, 10]
    notes = [place.note for place in found.examples]
    assert notes[0] == "byte 4, 0xe9, byte 8 of the file"
    assert notes[1] == f"byte 1, 0xff, byte {bad.index(0xFF) + 1} of the file"
    assert notes[2] == f"byte 1, 0xc3, byte {len(bad)} of the file"
    for part in ("a.src", "lines 2, 4 and 10", "byte 4 of line 2", "0xe9"):
        assert part in found.message


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
        ("\0", "control", "warning"),
        ("\x1b", "control", "warning"),
        ("\x9f", "control", "warning"),
        ("\t", "tab", "note"),
        ("\u200b", "zero-width", "note"),
        ("\u200d", "zero-width", "note"),
        ("\xa0", "odd-space", "note"),
        ("\u3000", "odd-space", "note"),
    ],
)
@pytest.mark.parametrize("block", [5, 1 << 20])
def test_odd_characters_are_counted(
    tmp_path, monkeypatch, character, name, severity, block
):
    monkeypatch.setattr(scanning, "BLOCK", block)
    lines = [f"a{character}b", "c", f"{character}d{character}e", "f"]
    data = ("x\n" * 6 + "".join(f"{line}\n" for line in lines)).encode()
    report = look_bytes(tmp_path, data, b"y\n" * 10)
    found = only(report, name)
    assert (found.severity, found.count) == (severity, 3)
    assert [place.line for place in found.examples] == [7]
    assert "a.src" in found.message and "line 7" in found.message
    assert len({n for n in names(report) if n in scanning.KINDS}) == 1
    assert not report.serious


def test_line_ends_of_windows_are_no_lone_carriage_returns(tmp_path):
    report = look_bytes(tmp_path, b"a\r\n" * 9 + b"a\r\r\n", b"b\n" * 9 + b"b\r")
    ends = only(report, "windows-line-end")
    assert (ends.severity, ends.count) == ("note", 10)
    assert only(report, "carriage-return", "a.src").examples[0].line == 10
    assert only(report, "carriage-return", "a.trg").examples[0].line == 10


def test_every_character_that_python_takes_for_a_space_is_odd():
    """Or words would not be what stands between ASCII spaces."""
    spaces = {c for c in map(chr, range(0x110000)) if c.isspace()} - {" ", "\n"}
    assert all(scanning._ODD.match(space) for space in spaces)


@pytest.mark.parametrize("blank", [b"", b"  ", b"\t", b"\r", "\u2003".encode()])
def test_empty_lines_are_told(tmp_path, blank):
    data = b"a\n" * 4 + blank + b"\n" + b"a\n" * 4 + blank + b"\n"
    found = only(look_bytes(tmp_path, b"b\n" * 10, data), "empty-line")
    assert (found.severity, found.count) == ("error", 2)
    assert [place.line for place in found.examples] == [5, 10]
    assert "a.trg, lines 5 and 10" in found.message
    report = look_bytes(tmp_path, b"b\n" * 10, data, faulty="skip")
    assert only(report, "empty-line").severity == "note"
    assert report.kept == (8, 2, 0)


def test_an_empty_line_of_a_test_set_is_a_warning(tmp_path, clean):
    source, target = clean["test"]
    report = look(tmp_path, clean | {"test": [["", *source[1:]], target]})
    assert only(report, "empty-line").severity == "warning"
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
    assert report.kept == (22, 0, 1)


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


def test_words_of_pairs_that_are_skipped_are_unknown(tmp_path):
    report = look_bytes(tmp_path, b"a\na\nb\nb\n", b"A\nA\n\nB\n", faulty="skip")
    assert [file.unknown for file in report.files] == [2, 1]


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


def test_figures_are_those_of_training(tmp_path):
    """Dropped pairs, tokens and unknown words as `load_corpora` has them."""
    rng = random.Random(1)
    lines = [
        " ".join(rng.choices("abcdefghijklmnop", k=rng.randint(0, 9)))
        for _ in range(80)
    ]
    sides = [lines, [line.upper() for line in lines[:-1]] + [""]]
    sides[0][3] = "q </s> a  "
    parts = {"train": sides, "valid": [["a b zz q", "c"], ["A ZZ", "</s>"]]}
    paths = write(tmp_path, parts)
    choices = {"max_length": 6, "faulty": "skip", "vocabulary_size": 12}
    report = validate(ValidateConfig(**paths, **choices))
    expected = load_corpora(DataConfig(**paths, **choices))
    assert report.kept is not None
    assert report.kept.pairs == len(expected.train.source)
    told = f"{report.kept.too_long} longer than 6 tokens, {report.kept.empty} with an"
    assert told in expected.report
    for i, encoded in enumerate((expected.valid.source, expected.valid.target)):
        file = report.files[2 + i]
        ids = np.concatenate([one[:-1] for one in encoded])
        assert (file.tokens, file.unknown) == (len(ids), int(np.sum(ids == 1)))


def test_vocabularies_of_a_run_count_as_the_run_does(tmp_path, clean):
    words = build_words(clean["train"][0], size=60)
    pieces = build_subwords(clean["train"][1], 150)
    config = ValidateConfig(**write(tmp_path, clean))
    report = validate(config, Vocabularies(words, pieces))
    for side, vocabulary in enumerate((words, pieces)):
        ids = [i for line in clean["test"][side] for i in vocabulary.encode(line)]
        file = report.files[4 + side]
        assert (file.tokens, file.unknown) == (len(ids), ids.count(1))


def test_many_unknown_words_are_a_warning(tmp_path, clean):
    shouted = [line.upper() for line in clean["test"][0]]
    report = look(tmp_path, clean | {"test": [shouted, clean["test"][1]]})
    found = only(report, "unknown-words")
    assert found.severity == "warning"
    assert "test.source: 100.0%" in found.message


def test_no_word_and_no_pair_left_are_errors(tmp_path):
    report = look_bytes(tmp_path, b"a b\n", b"c d\n", max_length=1)
    assert {"no-vocabulary", "nothing-left"} <= names(report)
    assert report.serious


def test_words_are_kept_as_they_are_built():
    lines = ["b a", "a c </s>", "c d"]
    counts = {"a": 2, "b": 1, "c": 2, "d": 1, "</s>": 1, "never": 0}
    assert keep_words(counts, min_count=2) == build_words(lines, min_count=2)
    assert build_words(lines, size=5) == Words(("a", "c", "b"))


def shifted(lines: Lines, first: int, last: int, shift: int) -> Lines:
    """Lines first to last rotated, so that n stands at n + shift."""
    part = lines[first : last + 1]
    turned = [part[(i - shift) % len(part)] for i in range(len(part))]
    return [*lines[:first], *turned, *lines[last + 1 :]]


@pytest.mark.parametrize("shift", [-2, -1, 1, 2])
@pytest.mark.parametrize("first", [0, 700, 1460])
def test_a_run_of_shifted_lines_is_found(tmp_path, clean, shift, first):
    source, target = clean["train"]
    report = look(
        tmp_path, {"train": [source, shifted(target, first, first + 39, shift)]}
    )
    found = only(report, "shifted")
    assert found.severity == "error"
    assert 34 <= found.count <= 42
    (place,) = found.examples
    assert place.file.endswith("train.source")
    assert abs(place.line - (first + 1)) <= 4
    assert f"shift {shift}" in place.note
    assert f"(n belongs to n {shift:+d})" in found.message
    assert report.serious


@pytest.mark.parametrize("shift", [1, -1])
def test_several_runs_are_found(tmp_path, clean, shift):
    source, target = clean["train"]
    target = shifted(shifted(target, 300, 349, 1), 362, 420, shift)
    found = only(look(tmp_path, {"train": [source, target]}), "shifted")
    ends = [(300, "shift 1"), (362, f"shift {shift}")]
    for place, (first, shift) in zip(found.examples, ends, strict=True):
        assert abs(place.line - first) <= 5
        assert place.note.endswith(shift)


def test_a_shift_of_a_whole_text_is_found(tmp_path, clean):
    source, target = clean["train"]
    found = only(
        look(tmp_path, {"train": [source, shifted(target, 0, 1499, 1)]}), "shifted"
    )
    assert found.count > 1490


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize(("at", "count"), [(5, 1), (800, 1), (800, 3), (1400, 1)])
def test_a_missing_line_is_located(tmp_path, clean, side, at, count):
    sides = list(map(list, clean["train"]))
    del sides[side][at : at + count]
    report = look(tmp_path, {"train": sides})
    assert only(report, "line-counts").count == count
    found = only(report, "missing-line")
    assert (found.severity, found.count) == ("error", count)
    assert all(abs(place.line - at) <= 6 for place in found.examples)
    lacking = ("train.source", "train.target")[side]
    assert f"of {tmp_path / lacking} must be missing" in found.message
    assert "shifted" not in names(report)


def test_two_lines_missing_apart_are_located_apart(tmp_path, clean):
    source, target = map(list, clean["train"])
    del target[1000], target[400]
    report = look(tmp_path, {"train": [source, target]})
    found = [f for f in report.findings if f.name == "missing-line"]
    assert [f.count for f in found] == [1, 1]
    for finding, at in zip(found, (400, 1000)):
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
def test_many_missing_lines_are_located(tmp_path, clean, side):
    sides = list(map(list, clean["train"]))
    del sides[side][700:900]
    found = only(look(tmp_path, {"train": sides}), "missing-line")
    assert found.severity == "error"
    assert abs(found.examples[0].line - 700) <= 4


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


LINES = st.lists(st.binary(max_size=12), max_size=12).map(b"\n".join)
PLAIN = (st.binary(max_size=60) | LINES).filter(lambda data: data[:2] != GZIP)
SLOW = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@settings(max_examples=60, deadline=None, suppress_health_check=SLOW)
@given(st.tuples(*[PLAIN] * 4), st.sampled_from([1, 8, 999]))
def test_any_bytes_can_be_looked_at(tmp_path, monkeypatch, contents, block):
    monkeypatch.setattr(scanning, "BLOCK", block)
    paths = [tmp_path / name for name in ("a", "b", "c", "d")]
    for path, data in zip(paths, contents):
        path.write_bytes(data)
    report = validate(ValidateConfig(*paths))
    json.dumps(report.as_plain())
    for file, data in zip(report.files, contents):
        lines = data.split(b"\n")
        assert file.lines == len(lines) - (lines[-1] == b"")


@settings(max_examples=10, deadline=None, suppress_health_check=SLOW)
@given(st.lists(st.binary(max_size=9), min_size=1, max_size=30), st.integers())
def test_many_lines_of_any_bytes_can_be_looked_at(tmp_path, words, seed):
    """Enough to look for shifts."""
    rng = random.Random(seed)
    paths = tmp_path / "a", tmp_path / "b"
    for path in paths:
        lines = (b" ".join([b"", *rng.choices(words, k=5)]) for _ in range(220))
        path.write_bytes(b"\n".join(line.replace(b"\n", b"") for line in lines))
    report = validate(ValidateConfig(*paths))
    assert not {"missing-line"} & names(report)
    json.dumps(report.as_plain())


@pytest.mark.parametrize("block", [1, 3, 1 << 20])
def test_blocks_do_not_change_what_is_read(tmp_path, monkeypatch, block):
    monkeypatch.setattr(scanning, "BLOCK", block)
    path = tmp_path / "text"
    path.write_bytes("é a\r\n\n  b\u2028 \nlast".encode())
    index = Index()
    found = scan(path, index)
    assert list(index.numbers) == ["é", "a", "b\u2028", "last"]
    assert found.words.tolist() == [0, 1, 2, 3]
    assert found.starts.tolist() == [0, 2, 2, 3, 4]
    assert found.letters.tolist() == [3, 0, 1, 4]
    assert found.blank.tolist() == [False, True, False, False]


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
    assert told(numbers, count) == text


@pytest.fixture
def kvnmt(capfd) -> Callable[..., tuple[int, str, str]]:
    """Status, standard output and standard error of ``kvnmt validate``."""

    def call(*arguments: object) -> tuple[int, str, str]:
        status = 0
        try:
            cli.main(["validate", *map(str, arguments)])
        except SystemExit as end:
            status = end.code
        return (status, *capfd.readouterr())

    return call


def flags(paths: dict[str, Path]) -> list[object]:
    named = [(f"--{flag.replace('_', '-')}", path) for flag, path in paths.items()]
    return [one for pair in named for one in pair]


def test_the_command_is_content_with_a_clean_corpus(kvnmt, tmp_path, clean):
    given = flags(write(tmp_path, clean))
    status, out, err = kvnmt(*given)
    assert (status, err) == (0, "")
    for part in ("1,500", "test.target", "1,500 training pairs"):
        assert part in out
    status, out, err = kvnmt(*given, "--json")
    assert (status, err) == (0, "")
    plain = json.loads(out)
    assert plain["serious"] is False
    assert plain["findings"] == []
    assert plain["kept"] == {"pairs": 1500, "empty": 0, "too_long": 0}
    assert plain["files"][3]["lines"] == 150


def test_the_command_tells_what_is_serious_by_its_status(kvnmt, tmp_path):
    folder = tmp_path / "[red]folder"
    folder.mkdir()
    paths = folder / "a.src", folder / "a.trg"
    for path, data in zip(paths, toy(source=b"a\nb\xff\n")):
        path.write_bytes(data)
    given = ["--source", paths[0], "--target", paths[1]]
    status, out, err = kvnmt(*given)
    assert (status, err) == (1, "")
    for part in ("error", "line-counts", "undecodable"):
        assert part in out
    assert "".join(out.split()).count("[red]folder/a") >= 5
    status, out, _ = kvnmt(*given, "--json")
    plain = json.loads(out)
    assert status == 1
    assert plain["serious"] is True
    found = {finding["name"]: finding for finding in plain["findings"]}
    assert found["undecodable"]["examples"][0]["line"] == 2
    assert found["undecodable"]["examples"][0]["file"] == str(paths[0])


def test_the_command_is_content_with_warnings(kvnmt, tmp_path):
    (tmp_path / "a").write_bytes(b"a b\nx\x0cy\n" * 4)
    (tmp_path / "b").write_bytes(b"A B\nX\n" * 4)
    status, out, _ = kvnmt("--source", tmp_path / "a", "--target", tmp_path / "b")
    assert status == 0
    assert "form-feed" in out


def test_the_command_takes_the_vocabularies_of_a_run(kvnmt, tmp_path, clean):
    paths = write(tmp_path, clean)
    run = tmp_path / "run"
    words = Words(("the",)), Words(("wa",))
    save_vocabularies(Vocabularies(*words), run / "vocabulary")
    (run / "config.json").write_text("{}")
    status, out, _ = kvnmt(*flags(paths), "--run", run, "--json")
    assert status == 0
    files = json.loads(out)["files"]
    ids = [i for line in clean["train"][0] for i in words[0].encode(line)]
    assert files[0]["unknown"] == ids.count(1)


MISUSE = [
    (["--source", "A", "--target", "NOWHERE"], "no file"),
    (["--source", "A", "--target", "FOLDER"], "cannot be read"),
    (["--source", "A", "--target", "A", "--test-source", "A"], "--test-target"),
    (["--source", "A", "--target", "A", "--valid-target", "A"], "--valid-source"),
    (["--source", "A", "--target", "A", "--max-length", "0"], "--max-length"),
    (["--source", "A", "--target", "A", "--max-ratio", "0.5"], "--max-ratio"),
    (["--source", "A", "--target", "A", "--run", "FOLDER"], "is no run directory"),
    (["--source", "A"], "--target"),
]


@pytest.mark.parametrize(("arguments", "part"), MISUSE)
def test_misuse_has_status_two(kvnmt, tmp_path, arguments, part):
    (tmp_path / "a").write_bytes(b"a\n")
    places = {"A": tmp_path / "a", "FOLDER": tmp_path, "NOWHERE": tmp_path / "none"}
    status, out, err = kvnmt(*(places.get(word, word) for word in arguments))
    assert (status, out) == (2, "")
    assert part in err
    assert "Traceback" not in err


def test_a_file_that_is_missing_is_a_mistake_of_the_user(tmp_path):
    with pytest.raises(UserError, match="no file"):
        scan(tmp_path / "nowhere", Index())
