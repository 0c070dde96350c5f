# SPDX-License-Identifier: Apache-2.0
"""Laws of every measure: little input, odd input, and what people are told."""

import json
import math
import statistics
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from scipy import stats

from kvnmt.errors import UserError
from kvnmt.evaluation import (
    MEASURES,
    LackingError,
    Report,
    System,
    Test,
    frequency,
    table,
)
from kvnmt.evaluation.alignment import error_of
from kvnmt.evaluation.base import force
from kvnmt.evaluation.exploration import difference, explore
from kvnmt.evaluation.length import parts
from kvnmt.evaluation.perplexity import unknown
from kvnmt.evaluation.self_attention import by_word
from kvnmt.evaluation.sentence_scores import read_scores
from kvnmt.inference.config import SearchConfig
from kvnmt.inference.forced import Forced
from kvnmt.inference.score import Scored, score_lines
from kvnmt.inference.token_links import attended_links
from kvnmt.metrics.alignment import (
    alignment_error_rate,
    error_rates,
    link_counts,
    soft_alignment_error_rate,
)
from kvnmt.metrics.bleu import Settings, sentence_bleu
from kvnmt.metrics.links import invert, parse_pharaoh, symmetrize
from kvnmt.metrics.significance import bootstrap, interval, resample, t_test
from kvnmt.runs.directory import load_run
from tests.helpers import toy_lines, trained, untrained

DOCS = Path(__file__).parents[2] / "docs" / "evaluation.md"
LINES = ["", "a", *toy_lines(5, 2)]


def outputs(lines: list[str], *runs: Path) -> list[System]:
    """A perfect system, one that says nothing, and runs that say nothing either."""
    silent = [""] * len(lines)
    made = [
        System("perfect", lambda: [line.upper() for line in lines]),
        System("silent", lambda: silent),
    ]
    return made + [System(run.name, lambda: silent, load_run(run)) for run in runs]


def reports(name: str, test: Test, systems: list[System]) -> list[Report]:
    return MEASURES[name](test, systems)


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


def test_nothing_is_aligned_that_nobody_looks_at(tmp_path_factory, monkeypatch):
    """All alignments of a test set fill the memory."""
    run = untrained(tmp_path_factory.getbasetemp(), "kvmematt-r2")
    test = Test([line.upper() for line in LINES], LINES)
    (whole,) = outputs(LINES, run)[2:]
    forced = whole.forced(test, "reference")
    read = []

    def scored(run, source, target, **options):
        read.append((list(target), options.get("aligned", True)))
        return score_lines(run, source, target, **options)

    monkeypatch.setattr("kvnmt.evaluation.base.score_lines", scored)
    (other,) = outputs(LINES, run)[2:]
    plain = other.log_probs(test)
    assert read == [(test.reference, False)]
    np.testing.assert_allclose(
        np.concatenate(plain), np.concatenate(whole.log_probs(test)), rtol=1e-5
    )
    assert len(read) == 1  # the other's are there
    (some,) = other.forced(test, "reference", [3])
    np.testing.assert_allclose(some.matrix(), forced[3].matrix(), atol=1e-6)
    assert whole.forced(test, "reference", [3]) == [forced[3]]
    assert not other._forced  # nothing is kept of a few


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


def given(**systems: list[str]) -> list[System]:
    """Systems that are files of translations."""
    return [System(name, lambda own=own: own) for name, own in systems.items()]


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
    told = "TER takes ideographs for words, chrF2++ lines"
    for source, reference, count in ((whole, spaced, 0), (spaced, whole, 1)):
        test = Test(reference, source)
        (report,) = reports("edits", test, given(ours=reference))
        assert sum(told in note for note in report.notes) == count
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


def test_alignments_of_both_directions(tmp_path_factory):
    """Of a system of two rounds, joined with another run turned around."""
    base = tmp_path_factory.getbasetemp()
    run = load_run(untrained(base, "kvmematt-r2"))
    reverse = load_run(untrained(base, "rnnsearch-star", turned=True))
    lines = toy_lines(3, 6)
    references = [line.upper() for line in lines]
    gold = [parse_pharaoh("0-0") for _ in lines]
    test = Test(references, lines, gold=gold, reverse=reverse)
    (report,) = reports("alignment", test, [System("ours", list, run)])
    rows = {row["system"]: row for row in report.rows}
    forward = force(run, lines, references, "")
    backward = [invert(one.links()) for one in force(reverse, references, lines, "")]
    links = [one.links(1) for one in forward]
    assert links != [one.links(0) for one in forward]
    joined = [symmetrize(a, b, "union") for a, b in zip(links, backward)]
    assert rows["ours, union"]["aer"] == alignment_error_rate(joined, gold).aer
    assert rows["ours, union"]["links"] == sum(map(len, joined))
    assert rows["the other direction"]["links"] == sum(map(len, backward))
    soft = soft_alignment_error_rate([one.matrix(1) for one in forward], gold)
    assert rows["ours"]["soft_aer"] == soft.aer
    mean = statistics.fmean(rows["ours"]["sentences"])
    assert rows["ours"]["mean_aer"] == pytest.approx(mean)
    assert min(rows["ours"]["sentences"]) < mean
    counts, others = link_counts(links, gold), link_counts(joined, gold)
    assert "p" not in rows["ours"]
    assert rows["ours, union"]["p"] == bootstrap(counts, others, error_rates)
    assert rows["ours"]["interval"] == interval(counts, error_rates)
    assert error_of(System("ours", list, run), test) == rows["ours"]["aer"]


def test_links_that_count_from_one_are_told(tmp_path_factory):
    """If no link is of a word of number 0, perhaps all are moved by one."""
    base = tmp_path_factory.getbasetemp()
    for line, told in (("1-1 2-2", True), ("0-1 2-2", False)):
        gold = [parse_pharaoh(line)] * 5
        test = Test(["A B C"] * 5, ["a b c"] * 5, gold=gold)
        (report,) = reports("alignment", test, outputs([], trained(base)))
        assert ("say --from-one" in "".join(report.notes)) == told


@pytest.mark.parametrize("name", ["alignment", "adequacy"])
def test_weights_that_are_no_numbers_are_told(tmp_path_factory, name):
    run = load_run(untrained(tmp_path_factory.getbasetemp(), "kvmematt-r2"))
    run = run._replace(params=jax.tree.map(lambda leaf: leaf * np.nan, run.params))
    test = Test(["a b", "b"], ["A B", "B"], gold=[parse_pharaoh("0-0")] * 2)
    system = System("ours", lambda: ["a b", "b"], run)
    with pytest.raises(LackingError, match="line 1 'ours' has weights .* not finite"):
        reports(name, test, [system])
    with pytest.raises(UserError, match="'ours' reads line 1 with numbers that are"):
        explore({"ours": run}, ["a b"], ["A B"], SearchConfig(), forced=True)
    with pytest.raises(UserError, match="weights that are not finite"):
        attended_links(run, ["a b"], ["A B"], 9)


def test_the_page_is_refused_what_is_no_text(tmp_path_factory):
    run = load_run(trained(tmp_path_factory.getbasetemp()))
    for asked, said in (
        (("ein Haus", None, SearchConfig()), "put a single line in brackets"),
        ((["a", "b"], ["A"], SearchConfig()), "2 source lines but 1 references"),
        ((["a"], None, SearchConfig(seed=3)), "seed"),
    ):
        with pytest.raises(UserError, match=said):
            explore({"ours": run}, *asked)
    with pytest.raises(UserError, match="without a reference"):
        explore({"ours": run}, ["a"], None, SearchConfig(), forced=True)


def test_the_page_reads_in_batches_of_the_search_and_scores_no_reference(
    tmp_path_factory,
):
    """A reference that is read would be compared with itself."""
    base = tmp_path_factory.getbasetemp()
    sizes = []

    @contextmanager
    def watching(what, total):
        yield sizes.append

    for name in ("kvmematt-r2", "delta-memory"):
        run = load_run(untrained(base, name))
        page = explore(
            {"ours": run},
            ["a b", "b", "c"],
            ["A B", "B", "C"],
            SearchConfig(beam=1, batch_size=1),
            forced=name == "delta-memory",
            counting=watching,
        )
        scores = [one["outputs"][0]["score"] for one in page.data["sentences"]]
        assert all((score is None) == (name == "delta-memory") for score in scores)
    assert {*sizes} == {1} if jax.device_count() == 1 else sizes.count(1) >= 6


def test_adequacy_compares_stems_and_takes_possible_links():
    test = Test(["AA BB"], ["a b"], gold=[parse_pharaoh("0-0 1?1")])
    systems = given(inflected=["AX BX"])
    (row,) = reports("adequacy", test, systems)[0].rows
    assert row["dropped"] == 1
    test.stem = 1
    (row,) = reports("adequacy", test, systems)[0].rows
    assert row["dropped"] == 0


def test_adequacy_looks_at_what_the_system_said(tmp_path_factory):
    """A silent system reads nothing, whatever the reference is."""
    run = load_run(trained(tmp_path_factory.getbasetemp()))
    silent = System("silent", lambda: ["", ""], run)
    test = Test(["A B", "C"], ["a b", "c"])
    (row,) = reports("adequacy", test, [silent])[0].rows
    assert (row["unread"], row["overread"], row["words_ratio"]) == (1, 0, 0)


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


def test_self_attention_between_words_by_hand():
    # Words 0 = pieces 0 1, 1 = piece 2, and EOS; columns: start, piece 0, 1, 2.
    # Word 0: the mean of its pieces' rows, without what piece 1 sees of piece 0.
    # Word 1: start 0.2, word 0 = 0.3 + 0.5. EOS: start 0.1, word 0 0.2 + 0.3, word 1.
    pieces = np.array(
        [
            [1.0, 0.0, 0.0, 0.0],
            [0.6, 0.4, 0.0, 0.0],
            [0.2, 0.3, 0.5, 0.0],
            [0.1, 0.2, 0.3, 0.4],
        ]
    )
    one = Forced(Scored([], [], [pieces]), [], [0, 0, 1], (0, 2))
    ((name, (found,)),) = by_word("x", [one])
    assert name == "x"
    want = [[0.8, 0.0, 0.0], [0.2, 0.8, 0.0], [0.1, 0.5, 0.4]]
    np.testing.assert_allclose(found, want)


def test_the_most_different_system_counts():
    assert difference(["a b c"]) == 0
    assert difference(["a b c", "a b c", "x"]) == 100
