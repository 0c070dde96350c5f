# SPDX-License-Identifier: Apache-2.0
"""Laws of every measure: little input, odd input, and what people are told."""

import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from kvnmt.errors import UserError
from kvnmt.evaluation import MEASURES, LackingError, System, Test, frequency, table
from kvnmt.evaluation.length import parts
from kvnmt.evaluation.perplexity import unknown
from kvnmt.evaluation.sentence_scores import read_scores
from kvnmt.metrics.bleu import Settings, sentence_bleu
from kvnmt.metrics.links import parse_pharaoh
from kvnmt.metrics.significance import resample, t_test
from kvnmt.runs.directory import load_run
from tests.evaluation.outputs import LINES, given, outputs, reports
from tests.helpers import trained, untrained

DOCS = Path(__file__).parents[2] / "docs" / "evaluation.md"


def test_scores_of_another_program_are_tested(tmp_path, monkeypatch):
    """As COMET prints them, with a line for all, or a number a line."""
    draws = np.random.default_rng(1)
    first = draws.normal(0.8, 0.1, 50).round(4)
    second = (first + draws.normal(0.02, 0.05, 50)).round(4)
    said = "".join(f"b.txt\tSegment {n}\tscore: {x:.4f}\n" for n, x in enumerate(first))
    (tmp_path / "first").write_text(
        f"loading\n{said}b.txt\tscore: {first.mean():.4f}\n"
    )
    (tmp_path / "second").write_text("".join(f"{x}\n" for x in second))
    paths = [tmp_path / "first", tmp_path / "second"]
    test = Test(["a b"] * 50, sentence_scores=[read_scores(p, 50) for p in paths])
    systems = outputs(["a b"] * 50)
    (report,) = reports("sentence-scores", test, systems)
    one, two = report.rows
    assert (one["mean"], two["mean"]) == pytest.approx((first.mean(), second.mean()))
    assert one["half_interval"] == pytest.approx(1.96 * stats.sem(first), rel=0.15)
    assert (two["higher"], two["lower"]) == (
        (second > first).sum(),
        (second < first).sum(),
    )
    assert two["t_test"] == pytest.approx(stats.ttest_rel(second, first).pvalue)
    assert two["bootstrap"] == pytest.approx(two["t_test"], abs=0.03)
    assert "t_test" not in one
    monkeypatch.setenv("SACREBLEU_SEED", "7")  # decides all draws
    (report,) = reports("sentence-scores", test, systems)
    assert report.rows[1]["bootstrap"] != two["bootstrap"]
    same = replace(test, sentence_scores=[first, first])
    (report,) = reports("sentence-scores", same, systems)
    assert (report.rows[1]["t_test"], report.rows[1]["bootstrap"]) == (1.0, 1.0)
    with pytest.raises(UserError, match="names 2 files for 1 system; name one for"):
        reports("sentence-scores", test, systems[:1])
    with pytest.raises(UserError, match="second' has 50 scores but there are 49 ref"):
        read_scores(paths[1], 49)
    paths[1].write_text("0.5\nnan\n")
    with pytest.raises(UserError, match="second, line 2: 'nan' is no number"):
        read_scores(paths[1], 2)


@pytest.mark.parametrize("name", ["adequacy", "length", "score"])
def test_words_that_no_spaces_part_are_told(name):
    """Measures that count words then count lines."""
    lines = ["\u732b\u304c\u30de\u30c3\u30c8\u306e\u4e0a"] * 3
    wanted = name != "score"
    for source, side in (lines, "source and reference"), (["a b"] * 3, "reference"):
        (report,) = reports(name, Test(lines, source), outputs(lines)[:2])
        told = [note for note in report.notes if "segment the text" in note]
        assert bool(told) == wanted
        assert all(note.startswith(f"{side}: no spaces") for note in told)
    (report,) = reports(name, Test(["a b"] * 3, ["a"] * 3), outputs(["a b"] * 3)[:2])
    assert not any("segment" in note for note in report.notes)


@pytest.mark.parametrize("name", MEASURES)
def test_references_alone_are_enough_or_lacking_is_told(name):
    references = [line.upper() for line in LINES]
    try:
        found = reports(name, Test(references), outputs(LINES))
    except LackingError as lacking:
        assert name not in ("score", "significance")
        assert str(lacking)
        return
    assert all(report.rows for report in found)


@pytest.mark.parametrize(
    "lines", [LINES, ["a b"], [""]], ids=["several", "one", "none"]
)
@pytest.mark.parametrize("name", MEASURES)
def test_whatever_is_there_is_measured(name, lines, tmp_path_factory):
    """One sentence, empty ones, outputs of nothing: figures, and finite ones."""
    base = tmp_path_factory.getbasetemp()
    looking = untrained(base, "self-attentive-residual")
    systems = outputs(lines, trained(base), looking)
    test = Test([line.upper() for line in lines], lines)
    test.gold = [parse_pharaoh("0-0" if line else "") for line in lines]
    test.aligners = {"gold": test.gold}
    test.reverse = load_run(untrained(base, "rnnsearch-star", turned=True))
    test.sentence_scores = [np.ones(len(lines))] * len(systems)
    for report in reports(name, test, systems):
        assert report.rows or not any(lines)
        assert table(report).row_count == len(report.rows)
        plain = json.dumps(report.rows)
        assert "NaN" not in plain and "Infinity" not in plain
        for row in report.rows:
            for value in row.values():
                assert not isinstance(value, float) or math.isfinite(value)


@pytest.mark.parametrize("name", MEASURES)
def test_every_measure_is_explained(name):
    assert f"| `{name}` |" in DOCS.read_text(encoding="utf-8")


REFERENCES = [f"a{n} b c d e" for n in range(12)]
PLAIN = Settings("none")


def test_stars_are_against_the_row_above_and_the_first():
    """A worse row in between: better than that one, no better than the first."""
    test = Test(REFERENCES, settings=PLAIN)
    wrong = [f"{line[:-1]}x" for line in REFERENCES]
    worse = [f"{line[:-3]}x x" for line in REFERENCES]
    systems = given(first=wrong, second=worse, third=wrong, fourth=REFERENCES)
    (report,) = reports("score", test, systems)
    assert [row["stars"] for row in report.rows] == ["", "", "*", "*+"]
    assert "resamples of the sentences" in "".join(report.notes)
    for row in report.rows:
        low, high = row["interval"]
        assert low <= row["bleu"] <= high and row["half_interval"] == (high - low) / 2


def test_edits_count_case_and_further_references_as_asked():
    """The signatures, below the table, say how."""
    systems = given(ours=["A b C d", ""])
    test = Test(["a b c d", "e"], more_references=(["A x C d", "f"],))
    for lowercase, ter, case in ((False, 2, "mixed"), (True, 1, "lc")):
        test.settings = Settings("none", lowercase)
        (report,) = reports("edits", test, systems)
        (row,) = report.rows
        assert row["ter"] == pytest.approx(100 * ter / 5)
        assert 0 < row["chrf"] < 100
        for kind, note in zip(("ter", "chrf"), report.notes):
            assert row[f"{kind}_signature"] in note
            assert f"nrefs:2|case:{case}" in note


def test_edits_of_text_without_spaces_are_explained():
    """Of the reference; nothing of the source is looked at."""
    spaced, whole = ["a b c"] * 9, ["\u732b\u304c\u5ea7\u308b\u3002" * 4] * 9
    thai = ["\u0e41\u0e21\u0e27\u0e19\u0e31\u0e48\u0e07" * 2] * 9
    told = "TER takes {} for words, chrF2++ lines"
    for source, reference, taken in (
        *((whole, spaced, ""), (spaced, whole, "ideographs")),
        (spaced, thai, "what spaces part"),
    ):
        test = Test(reference, source)
        (report,) = reports("edits", test, given(ours=reference))
        explained = [note for note in report.notes if "no spaces between" in note]
        assert len(explained) == bool(taken)
        assert all(told.format(taken) in note for note in explained)
        assert not any("segment the text" in note for note in report.notes)


def test_no_star_for_a_lower_score():
    """Most sentences are slightly better, some long ones ruined."""
    references = ["a b c d e"] * 30 + [" ".join("abcdefghijklmnopqrstuvwxyz")] * 8
    first = ["a b c d x"] * 30 + references[30:]
    second = ["a b c d e"] * 30 + ["q"] * 8
    test = Test(references, settings=PLAIN)
    (report,) = reports("score", test, given(first=first, second=second))
    assert report.rows[1]["bleu"] < report.rows[0]["bleu"]
    assert report.rows[1]["stars"] == ""


def test_the_tests_are_those_of_the_library():
    wrong = [f"{line[:-1]}x" if n % 3 else line for n, line in enumerate(REFERENCES)]
    test = Test(REFERENCES, settings=PLAIN)
    systems = given(first=wrong, second=REFERENCES)
    (row,) = reports("significance", test, systems)[0].rows
    first, second = (sentence_bleu(one.statistics(test)) for one in systems)
    assert row["t_test"] == t_test(second - first, "greater") < 0.05
    outputs = [wrong, REFERENCES]
    for kind in ("bootstrap", "randomisation"):
        found = resample(outputs, REFERENCES, kind, PLAIN).p
        assert [row[kind]] == found["BLEU"]
        assert [row[f"{kind}_chrf"]] == found["chrF2"]


def test_frequencies_are_of_the_side_that_is_looked_at(monkeypatch, tmp_path_factory):
    run = load_run(trained(tmp_path_factory.getbasetemp()))
    counts = Counter({"a": 7}), Counter({"A": 2000})
    monkeypatch.setattr(frequency, "_count", lambda run: counts)
    rare, words = reports(
        "frequency", Test(["A"], ["a"]), [System("x", lambda: ["A"], run)]
    )
    assert [row["bucket"] for row in rare.rows] == ["5-9"]
    assert [row["bucket"] for row in words.rows] == ["1000+"]
    assert words.rows[0]["f1"] == {"x": 1}


@pytest.mark.parametrize("name", ["source", "target", "pairs"])
def test_training_text_that_never_ends_is_not_read(tmp_path_factory, name):
    """Whoever made a run may have named a device."""
    run = load_run(trained(tmp_path_factory.getbasetemp()))
    data = replace(run.experiment.data, **{name: Path("/dev/zero")})
    other = run._replace(experiment=replace(run.experiment, data=data))
    with pytest.raises(LackingError, match="'/dev/zero' is no file"):
        frequency.check(Test(["A"], ["a"]), [System("x", lambda: ["A"], other)])
    data = replace(run.experiment.data, **{name: Path("x" * 300)})  # out of reach
    other = run._replace(experiment=replace(run.experiment, data=data))
    with pytest.raises(LackingError, match="xx' is no file"):
        frequency.check(Test(["A"], ["a"]), [System("x", lambda: ["A"], other)])
    data = replace(run.experiment.data, links=Path("/dev/zero"))  # which nobody reads
    other = run._replace(experiment=replace(run.experiment, data=data))
    frequency.check(Test(["A"], ["a"]), [System("x", lambda: ["A"], other)])


def test_lengths_are_of_the_source():
    systems = given(bucket=["a"], words=["a"])  # names that rows have of their own
    long = Test(["a"], [" ".join("abcdefghijklm")])
    assert [part.label for part in parts(long, systems)["bucket"]] == ["11-20"]
    (report,) = reports("length", long, systems)
    assert report.rows[0]["bucket"] == "11-20"
    assert set(report.rows[0]["bleu"]) == {"bucket", "words"}
    assert [part.label for part in parts(Test(["a"]), systems)["words"]] == ["1-10"]


def test_all_measures_tell_the_same_bleu():
    """Without 4-grams, too, where BLEU that is not smoothed is 0."""
    lines = [" ".join(letters) for letters in ("abcde", "abcdefghijklmno")]
    test = Test([line.upper() for line in lines], lines, settings=PLAIN)
    systems = given(better=["A B C X E", "A B C X Y"], worse=["A B X D E", "A B X C D"])
    score, tested, length = (
        reports(name, test, systems)[0].rows
        for name in ("score", "significance", "length")
    )
    better, worse = (row["bleu"] for row in score)
    assert 0 < worse < better
    assert tested[0]["difference"] == pytest.approx(worse - better)
    assert tested[0]["difference"] < 0
    assert min(length[0]["bleu"].values()) > 0


def test_a_length_that_no_sentence_has_is_a_gap():
    lines = [" ".join("a" * n) for n in (3, 24)]
    (buckets,) = parts(Test(lines, lines, settings=PLAIN), given(x=lines)).values()
    told = [(part.label, part.sentences) for part in buckets]
    assert told == [("1-10", 1), ("11-20", 0), ("21-30", 1)]
    assert buckets[1].bleu is None
    (report,) = reports("length", Test(lines, lines), given(x=lines))
    assert [row["bucket"] for row in report.rows] == ["1-10", "21-30"]


def test_unknown_words_are_of_their_own_vocabulary(tmp_path_factory):
    run = load_run(trained(tmp_path_factory.getbasetemp()))
    source, target = run.vocabularies
    assert unknown(source, ["a zz", "zz b"]) == 0.5
    test = Test(["A ZZ ZZ C"], ["a b"])
    system = System("x", lambda: ["A <unk> B"], run)
    (row,) = reports("perplexity", test, [system])[0].rows
    assert (row["unknown_source"], row["unknown_reference"]) == (0, 0.5)
    assert row["unknown_output"] == pytest.approx(1 / 3)
    assert unknown(target, []) == 0
