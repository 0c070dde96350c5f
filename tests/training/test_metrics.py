# SPDX-License-Identifier: Apache-2.0
"""The lines that a run writes: strict JSON, cut back to a checkpoint."""

import json

from kvnmt.training import metrics


def test_figures_that_are_no_numbers_are_null(tmp_path):
    metrics.add(tmp_path, {"step": 1, "loss": float("nan"), "bleu": float("inf")})
    line = (tmp_path / metrics.NAME).read_text()
    assert json.loads(line) == {"step": 1, "loss": None, "bleu": None}
    assert "NaN" not in line and "Infinity" not in line


def test_lines_behind_a_step_and_half_lines_are_dropped(tmp_path):
    for step in (1, 2, 3):
        metrics.add(tmp_path, {"step": step})
    with (tmp_path / metrics.NAME).open("a") as file:
        file.write('{"step": 2, "lo')
    metrics.cut(tmp_path, 2)
    lines = (tmp_path / metrics.NAME).read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2]


def test_a_run_without_a_line_is_cut_too(tmp_path):
    metrics.cut(tmp_path, 0)
    assert (tmp_path / metrics.NAME).read_text() == ""
