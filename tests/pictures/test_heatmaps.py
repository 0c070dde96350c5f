# SPDX-License-Identifier: Apache-2.0
"""Plots: what is drawn is read from the figure."""

import io
import logging

import numpy as np
import pytest
from matplotlib.patches import Circle, Rectangle

from kvnmt.errors import UserError
from kvnmt.pictures import drawing
from kvnmt.pictures.heatmaps import (
    attention_heatmap,
    memory_heatmap,
    self_attention_heatmap,
    signed_heatmap,
)
from kvnmt.pictures.panels import shorten

SOURCE = ["ein", "$5", "und", "$6", "</s>"]
TARGET = ["a", "科学", "", "</s>"]


def _rounds(count: int) -> list[np.ndarray]:
    energies = np.random.default_rng(0).normal(size=(count, 4, 5))
    weights = np.exp(3 * energies)
    return list(weights / weights.sum(axis=2, keepdims=True))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_one_panel_per_round_on_one_scale(tmp_path, saved, count):
    path = tmp_path / "attention"
    attention_heatmap(_rounds(count), SOURCE, TARGET, path)
    *panels, bar = saved[0].axes
    assert len(panels) == count
    assert bar.get_ylim() == (0, 1)
    for panel, alignment in zip(panels, _rounds(count), strict=True):
        np.testing.assert_array_equal(panel.images[0].get_array(), alignment)
        assert panel.images[0].get_clim() == (0, 1)
    titles = [panel.get_title() for panel in panels]
    assert titles == ([""] if count == 1 else [f"round {r + 1}" for r in range(count)])


def test_cells_are_square_and_panels_apart(tmp_path, saved):
    attention_heatmap(_rounds(2), SOURCE, TARGET, tmp_path / "a.png")
    size = saved[0].get_size_inches()
    first, second = (panel.get_position() for panel in saved[0].axes[:2])
    assert first.width * size[0] / 5 == pytest.approx(first.height * size[1] / 4)
    assert second.x0 > first.x1


def test_words_label_the_axes(tmp_path, saved):
    titles = ["T$1$", "two"]
    attention_heatmap(_rounds(2), SOURCE, TARGET, tmp_path / "a.png", titles=titles)
    panel, second = saved[0].axes[:2]
    assert [text.get_text() for text in panel.get_xticklabels()] == SOURCE
    assert [text.get_text() for text in panel.get_yticklabels()] == TARGET
    assert [text.get_text() for text in second.get_xticklabels()] == SOURCE
    assert not second.get_yticklabels()
    assert panel.xaxis.get_ticks_position() == "top"
    assert panel.yaxis_inverted()
    texts = [panel.title, *panel.get_xticklabels()]
    assert not any(text.get_parse_math() for text in texts)


def test_wide_and_long_words(tmp_path, saved):
    words = ["科学家", "x" * 40]
    attention_heatmap([np.eye(2)], words, words, tmp_path / "a.png")
    wide, long = saved[0].axes[0].get_xticklabels()
    assert (wide.get_text(), wide.get_rotation()) == ("科\n学\n家", 0)
    assert (long.get_text(), long.get_rotation()) == ("x" * 19 + "…", 90)


def test_gold_and_moved_links_are_marked(tmp_path, saved):
    first = np.eye(4, 5)
    second = first.copy()
    second[2] = [0, 0, 0, 1, 0]
    gold = frozenset({(3, 2), (0, 1)})
    attention_heatmap([first, second], SOURCE, TARGET, tmp_path / "a.png", gold=gold)
    for number, panel in enumerate(saved[0].axes[:2]):
        squares = [patch for patch in panel.patches if isinstance(patch, Rectangle)]
        centres = {tuple(np.round(square.get_center())) for square in squares}
        assert centres == gold
        dots = [patch.center for patch in panel.patches if isinstance(patch, Circle)]
        assert dots == ([] if number == 0 else [(3, 2)])
    assert len(saved[0].legends[0].get_texts()) == 2


def test_no_marks_no_legend(tmp_path, saved):
    attention_heatmap([np.eye(4, 5)] * 2, SOURCE, TARGET, tmp_path / "a.png")
    assert not saved[0].legends


def test_long_sentences_stay_a_picture(tmp_path, saved):
    attention_heatmap([np.eye(150, 2)], ["w"] * 2, ["w"] * 150, tmp_path / "a.png")
    attention_heatmap([np.eye(2, 75)] * 2, ["w"] * 75, ["w"] * 2, tmp_path / "b.png")
    high, wide = (figure.get_size_inches() for figure in saved)
    assert high[1] == pytest.approx(30)
    assert wide[0] == pytest.approx(30, abs=1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source": SOURCE[:-1]}, "4 target and 4 source labels"),
        ({"target": [*TARGET, "x"]}, "5 target and 5 source labels"),
        ({"titles": ["one", "two"]}, "argument"),
        ({"gold": frozenset({(5, 0)})}, "outside"),
        ({"gold": frozenset({(0, 4)})}, "outside"),
        ({"alignments": []}, "no alignment"),
    ],
)
def test_what_does_not_fit_together(tmp_path, change, message):
    arguments = {"alignments": _rounds(1), "source": SOURCE, "target": TARGET}
    with pytest.raises(ValueError, match=message):
        attention_heatmap(**(arguments | change), path=tmp_path / "a.png")


def test_without_a_font_nothing_is_said(tmp_path, monkeypatch, caplog, saved):
    monkeypatch.setattr(drawing, "_choose", lambda characters: ([], characters))
    with caplog.at_level(logging.WARNING):
        attention_heatmap(_rounds(1), SOURCE, TARGET, tmp_path / "a.png")
    assert len(saved) == 1
    assert not caplog.records


def test_words_have_the_fonts_they_need(tmp_path, monkeypatch, saved):
    monkeypatch.setattr(drawing, "_choose", lambda characters: (["STIXGeneral"], {0}))
    attention_heatmap(_rounds(1), SOURCE, TARGET, tmp_path / "a.png", titles=["科学"])
    weights = np.tril(np.full((4, 4), 0.1))
    self_attention_heatmap([weights], TARGET, tmp_path / "b.png")
    for panel in (saved[0].axes[0], saved[1].axes[0]):
        texts = [panel.title, *panel.get_xticklabels(), *panel.get_yticklabels()]
        families = {tuple(text.get_fontfamily()) for text in texts}
        assert families == {("DejaVu Sans", "STIXGeneral")}


def _triangle(size: int) -> np.ndarray:
    weights = np.tril(np.random.default_rng(1).random((size, size)))
    return weights / weights.sum(axis=1, keepdims=True)


def test_self_attention_leaves_what_lies_ahead_empty(tmp_path, saved):
    systems, path = [_triangle(4), np.eye(4)], tmp_path / "self.png"
    self_attention_heatmap(systems, TARGET, path, titles=["one", "two $2$"])
    *panels, bar = saved[0].axes
    assert bar.get_ylim() == (0, 1)
    for panel, weights in zip(panels, systems, strict=True):
        drawn = panel.images[0].get_array()
        np.testing.assert_array_equal(drawn.mask, np.triu(np.ones((4, 4)), 1) == 1)
        np.testing.assert_array_equal(drawn.filled(0), weights)
        columns = [text.get_text() for text in panel.get_xticklabels()]
        assert columns == ["∅", "a", "科\n学", ""]
        assert panel.yaxis_inverted()
    rows = [[text.get_text() for text in panel.get_yticklabels()] for panel in panels]
    assert rows == [TARGET, []]
    assert [panel.get_title() for panel in panels] == ["one", "two $2$"]
    assert not panels[1].title.get_parse_math()


def test_self_attention_lines_follow_the_diagonal(tmp_path, saved):
    self_attention_heatmap([_triangle(2)], ["a", "b"], tmp_path / "self.png")
    across, down = (
        {tuple(map(tuple, line)) for line in lines.get_segments()}
        for lines in saved[0].axes[0].collections
    )
    assert across == {
        ((-0.5, -0.5), (0.5, -0.5)),
        ((-0.5, 0.5), (1.5, 0.5)),
        ((-0.5, 1.5), (1.5, 1.5)),
    }
    assert down == {
        ((-0.5, -0.5), (-0.5, 1.5)),
        ((0.5, -0.5), (0.5, 1.5)),
        ((1.5, 0.5), (1.5, 1.5)),
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"titles": ["one"]}, "argument"),
        ({"words": TARGET[1:]}, r"shape \(4, 4\), but there are 3"),
        ({"weights": [], "words": [], "titles": []}, "no alignment"),
        ({"weights": [np.eye(0)] * 2, "words": []}, "no alignment"),
    ],
)
def test_self_attention_that_does_not_fit(tmp_path, change, message):
    arguments = {"weights": [_triangle(4)] * 2, "words": TARGET}
    arguments["titles"] = ["one", "two"]
    with pytest.raises(ValueError, match=message):
        self_attention_heatmap(**(arguments | change), path=tmp_path / "a.png")


@pytest.mark.parametrize("count", [1, 2])
def test_a_memory_has_two_panels_per_round_on_one_scale(tmp_path, saved, count):
    forgotten = [2 * matrix for matrix in _rounds(count)]
    added = [0.5 * matrix for matrix in _rounds(count)]
    memory_heatmap(forgotten, added, SOURCE, TARGET, tmp_path / "a.png")
    *panels, bar = saved[0].axes
    greatest = np.max(forgotten)
    assert bar.get_ylim() == (0, greatest)
    drawn = [matrix for pair in zip(forgotten, added) for matrix in pair]
    for panel, matrix in zip(panels, drawn, strict=True):
        np.testing.assert_array_equal(panel.images[0].get_array(), matrix)
        assert panel.images[0].get_clim() == (0, greatest)
        assert [text.get_text() for text in panel.get_xticklabels()] == SOURCE
        assert not panel.patches  # no word has moved from what is forgotten to added
    assert [text.get_text() for text in panels[0].get_yticklabels()] == TARGET
    titles = [panel.get_title() for panel in panels]
    if count == 1:
        assert titles == ["forgotten", "added"]
    else:
        assert titles == [
            f"{what} in round {r}" for r in (1, 2) for what in ("forgotten", "added")
        ]


def test_a_memory_that_nothing_changed_is_drawn(tmp_path, saved):
    nothing = [np.zeros((4, 5))]
    memory_heatmap(nothing, nothing, SOURCE, TARGET, tmp_path / "a.png")
    assert saved[0].axes[0].images[0].get_clim() == (0, 1)


def test_what_is_no_number_spoils_no_other_cell(tmp_path, saved):
    (matrix,) = _rounds(1)
    broken = matrix.copy()
    broken[1, 2] = np.nan
    memory_heatmap([broken], [matrix], SOURCE, TARGET, tmp_path / "a.png")
    assert saved[0].axes[0].images[0].get_clim() == (0, matrix.max())
    signed_heatmap([broken[None]], [np.zeros(4)], SOURCE, TARGET, tmp_path / "b.png")
    assert saved[1].axes[0].images[0].get_clim() == (-matrix.max(), matrix.max())
    turned = matrix[:, ::-1].copy()
    turned[0, 0] = np.nan
    attention_heatmap([matrix, turned], SOURCE, TARGET, tmp_path / "c.png")
    rows = {patch.center[1] for patch in saved[2].axes[1].patches}
    assert rows and 0 not in rows  # of moves


def test_what_is_not_seen_is_named_in_labels():
    assert shorten("a\tb") == "a\\u0009b"
    assert shorten("\u202eabc") == "\\u202eabc"
    assert shorten("\u0915\u200d\u0937") == "\u0915\u200d\u0937"  # letters that join


@pytest.mark.parametrize("path", [None, 3, io.StringIO()])
def test_a_picture_needs_a_place(path):
    with pytest.raises(UserError, match="to a path or to a file open for bytes"):
        attention_heatmap(_rounds(1), SOURCE, TARGET, path)


def test_a_memory_of_another_sentence_is_refused(tmp_path):
    turned = [matrix.T for matrix in _rounds(1)]
    with pytest.raises(ValueError, match="4 target and 5 source labels"):
        memory_heatmap(turned, turned, SOURCE, TARGET, tmp_path / "a.png")


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("written", [0.0, 0.25])
def test_signs_are_told_apart_by_head_and_round(tmp_path, saved, count, written):
    signed = [np.stack([matrix, -2 * matrix]) for matrix in _rounds(count)]
    own = [np.array([0, *[written] * 3]) for _ in signed]
    signed_heatmap(signed, own, SOURCE, TARGET, tmp_path / "a.png")
    *panels, bar = saved[0].axes
    greatest = np.abs(signed).max()
    assert bar.get_ylim() == (-greatest, greatest)
    of_rounds = np.split(np.array(panels), count)
    for number, (shown, heads) in enumerate(zip(of_rounds, signed), start=1):
        assert len(shown) == 2 + bool(written)
        for n, matrix in enumerate(heads):
            np.testing.assert_array_equal(shown[n].images[0].get_array(), matrix)
            assert shown[n].images[0].get_clim() == (-greatest, greatest)
            of_round = f"round {number}, " if count > 1 else ""
            assert shown[n].get_title() == f"{of_round}head {n + 1}"
            assert [text.get_text() for text in shown[n].get_xticklabels()] == SOURCE
        if written:
            share = shown[2].images[0].get_array()
            np.testing.assert_array_equal(share, own[0][:, None])
            assert [t.get_text() for t in shown[2].get_xticklabels()] == [
                "own writes, 0 to 1"
            ]
    purple, orange = (panels[0].images[0].cmap(place)[::2] for place in (1.0, 0.0))
    assert purple[1] > purple[0] and orange[0] > orange[1]


def test_signs_of_another_sentence_are_refused(tmp_path):
    turned = [matrix.T[None] for matrix in _rounds(1)]
    with pytest.raises(ValueError, match="4 target and 5 source labels"):
        signed_heatmap(turned, [np.zeros(5)], SOURCE, TARGET, tmp_path / "a.png")
    right = [matrix[None] for matrix in _rounds(1)]
    with pytest.raises(ValueError, match="own has not a share for each target word"):
        signed_heatmap(right, [np.zeros(7)], SOURCE, TARGET, tmp_path / "a.png")
