# SPDX-License-Identifier: Apache-2.0
"""The commands that measure and show systems, against what they are made of."""

import json
import math
import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from kvnmt.cli.flags import names
from kvnmt.data import sources
from kvnmt.data.text import read_lines
from kvnmt.errors import UserError
from kvnmt.evaluation import MEASURES, Measure, base, inputs
from kvnmt.files import in_file
from kvnmt.inference.forced import force_lines
from kvnmt.inference.program import SearchConfig
from kvnmt.inference.recording import memory_changes, signed_weights
from kvnmt.inference.score import score_lines
from kvnmt.inference.translate import translate_lines
from kvnmt.metrics.adequacy import Coverage, coverage_by_attention
from kvnmt.metrics.alignment import alignment_error_rate, hard_links
from kvnmt.metrics.bleu import Settings, corpus_chrf, sentence_chrf, sentence_statistics
from kvnmt.metrics.breakdown import FREQUENCIES
from kvnmt.metrics.links import parse_pharaoh
from kvnmt.metrics.significance import sign_test
from kvnmt.runs.directory import load_ensemble, load_run
from tests.cli.test_main import check_sentence, filled
from tests.helpers import toy_lines, trained, untrained

BEAM = ("--search.beam", 1)
LINES = [*toy_lines(9, 5), "", *toy_lines(10, 5)]
GOLD = [" ".join(f"{i}-{i}" for i in range(len(line.split()))) for line in LINES]


class Text(NamedTuple):
    """A test set with alignments, and runs of three systems."""

    folder: Path
    good: Path
    memory: Path  # two rounds, not trained
    looking: Path  # self-attentive, not trained

    @property
    def files(self) -> list[object]:
        """The flags that name the test set."""
        given = self.folder / "test.src", self.folder / "test.ref"
        return ["--source", given[0], "--reference", given[1]]

    @property
    def sides(self) -> list[object]:
        """The same, and how runs translate it."""
        return [*self.files, *BEAM]

    def write(self, name: str, lines: list[str]) -> Path:
        """A further file beside the test set."""
        path = self.folder / name
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return path


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> Text:
    base = tmp_path_factory.getbasetemp()
    folder = tmp_path_factory.mktemp("evaluated")
    names = "kvmematt-r2", "self-attentive-residual"
    made = Text(folder, trained(base), *(untrained(base, name) for name in names))
    made.write("test.src", LINES)
    made.write("test.ref", [line.upper() for line in LINES])
    made.write("test.align", GOLD)
    return made


def evaluated(kvnmt, *arguments: object) -> dict:
    said = kvnmt("evaluate", *arguments, "--json")
    assert said.status == 0, said.err
    return json.loads(said.out)


def rows(found: dict, measure: str, report: int = 0) -> dict[str, dict]:
    """Rows by system."""
    return {row["system"]: row for row in found[measure][report]["rows"]}


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


def test_what_stops_a_measure_takes_no_figure_away(kvnmt, text, monkeypatch):
    def stop(test, systems):
        raise UserError("it stops.")

    monkeypatch.setitem(MEASURES, "adequacy", Measure(stop, lambda *_: None))
    perfect = text.write("said", [line.upper() for line in LINES])
    given = perfect, "--reference", text.folder / "test.ref", "--json"
    said = kvnmt("evaluate", *given, "--measures", "score", "adequacy")
    assert said.status == 2 and "it stops." in said.err
    assert json.loads(said.out)["score"][0]["rows"][0]["bleu"] == pytest.approx(100)


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


def test_alignment_error_round_by_round(kvnmt, text, tmp_path_factory):
    turned = untrained(tmp_path_factory.getbasetemp(), "rnnsearch-star", turned=True)
    found = evaluated(
        *(kvnmt, text.memory, *text.files, "--measures", "alignment"),
        *("--gold", text.folder / "test.align", "--reverse", turned),
        *("--links", text.folder / "test.align"),
    )
    told = rows(found, "alignment")
    assert "score" not in found
    run = load_run(text.memory)
    references = [line.upper() for line in LINES]
    gold = [parse_pharaoh(line) for line in GOLD]
    for name, r in (
        ("untrained-kvmematt-r2, round 1", 0),
        ("untrained-kvmematt-r2", 1),
    ):
        links = [
            hard_links(rounds[r], len(line.split()), len(line.split()))
            for rounds, line in zip(run.align(LINES, references), LINES)
        ]
        assert told[name]["aer"] == alignment_error_rate(links, gold).aer
        assert len(told[name]["sentences"]) == len(LINES)
    assert told[str(text.folder / "test.align")]["aer"] == 0
    assert "untrained-kvmematt-r2, grow-diag-final-and" in told
    assert 0 <= told["untrained-kvmematt-r2"]["soft_aer"] <= 1


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


def test_gold_links_may_be_of_either_direction(kvnmt, text):
    """Links from target to source are the same links, swapped."""
    last = [len(line.split()) - 1 for line in LINES]
    lines = [f"0-0 {n}-0" if n >= 0 else "" for n in last]
    turned = [f"0-0 0-{n}" if n >= 0 else "" for n in last]
    straight, swapped = text.write("one.align", lines), text.write("two.align", turned)
    common = kvnmt, text.memory, *text.files, "--measures", "alignment"
    first = evaluated(*common, "--gold", straight)
    assert first == evaluated(*common, "--gold", swapped, "--swap")
    links = "--gold", swapped, "--links", swapped, "--swap"
    both = evaluated(*common, *links, "--swap-links")
    assert rows(both, "alignment")[str(swapped)]["aer"] == 0
    count = [
        f"1p1 {n + 1}-1" if n > 0 else "1-1" if n == 0 else "" for n in last
    ]  # of a pair the first word is but possible
    pharaoh = [f"0?0 {n}-0" if n > 0 else "0-0" if n == 0 else "" for n in last]
    ones, zeros = text.write("ones.align", count), text.write("zeros.align", pharaoh)
    assert evaluated(*common, "--gold", zeros) == evaluated(
        *common, "--gold", ones, "--from-one"
    )
    asked = "evaluate", *common[1:], "--gold"
    check_sentence(kvnmt(*asked, ones), "outside", "or say --from-one if the file co")
    check_sentence(kvnmt(*asked, zeros, "--from-one"), "leave out --from-one.")
    naacl = text.write("naacl.align", ["1 1 1"])
    said = kvnmt(*asked, naacl, "--from-one")
    check_sentence(said, "NAACL format, which counts from 1 in any case; leave out")
    own = text.folder / os.fsdecode(b"caf\xe9.align")  # no name that can be printed
    own.write_text(straight.read_text())
    said = kvnmt("evaluate", *common[1:], *links[:2], "--swap", "--links", own)
    assert said.status == 0 and b"caf\\udce9.align" in said.out
    assert (
        b"have no gold link: whatever is linked there counts as wrong" not in said.out
    )


def test_pairs_without_gold_are_counted(kvnmt, text):
    """Whoever drew the links may have drawn them for some pairs alone."""
    gold = text.write("some.align", ["0-0", *[""] * (len(LINES) - 1)])
    asked = text.memory, *text.sides, "--measures", "alignment", "adequacy"
    told = evaluated(kvnmt, *asked, "--gold", gold)
    empty = sum(bool(line) for line in LINES[1:])
    count = f"{empty} of {len(LINES)} pairs have no gold link: "
    for name in ("alignment", "adequacy"):
        assert any(note.startswith(count) for note in told[name][0]["notes"])


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


def test_adequacy_is_exact_where_gold_is(kvnmt, text):
    """Of 36 words one is missing, one said twice, one never asked for."""
    whole = [line.upper().split() for line in LINES]
    words = sum(map(len, whole))
    n = next(i for i, line in enumerate(whole) if len(set(line)) == len(line) > 2)
    broken = [list(line) for line in whole]
    broken[n] = [*broken[n][1:], broken[n][-1], "Z"]
    perfect = text.write("perfect", [" ".join(line) for line in whole])
    worse = text.write("worse", [" ".join(line) for line in broken])
    found = evaluated(
        *(kvnmt, perfect, worse, text.memory, *text.sides, "--measures", "adequacy"),
        *("--gold", text.folder / "test.align"),
    )
    told = rows(found, "adequacy")
    kinds = "dropped", "repeated", "invented"
    assert [told["perfect"][kind] for kind in kinds] == [0, 0, 0]
    shares = [1 / words, 1 / words, 1 / (words + 1)]
    assert [told["worse"][kind] for kind in kinds] == pytest.approx(shares)
    assert told["perfect"]["repeated_1"] == 0 < told["worse"]["repeated_1"]
    assert "unread" in told["untrained-kvmematt-r2"] and "unread" not in told["worse"]


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


def test_what_is_read_is_of_the_attention_and_the_gold(kvnmt, text):
    given = text.memory, *text.sides, "--search.min-length", 4
    asked = (*given, "--measures", "adequacy", "--gold", text.folder / "test.align")
    found = rows(evaluated(kvnmt, *asked), "adequacy")[text.memory.name]
    run, total = load_run(text.memory), Coverage()
    config = SearchConfig(beam=1, min_length=4)
    hypotheses = translate_lines(run, LINES, config)
    for pair, line in zip(force_lines(run, LINES, hypotheses), GOLD, strict=True):
        links = parse_pharaoh(line)
        total += coverage_by_attention(
            pair.matrix(), pair.links(), links, readable=set(pair.source)
        )
    assert found["unread"] == pytest.approx(total.under)
    assert found["overread"] == pytest.approx(total.over)
    without = rows(evaluated(kvnmt, *given, "--measures", "adequacy"), "adequacy")
    assert found["overread"] != without[text.memory.name]["overread"]


def test_words_may_be_compared_by_their_first_letters(kvnmt, text):
    references = [line.upper() for line in LINES]
    longer = [" ".join(f"{word}x" for word in line.split()) for line in references]
    asked = (
        *(text.write("longer", longer), *text.files, "--measures", "adequacy"),
        *("--gold", text.folder / "test.align"),
    )
    dropped = [
        rows(evaluated(kvnmt, *asked, *stem), "adequacy")["longer"]["dropped"]
        for stem in ([], ["--stem", 1])
    ]
    assert dropped == [1, 0]


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


def test_trees_from_self_attention(kvnmt, text):
    lines = [line for line in LINES if line]
    sides = (
        *("--source", text.write("full.src", lines)),
        *("--reference", text.write("full.ref", [line.upper() for line in lines])),
    )
    right = []
    for line in lines:
        words = line.upper().split()
        right.append("(" + " (".join(words) + ")" * len(words))
    brackets = text.write("brackets", right)
    common = kvnmt, text.looking, *sides, *BEAM
    found = evaluated(*common, "--brackets", brackets)
    assert list(found) == ["score", "self-attention"]
    near, trees = rows(found, "self-attention"), rows(found, "self-attention", 1)
    shares = [near[text.looking.name][key] for key in [*"12345", "more"]]
    assert sum(shares) == pytest.approx(1)
    assert trees["right-branching"]["f1"] == 1
    assert 0 < trees[text.looking.name]["f1"] <= 1


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


def test_translations_and_pictures_are_written(kvnmt, text, tmp_path):
    said = kvnmt(
        *("evaluate", text.good, text.looking, text.memory, *text.sides),
        *("--output", tmp_path / "outputs", "--measures", "score"),
        *("--pictures", tmp_path / "pictures", "--draw", 1, 6),
        *("--gold", text.folder / "test.align"),
    )
    assert said.status == 0, said.err
    written = {path.name for path in (tmp_path / "outputs").iterdir()}
    names = text.good.name, text.looking.name, text.memory.name
    assert written == {f"{name}.txt" for name in names}
    drawn = {path.name for path in (tmp_path / "pictures").iterdir()}
    assert drawn == {
        "bleu-by-length.png",
        "relative-positions.png",
        *(f"self-attention-{n}.png" for n in (1, 6)),
        *(f"attention-1-{name}.png" for name in names),
    }  # line 6 is empty
    assert "no attention is drawn: line 6" in said.err
    paper = "--pictures", tmp_path / "paper", "--picture-kind", "pdf", "--draw", 1
    said = kvnmt("evaluate", text.good, *text.sides, *paper, "--measures", "score")
    assert said.status == 0, said.err
    names = "bleu-by-length", f"attention-1-{text.good.name}"
    files = {path.name: path.read_bytes() for path in (tmp_path / "paper").iterdir()}
    assert files.keys() == {f"{name}.pdf" for name in names}
    for content in files.values():
        assert content.startswith(b"%PDF") and b"/Type3" not in content
    said = kvnmt("evaluate", text.good, *text.sides, *paper[2:4])
    check_sentence(said, "--picture-kind is of pictures; give --pictures too")


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


def test_an_alignment_asked_of_a_system_that_has_none(kvnmt, text, tmp_path_factory):
    fixed = untrained(tmp_path_factory.getbasetemp(), "rnnencdec")
    said = kvnmt("evaluate", fixed, *text.sides, "--gold", text.folder / "test.align")
    check_sentence(said, "rnnencdec", "none is a run with attention")
    gold = "--gold", text.folder / "test.align"
    said = kvnmt("evaluate", text.good, *text.sides, *gold, "--reverse", fixed)
    check_sentence(said, "rnnencdec", "no attention")
    found = evaluated(kvnmt, text.good, fixed, *text.sides, *gold)
    assert list(rows(found, "alignment")) == [text.good.name]
    assert any("rnnencdec" in note for note in found["alignment"][0]["notes"])


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
    def spoilt(*given: Any) -> Any:
        pairs = force_lines(*given)
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


def test_a_pipe_is_no_run(kvnmt, text):
    ours, theirs = os.pipe()
    os.close(theirs)
    said = kvnmt("evaluate", f"/dev/fd/{ours}", *text.files)
    os.close(ours)
    check_sentence(said, "is a pipe, and text is read several times")


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


def test_a_run_needs_a_source(kvnmt, text):
    said = kvnmt("evaluate", text.good, "--reference", text.folder / "test.ref")
    check_sentence(said, "give --source")


def page(path: Path) -> dict:
    """The data in a page."""
    written = path.read_text(encoding="utf-8")
    start = written.index(">", written.index('type="application/json"')) + 1
    return json.loads(written[start : written.index("</script>", start)])


def test_a_page_of_an_ensemble_beside_another_run(kvnmt, text, tmp_path):
    """It has the name of its first run; what it says is what all of it says."""
    path = tmp_path / "page.html"
    runs = text.memory, text.looking
    one, *others = "--ensemble", text.good
    said = kvnmt("explore", *runs, one, *others, *text.sides, "--output", path)
    assert said.status == 0, said.err
    both, alone = page(path)["systems"]
    assert (both["name"], both["members"]) == (text.memory.name, 2)
    assert alone["members"] == 1
    together = load_ensemble([text.memory, text.good])
    search = SearchConfig(beam=1)
    lines = [sentence["source"] for sentence in page(path)["sentences"]]
    texts = [sentence["outputs"][0]["text"] for sentence in page(path)["sentences"]]
    assert texts == translate_lines(together, lines, search)


def test_a_page_to_look_at_systems(kvnmt, text, tmp_path):
    """What it shows is what was translated, aligned and written."""
    path = tmp_path / "page.html"
    runs = text.memory, text.looking
    said = kvnmt("explore", *runs, *text.sides, "--output", path, "--first", 7)
    assert said.status == 0, said.err
    assert "7 sentences" in said.err
    data = page(path)
    assert [each["rounds"] for each in data["systems"]] == [2, 1]
    parts = data["sentences"][0]["outputs"]
    told = [(o["memory"] is None, o["self_attention"] is None) for o in parts]
    assert told == [(False, True), (True, False)]
    assert [one["number"] for one in data["sentences"]] == list(range(1, 8))
    for k, folder in enumerate(runs):
        run = load_run(folder)
        parts = (run,)
        ours = translate_lines(*parts, LINES[:7], SearchConfig(beam=1))
        assert [one["outputs"][k]["text"] for one in data["sentences"]] == ours
    first = data["sentences"][0]
    output = first["outputs"][0]
    run = load_run(text.memory)
    parts = (run,)
    (scored,) = score_lines(*parts, LINES[:1], [output["text"]])
    shape = len(output["target"]), len(output["source"])
    for told, matrix in zip(output["rounds"], scored.alignments):
        assert np.shape(told) == shape
        np.testing.assert_allclose(np.array(told) / 1000, matrix, atol=0.0006)
    ids = (run.vocabularies.target.encode(output["text"]),)
    x = (run.vocabularies.source.encode(LINES[0]),)
    (changes,) = memory_changes(run.experiment.model, run.params, x, ids)
    for told, matrix in zip(output["memory"], changes.added):
        np.testing.assert_allclose(told["added"], matrix, atol=0.0006)
    references = [line.upper() for line in LINES]
    assert output["score"] == round(sentence_chrf(output["text"], references[0]), 2)
    assert output["log_prob"] == pytest.approx(scored.log_prob, abs=1e-3)
    (looking,) = first["outputs"][1]["self_attention"]
    assert np.all(np.triu(looking, 1) == 0) and np.tril(looking, -1).any()
    chrf = sentence_chrf(first["outputs"][1]["text"], output["text"])
    assert first["difference"] == pytest.approx(100 - chrf, abs=0.01)
    empty = data["sentences"][5]["outputs"][0]
    assert (empty["text"], empty["target"], empty["source"]) == ("", ["</s>"], ["</s>"])


def test_a_page_tells_what_is_read_and_what_is_taken_away(kvnmt, text, tmp_path):
    """Of every head, with the share that the decoder has written itself."""
    folder, path = untrained(text.folder, "gated-delta-memory"), tmp_path / "page.html"
    said = kvnmt("explore", folder, *text.sides, "--output", path, "--first", 2)
    assert said.status == 0, said.err
    run, written = load_run(folder), False
    for line, sentence in zip(LINES, page(path)["sentences"]):
        (output,) = sentence["outputs"]
        x = run.vocabularies.source.encode(line)
        y = run.vocabularies.target.encode(output["text"])
        (weights,) = signed_weights(run.experiment.model, run.params, [x], [y])
        for told, signed, own in zip(output["weights"], *weights, strict=True):
            np.testing.assert_allclose(told["signed"], signed, atol=0.0006)
            np.testing.assert_allclose(np.array(told["own"]) / 1000, own, atol=0.0006)
            assert (signed < -0.001).any()
            written |= own[-1] > 0.001
    assert written


def test_references_can_be_forced(kvnmt, text, tmp_path):
    path = tmp_path / "page.html"
    common = "explore", text.good, "--output", path, "--first", 2, "--forced"
    assert kvnmt(*common, *text.files).status == 0
    texts = [one["outputs"][0]["text"] for one in page(path)["sentences"]]
    assert texts == [line.upper() for line in LINES[:2]]
    assert "(nothing is translated, references are read)" in page(path)["title"]
    given = "--source", text.folder / "test.src", *BEAM
    check_sentence(kvnmt(*common, *given), "--forced reads the references")
    check_sentence(kvnmt(*common, *text.sides), "--forced only reads; leave")


@pytest.mark.parametrize("referenced", [True, False])
def test_a_page_reads_no_more_than_it_shows(kvnmt, text, tmp_path, referenced):
    """Of whatever is behind the first lines; only how many there are."""
    source, reference = tmp_path / "source", tmp_path / "reference"
    whole = "".join(f"{line}\n" for line in LINES[:2]).encode()
    source.write_bytes(whole + b"\xff\n")
    reference.write_bytes(whole.upper() + b"\n")
    sides = "--reference", reference
    given = "--source", source, *(sides if referenced else ()), *BEAM
    path = tmp_path / "page.html"
    said = kvnmt("explore", text.good, *given, "--output", path, "--first", 2)
    assert said.status == 0, said.err
    assert len(page(path)["sentences"]) == 2
    said = kvnmt("explore", text.good, *given, "--output", path)
    check_sentence(said, "source, line 3: byte 1")


def test_mistakes_of_the_page_are_told(kvnmt, text, tmp_path):
    source = "--source", text.folder / "test.src", *BEAM
    check_sentence(kvnmt("explore", *source), "name at least one run")
    given = "explore", text.good, *source
    check_sentence(kvnmt(*given, "--first", 0), "--first")
    said = kvnmt(*given, "--output", tmp_path / "no" / "page.html")
    check_sentence(said, "cannot be written")
    nothing = text.write("empty", [])
    said = kvnmt("explore", text.good, "--source", nothing, *BEAM)
    check_sentence(said, "empty' is empty")
