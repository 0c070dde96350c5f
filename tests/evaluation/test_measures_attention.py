# SPDX-License-Identifier: Apache-2.0
"""Measures of what is attended to: alignments, adequacy, pages, self-attention."""

import statistics
from contextlib import contextmanager
from dataclasses import replace

import jax
import numpy as np
import pytest

from kvnmt.errors import UserError
from kvnmt.evaluation import LackingError, System, Test
from kvnmt.evaluation.alignment import error_of
from kvnmt.evaluation.base import force
from kvnmt.evaluation.exploration import difference, explore
from kvnmt.evaluation.self_attention import by_word
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
from kvnmt.metrics.links import diagonal, invert, parse_pharaoh, symmetrize
from kvnmt.metrics.significance import bootstrap, interval
from kvnmt.runs.directory import load_run
from tests.evaluation.outputs import LINES, given, outputs, reports
from tests.helpers import toy_lines, trained, untrained


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
    aligned = score_lines(whole.run, LINES, test.reference)
    for ours, theirs in zip(plain, aligned, strict=True):
        np.testing.assert_allclose(ours, theirs.token_log_probs, rtol=1e-5)
    assert not any(pair.scored.token_log_probs for pair in forced)
    (some,) = other.forced(test, "reference", [3])
    np.testing.assert_allclose(some.matrix(), forced[3].matrix(), atol=1e-6)
    assert whole.forced(test, "reference", [3]) == [forced[3]]
    assert not other._forced  # nothing is kept of a few


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
    sizes = [(len(a.split()), len(b.split())) for a, b in zip(lines, references)]
    aer = alignment_error_rate([diagonal(*size) for size in sizes], gold).aer
    assert rows["the diagonal"]["aer"] == aer
    assert [*rows][-1] == "the diagonal"
    wide = replace(test, reference=[f"{line}\u00a0x" for line in references])
    (report,) = reports("alignment", wide, [System("ours", list, run)])
    assert report.rows[-1]["links"] == sum(target for _, target in sizes)


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
