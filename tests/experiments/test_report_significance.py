# SPDX-License-Identifier: Apache-2.0
"""Rows against a baseline, over seeds and over sentences."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from experiments.harness.significance import Against, packed_counts, with_p
from experiments.harness.summaries import Summary, grid_of
from kvnmt.metrics.bleu import Settings
from kvnmt.metrics.significance import resample
from tests.experiments.kept import COLUMNS, MEASURED, SUMMARY, keep, row

AGAINST = Against({"system": "rnnsearch-star"}, "bleu", "counts")


def test_rows_are_tested_over_their_seeds_and_the_baseline_s(tmp_path):
    summary = replace(SUMMARY, against=AGAINST, published={})
    for seed, bleu in enumerate((36.0, 36.5, 35.8, 30.0), start=1):
        keep(tmp_path, f"baseline-{seed}", **row(seed, bleu))
        keep(tmp_path, f"control-{seed}", **row(seed, bleu + 9, "warm"))
    for seed, gain in ((1, 1.0), (2, 1.2)):
        other = row(seed, (36.0, 36.5)[seed - 1] + gain) | {"system": "kvmematt-r1"}
        keep(tmp_path, f"r1-{seed}", **other)
    heading = "p against rnnsearch-star, seeds"
    assert heading not in grid_of(summary, tmp_path).headings
    third = row(3, 35.8 + 0.8) | {"system": "kvmematt-r1"}
    keep(tmp_path, "r1-3", **third)
    grid = grid_of(summary, tmp_path)
    column = [r[grid.headings.index(heading)] for r in grid.rows]
    p = stats.ttest_ind([37, 37.7, 36.6], [36, 36.5, 35.8, 30], equal_var=False).pvalue
    assert sorted(column) == ["", "", f"{p:.3f}"]


def test_rows_are_tested_over_the_sentences_of_the_baseline_of_their_seed(tmp_path):
    """In whatever order they come; where references are others, nothing is said."""
    summary = replace(SUMMARY, against=AGAINST, published={})
    references = [f"a b c d {'e f ' * (n % 3)}g" for n in range(30)]
    texts = {
        ("rnnsearch-star", 1): [
            line[: 12 - n % 5] for n, line in enumerate(references)
        ],
        ("rnnsearch-star", 2): [line.replace("c", "x") for line in references],
        ("kvmematt-r1", 2): [line.replace("b c", "b") for line in references],
        ("kvmematt-r1", 1): [line.replace("g", "h") for line in references],
        ("kvmematt-r1", 3): references,
        ("mematt", 1): references[:20],
    }
    found = []
    for (system, seed), lines in texts.items():
        counts = packed_counts(lines, references[: len(lines)])
        found.append(row(seed, 20.0) | {"system": system, "counts": counts})
        keep(tmp_path, f"{system}-{seed}", **found[-1])
    expected = {
        seed: resample(
            [texts["rnnsearch-star", seed], texts["kvmematt-r1", seed]],
            references,
            "bootstrap",
            Settings("none"),
        ).p["BLEU"][0]
        for seed in (1, 2)
    }
    assert len({*expected.values(), 1.0}) == 3
    grid = grid_of(summary, tmp_path)
    place = grid.headings.index("p against rnnsearch-star, sentences")
    assert {line[0]: line[place] for line in grid.rows} == {
        "`rnnsearch-star`": "",
        "`mematt`": "",
        "`kvmematt-r1`": f"{expected[1]:.3f} / {expected[2]:.3f} (2)",  # of 3 seeds
    }
    lines = with_p(AGAINST, summary.by, found)
    told = {(line["system"], line["seed"]): line["p"] for line in lines if "p" in line}
    wanted = {("kvmematt-r1", seed): p for seed, p in expected.items()}
    assert told == pytest.approx(wanted)


def test_a_baseline_may_be_told_by_a_number(tmp_path):
    """The table of the module and that of the page find the same baseline."""
    random = np.random.default_rng(0)
    lines = [
        [" ".join("abcde"[i] for i in random.integers(0, 5, 6)) for _ in range(9)]
        for _ in range(3)
    ]
    results = [
        MEASURED | {"slots": n, "seed": 1, "c": packed_counts(lines[n], lines[2])}
        for n in (0, 1)
    ]
    against = Against({"slots": "1"}, "bleu", "c")
    first, second = with_p(against, ["slots"], results)
    assert 0 <= first["p"] <= 1 and "p" not in second
    for n, result in enumerate(results):
        keep(tmp_path, str(n), **result)
    summary = Summary("mine", COLUMNS, by=("slots",), against=against)
    grid = grid_of(summary, tmp_path)
    assert "p against slots 1, sentences" in grid.headings
    assert f"{first['p']:.3f}" in grid.rows[0]
