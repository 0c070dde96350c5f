# SPDX-License-Identifier: Apache-2.0
"""Plots: what is drawn is read from the figure, what is written from the file."""

import logging

import matplotlib
import numpy as np
import pytest
from matplotlib import font_manager
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Rectangle

from kvnmt.errors import UserError
from kvnmt.evaluation import plots
from kvnmt.evaluation.plots import attention_heatmap, learning_curve

SOURCE = ["ein", "$5", "und", "$6", "</s>"]
TARGET = ["a", "科学", "", "</s>"]


@pytest.fixture
def saved(monkeypatch):
    """The figures that were saved."""
    figures = []
    save = Figure.savefig

    def remember(figure, *args, **kwargs):
        figures.append(figure)
        save(figure, *args, **kwargs)

    monkeypatch.setattr(Figure, "savefig", remember)
    return figures


def _rounds(count: int) -> list[np.ndarray]:
    energies = np.random.default_rng(0).normal(size=(count, 4, 5))
    weights = np.exp(3 * energies)
    return list(weights / weights.sum(axis=2, keepdims=True))


def _assert_png(path) -> None:
    assert path.read_bytes().startswith(b"\x89PNG\r\n")
    assert path.stat().st_size > 5000


@pytest.mark.parametrize("count", [1, 2, 3])
def test_one_panel_per_round_on_one_scale(tmp_path, saved, count):
    path = tmp_path / "attention"
    attention_heatmap(_rounds(count), SOURCE, TARGET, path)
    _assert_png(path)
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
    attention_heatmap(_rounds(1), SOURCE, TARGET, tmp_path / "a.png", titles=["T$1$"])
    panel = saved[0].axes[0]
    assert [text.get_text() for text in panel.get_xticklabels()] == SOURCE
    assert [text.get_text() for text in panel.get_yticklabels()] == TARGET
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
        ({"titles": ["one", "two"]}, "2 titles for 1 rounds"),
        ({"gold": frozenset({(5, 0)})}, "outside"),
        ({"gold": frozenset({(0, 4)})}, "outside"),
        ({"alignments": []}, "no alignment"),
    ],
)
def test_what_does_not_fit_together(tmp_path, change, message):
    arguments = {"alignments": _rounds(1), "source": SOURCE, "target": TARGET}
    with pytest.raises(ValueError, match=message):
        attention_heatmap(**(arguments | change), path=tmp_path / "a.png")


@pytest.mark.filterwarnings("error")
def test_without_cjk_font_nothing_is_said(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(plots, "_CJK_FONTS", ())
    before = dict(matplotlib.rcParams)
    with caplog.at_level(logging.WARNING):
        attention_heatmap(_rounds(1), SOURCE, TARGET, tmp_path / "a.png")
    assert not caplog.records
    assert dict(matplotlib.rcParams) == before


def test_first_installed_cjk_font_is_the_fallback(monkeypatch):
    names = ["Arial", "WenQuanYi Micro Hei", "IPAGothic", "DejaVu Sans"]
    monkeypatch.setattr(font_manager.fontManager, "get_font_names", lambda: names)
    assert plots._font_families() == ["DejaVu Sans", "IPAGothic"]


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
    _assert_png(tmp_path / "curve.png")
    losses, bleu = saved[0].axes
    training, validation = losses.lines
    np.testing.assert_array_equal(training.get_xydata(), [[1, 5.0], [2, 3.5]])
    np.testing.assert_array_equal(validation.get_xydata(), [[2, 4.5]])
    np.testing.assert_array_equal(bleu.lines[0].get_xydata(), [[2, 1.0]])


def test_learning_curve_without_records(tmp_path, saved):
    learning_curve([], tmp_path / "curve.png")
    _assert_png(tmp_path / "curve.png")
    assert [panel.texts[0].get_text() for panel in saved[0].axes] == [
        "not recorded"
    ] * 2


def test_path_that_cannot_be_written(tmp_path):
    with pytest.raises(UserError, match="cannot write .*: No such file"):
        learning_curve([], tmp_path / "missing" / "curve.png")
