# SPDX-License-Identifier: Apache-2.0
"""Charts: what is drawn is read from the figure."""

import math

import numpy as np
import pytest

from kvnmt.metrics.self_attention import RelativePositions, relative_positions
from kvnmt.pictures import charts
from kvnmt.pictures.charts import (
    bleu_by_length,
    growth_chart,
    learning_curve,
    relative_positions_chart,
)

# Focus one back, three times; and two or three back, once each.
NEAR = RelativePositions((3, 0, 0), (11 / 6, 0, 0), (3, 2, 1))
FAR = RelativePositions((1, 1, 1), (1, 1 / 2, 1 / 3), (3, 2, 1))


def test_learning_curve_draws_losses_and_bleu(tmp_path, saved):
    records = [
        {"step": 1, "train_loss": 5.0},
        {"step": 2, "train_loss": 4.0, "valid_loss": 4.5, "valid_bleu": 1.0},
        {"step": 3, "train_loss": float("nan"), "valid_loss": None},
        {"step": 2, "train_loss": 3.5},
        {"train_loss": 9.0},
        {"step": 4, "tokens": 100},
    ]
    learning_curve(iter(records), tmp_path / "curve.png")
    losses, bleu = saved[0].axes
    training, validation = losses.lines
    np.testing.assert_array_equal(training.get_xydata(), [[1, 5.0], [2, 3.5]])
    np.testing.assert_array_equal(validation.get_xydata(), [[2, 4.5]])
    np.testing.assert_array_equal(bleu.lines[0].get_xydata(), [[2, 1.0]])


def test_learning_curve_without_records(tmp_path, saved):
    learning_curve([], tmp_path / "curve.png")
    assert [panel.texts[0].get_text() for panel in saved[0].axes] == [
        "not recorded"
    ] * 2


def test_bleu_by_length_draws_a_line_for_each_system(tmp_path, saved):
    buckets = [("1-10", 1500), ("11-20", 20), ("21+", 0)]
    scores = {"_base": [30.0, 25.5, None], "研究 $5": [31.0, math.nan, 2.0]}
    systems = {
        name: [(*bucket, bleu) for bucket, bleu in zip(buckets, found)]
        for name, found in scores.items()
    }
    bleu_by_length(systems, tmp_path / "bleu.png", axis="target words")
    (panel,) = saved[0].axes
    for line, found in zip(panel.lines, scores.values(), strict=True):
        expected = [math.nan if bleu is None else bleu for bleu in found]
        np.testing.assert_array_equal(line.get_ydata(), expected)
    assert [text.get_text() for text in panel.get_xticklabels()] == [
        "1-10\n(1,500)",
        "11-20\n(20)",
        "21+\n(0)",
    ]
    legend = panel.get_legend().get_texts()
    assert [text.get_text().strip() for text in legend] == list(systems)
    assert not any(text.get_parse_math() for text in legend)
    assert panel.get_xlabel() == "target words"
    looks = {(line.get_color(), line.get_marker()) for line in panel.lines}
    assert len(looks) == 2


def test_many_systems_look_different(tmp_path, saved):
    bucket = ("1+", 3)
    systems = {f"system {i}": [(*bucket, 10.0 + i)] for i in range(14)}
    bleu_by_length(systems, tmp_path / "bleu.png")
    lines = saved[0].axes[0].lines
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == 14


@pytest.mark.parametrize(
    "systems",
    [
        {},
        {"a": []},
        {"a": [("1+", 3, 1.0)], "b": [("1+", 4, 1.0)]},
        {"a": [("1+", 3, 1.0)], "b": [("2+", 3, 1.0)]},
        {"a": [("1+", 3, 1.0)], "b": []},
    ],
)
def test_systems_must_have_the_same_buckets(tmp_path, systems):
    with pytest.raises(ValueError, match="buckets"):
        bleu_by_length(systems, tmp_path / "bleu.png")


def test_relative_positions_are_bars_side_by_side(tmp_path, saved, monkeypatch):
    monkeypatch.setattr(charts, "FARTHEST", 2)
    relative_positions_chart({"near": NEAR, "far": FAR}, tmp_path / "positions.png")
    (panel,) = saved[0].axes
    first, second = panel.containers
    heights = [[bar.get_height() for bar in bars] for bars in (first, second)]
    np.testing.assert_allclose(heights, [[11 / 6, 0, 0], [1, 1 / 2, 1 / 3]])
    for place, (left, right) in enumerate(zip(first, second, strict=True)):
        assert left.get_x() + left.get_width() == pytest.approx(right.get_x())
        assert right.get_x() == pytest.approx(place)
    labels = [text.get_text() for text in panel.get_xticklabels()]
    assert labels == ["1", "2", "more"]


def test_a_name_that_begins_with_a_dash_below_stands_in_the_legend(tmp_path, saved):
    relative_positions_chart({"_near": NEAR, "far": FAR}, tmp_path / "a.png")
    legend = saved[0].axes[0].get_legend()
    assert [text.get_text().strip() for text in legend.get_texts()] == ["_near", "far"]


def test_system_without_words_has_no_bars(tmp_path, saved):
    relative_positions_chart({"none": relative_positions([])}, tmp_path / "a.png")
    bars = saved[0].axes[0].containers[0]
    assert [bar.get_height() for bar in bars] == [0] * 16


def test_growth_has_a_panel_for_each_thing_that_is_changed(tmp_path, saved):
    panels = {
        "batch": {"one": [(64, 4.0), (16, 2.0)], "two": [(16, 1.0), (64, 3.0)]},
        "length": {"one": [(10, 2.0)], "two": [(10, 1.0)]},
    }
    growth_chart(panels, tmp_path / "growth.png")
    batch, length = saved[0].axes
    assert [batch.get_xlabel(), length.get_xlabel()] == ["batch", "length"]
    for line, name in zip(batch.lines, panels["batch"], strict=True):
        np.testing.assert_array_equal(line.get_xydata(), sorted(panels["batch"][name]))
    assert batch.get_ylabel() == "target tokens/s"
