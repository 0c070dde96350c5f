# SPDX-License-Identifier: Apache-2.0
"""The commands that measure and show systems, against what they are made of."""

import math
from collections import Counter

import pytest

from kvnmt.cli.flags import names
from kvnmt.data.text import read_lines
from kvnmt.errors import UserError
from kvnmt.inference.program import SearchConfig
from kvnmt.inference.score import score_lines
from kvnmt.inference.translate import translate_lines
from kvnmt.metrics.bleu import Settings, corpus_chrf, sentence_statistics
from kvnmt.metrics.breakdown import FREQUENCIES
from kvnmt.metrics.significance import sign_test
from kvnmt.runs.directory import load_ensemble, load_run
from tests.cli.commands import check_sentence
from tests.cli.evaluating import LINES, evaluated, rows
from tests.helpers import toy_lines, untrained


def test_scores_of_another_program_stand_beside_bleu(kvnmt, text):
    files = [text.write(name, ["a"] * len(LINES)) for name in ("one", "two")]
    scores = [text.write(f"{path.name}.comet", ["0.5"] * len(LINES)) for path in files]
    given = *files, "--reference", text.folder / "test.ref", "--sentence-scores"
    found = evaluated(kvnmt, *given, *scores)
    assert list(found) == ["score", "significance", "sentence-scores"]
    assert rows(found, "sentence-scores")["two"]["bootstrap"] == 1
    said = kvnmt("evaluate", *given, scores[0])
    check_sentence(said, "names 1 file for 2 systems")
    said = kvnmt("evaluate", *given, *scores, "--measures", "score")
    check_sentence(said, "--sentence-scores is for sentence-scores; name that")


def test_several_systems_against_the_first(kvnmt, text):
    """A file with a wrong word in every line, two runs, and a file without fault."""
    references = read_lines(text.folder / "test.ref")
    wrong = [" ".join(["Z", *line.split()[1:]]) if line else "" for line in references]
    outputs = {"wrong": wrong, text.memory.name: [], text.good.name: []}
    outputs["perfect"] = references
    for folder in (text.memory, text.good):
        run = load_run(folder)
        parts = run, LINES, SearchConfig(beam=1)
        outputs[folder.name] = translate_lines(*parts)
    files = {name: text.write(name, outputs[name]) for name in ("wrong", "perfect")}
    given = files["wrong"], text.memory, text.good, files["perfect"], *text.sides
    found = evaluated(kvnmt, *given)
    assert list(found) == ["score", "significance"]
    scores, tests = rows(found, "score"), rows(found, "significance")
    assert list(scores) == list(outputs)
    assert list(tests) == list(scores)[1:]
    counted = {
        name: sentence_statistics(own, references, Settings("none"))
        for name, own in outputs.items()
    }
    for name, own in outputs.items():
        assert scores[name]["chrf"] == corpus_chrf(own, references).score
        if name in tests:
            sign = sign_test(counted["wrong"], counted[name])
            assert tests[name]["sign_test"] == sign.p
            assert tests[name]["improved"] == sign.improved
    assert scores["perfect"]["bleu"] == pytest.approx(100)
    assert "+" in scores["perfect"]["stars"]  # ten lines better: p = 2 / 1024
    assert scores["wrong"]["stars"] == scores[text.memory.name]["stars"] == ""
    said = kvnmt("evaluate", *given).out.decode()
    for part in ("100.00", "*", "+", "tok:none", "sign test", "ar:200", "bs:1000"):
        assert part in said
    paper = kvnmt("evaluate", *given, "--latex").out.decode()
    assert paper.count(r"\begin{tabular}{lr") == 2 == paper.count(r"\end{tabular}")
    assert r"perfect & 100.00" in paper and "% " in paper.splitlines()[-1][:2]
    both = kvnmt("evaluate", *given, "--latex", "--json")
    assert both.status == 2 and "print one thing in two ways" in both.err


def test_translations_by_several_people(kvnmt, text):
    """What either of them says is right, in the scores and in the tests."""
    references = read_lines(text.folder / "test.ref")
    other = [line[::-1] for line in references]
    files = (
        text.write("other", other),
        text.write("half", [*other[:6], *references[6:]]),
    )
    alone = evaluated(kvnmt, *files, *text.files)
    both = evaluated(kvnmt, *files, *text.files, "--more-references", files[0])
    for found, best in ((alone, 0), (both, 2)):
        scores = [row["bleu"] for row in rows(found, "score").values()]
        assert sum(score > 99.9 for score in scores) == best
    assert "nrefs:2" in rows(both, "score")["other"]["bleu_signature"]
    half = rows(both, "significance")["half"]
    assert half["bootstrap"] == 1
    assert half["improved"] == half["worsened"] == 0
    assert half["difference"] == pytest.approx(0)
    assert "tok:13a" in rows(both, "score")["other"]["bleu_signature"]
    short = text.write("few", ["a"])
    said = kvnmt("evaluate", *files, *text.files, "--more-references", short)
    check_sentence(said, "few' has 1 line but there are 11 references")


def test_perplexity_is_that_of_scoring(kvnmt, text):
    found = evaluated(kvnmt, text.good, *text.sides, "--measures", "perplexity")
    (row,) = rows(found, "perplexity").values()
    run = load_run(text.good)
    references = [line.upper() for line in LINES]
    scored = score_lines(run, LINES, references)
    total = sum(one.log_prob for one in scored)
    tokens = sum(len(line.split()) + 1 for line in LINES)
    assert row["perplexity"] == pytest.approx(math.exp(-total / tokens))
    assert row["word_perplexity"] == pytest.approx(row["perplexity"])
    assert row["unknown_reference"] == 0


def test_perplexity_of_words_is_larger_than_that_of_pieces(kvnmt, text):
    base = text.good.parent
    pieces = untrained(base, "rnnsearch-star", vocabulary="bpe", subwords=14)
    found = evaluated(kvnmt, pieces, *text.sides, "--measures", "perplexity")
    (row,) = rows(found, "perplexity").values()
    references = [line.upper() for line in LINES]
    scored = score_lines(load_run(pieces), LINES, references)
    total = sum(one.log_prob for one in scored)
    words = sum(len(line.split()) + 1 for line in LINES)
    assert row["word_perplexity"] == pytest.approx(math.exp(-total / words))
    assert row["word_perplexity"] > row["perplexity"]


def test_half_of_the_words_are_half_of_them(kvnmt, text):
    lines = [line for line in LINES if line and not len(line.split()) % 2]
    whole = [line.upper().split() for line in lines]
    sides = (
        *("--source", text.write("even.src", lines)),
        *("--reference", text.write("even.ref", [" ".join(line) for line in whole])),
    )
    half = text.write("halves", [" ".join(x[: len(x) // 2]) for x in whole])
    found = evaluated(kvnmt, half, *sides, "--measures", "score", "adequacy")
    assert rows(found, "score")["halves"]["length_ratio"] == pytest.approx(0.5)
    assert rows(found, "adequacy")["halves"]["words_ratio"] == pytest.approx(0.5)


def test_parts_of_the_test_set(kvnmt, text):
    found = evaluated(
        kvnmt, text.good, *text.sides, "--measures", "length", "frequency"
    )
    (lengths,) = (one["rows"] for one in found["length"])
    assert sum(row["sentences"] for row in lengths) == len(LINES)
    rare, words = (one["rows"] for one in found["frequency"])
    assert sum(row["sentences"] for row in rare) == len(LINES)
    assert sum(row["wanted"] for row in words) == sum(len(x.split()) for x in LINES)
    seen = Counter(" ".join(toy_lines(1, 60)).split())  # the run's training text
    least = [min((seen[x] for x in line.split()), default=0) for line in LINES]
    edges = Counter(max(e for e in FREQUENCIES if e <= n) for n in least)
    counts = {int(row["bucket"].split("-")[0]): row["sentences"] for row in rare}
    assert {edge: n for edge, n in counts.items() if n} == edges
    wanted = Counter(
        max(e for e in FREQUENCIES if e <= seen[word])
        for line in LINES
        for word in line.split()
    )
    counts = {int(row["bucket"].split("-")[0]): row["wanted"] for row in words}
    assert {edge: n for edge, n in counts.items() if n} == wanted
    assert 0 not in wanted


def test_all_measures_leave_out_what_cannot_be(kvnmt, text):
    given = text.good, *text.sides, "--measures", "all"
    said = kvnmt("evaluate", *given)
    assert said.status == 0
    for part in ("left out significance", "left out alignment: --gold is not given"):
        assert part in said.err
    for part in ("scores", "perplexity", "adequacy", "BLEU by words", "F1 of target"):
        assert part in said.out.decode()
    check_sentence(
        kvnmt("evaluate", text.good, *text.files, "--measures", "alignment"),
        "alignment cannot be measured: --gold is not given",
    )


def test_an_ensemble_is_called_by_all_its_members(kvnmt, text):
    one, two = text.good, text.memory
    found = evaluated(
        *(kvnmt, one, "--ensemble", two, *text.sides, "--measures", "score")
    )
    assert [*rows(found, "score")] == [f"{one.name} + {two.name}"]
    path = text.folder / "together"
    kvnmt("evaluate", one, "--ensemble", two, *text.sides, "--output", path)
    search = SearchConfig(beam=1)
    together = translate_lines(load_ensemble([one, two]), LINES, search)
    assert read_lines(path) == together != translate_lines(load_run(one), LINES, search)


def test_no_two_systems_have_one_file(tmp_path):
    paths = [tmp_path / name for name in ("p-q/r", "x/r", "p/q-r", "y/q-r")]
    with pytest.raises(UserError, match="alike but for"):
        names(paths)
    assert names(paths[::2]) == ["r", "q-r"]


def test_translations_are_written_whatever_is_measured(kvnmt, text, tmp_path):
    told = "--measures", "perplexity", "--output", tmp_path / "out"
    assert kvnmt("evaluate", text.good, *text.sides, *told).status == 0
    assert any(read_lines(tmp_path / "out"))


def test_systems_are_called_by_what_tells_them_apart(tmp_path):
    paths = [tmp_path / name for name in ("a/x", "b/x", "b/y")]
    assert names(paths) == ["a/x", "b/x", "b/y"]
    assert names(paths[1:]) == ["x", "y"]
    (tmp_path / "current").symlink_to("b/x")
    assert names([tmp_path / "current"]) == ["current"]  # as a service is asked for it
