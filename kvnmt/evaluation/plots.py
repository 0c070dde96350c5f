# SPDX-License-Identifier: Apache-2.0
"""Pictures of attention and of training, written as PNG.

Figures are made without pyplot and fonts are chosen text by text, so that nothing here
touches the matplotlib settings of a notebook that calls it.
"""

import math
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any
from unicodedata import east_asian_width

import numpy as np
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Rectangle

from kvnmt.errors import UserError
from kvnmt.evaluation.alignment import Links

# In order of preference. DejaVu Sans comes with matplotlib and lacks CJK characters.
_CJK_FONTS = (
    "Noto Sans CJK JP",
    "Noto Sans CJK SC",
    "Noto Sans JP",
    "Noto Sans SC",
    "IPAexGothic",
    "IPAGothic",
    "WenQuanYi Zen Hei",
    "WenQuanYi Micro Hei",
    "Droid Sans Fallback",
    "Hiragino Sans",
    "PingFang SC",
    "Yu Gothic",
    "Microsoft YaHei",
    "Arial Unicode MS",
)

_CELL = 0.27  # inches
_GAP = 0.2  # inches, between panels
_LONGEST_SIDE = 30.0  # inches; more words get smaller cells and smaller text
_LONGEST_LABEL = 20  # characters
_GOLD = "#e66100"
_MOVED = "#c51b7d"


def attention_heatmap(
    alignments: Sequence[np.ndarray],
    source: Sequence[str],
    target: Sequence[str],
    path: str | os.PathLike[str],
    *,
    titles: Sequence[str] | None = None,
    gold: Links | None = None,
) -> None:
    """Draws the alignment of one sentence pair, one panel per round of attention.

    A dot marks the strongest source word of a target word where the round before
    preferred another one.

    Args:
        alignments: One [T, S] array per round.
        source: S labels, with EOS if the alignments have its column.
        target: T labels, with EOS if the alignments have its row.
        path: Where to write the PNG.
        titles: One per round; by default they are numbered if there are several.
        gold: Links (source, target) to outline.
    """
    rounds = [np.asarray(alignment, dtype=np.float64) for alignment in alignments]
    if titles is None:
        numbers = range(1, len(rounds) + 1)
        titles = [f"round {r}" if len(rounds) > 1 else "" for r in numbers]
    gold = gold or frozenset()
    _check_shapes(rounds, (len(target), len(source)), titles, gold)
    cell = min(_CELL, _LONGEST_SIDE / max(len(rounds) * len(source), len(target)))
    figure, panels = _grid(titles, cell * len(source), cell * len(target))
    for panel, alignment, title in zip(panels, rounds, titles, strict=True):
        panel.imshow(alignment, cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto")
        _write_words(panel, source, target, title, font_size=32 * cell)
        _outline(panel, gold)
    steps = zip(panels[1:], pairwise(rounds), strict=True)
    moves = [_dot_moves(panel, before, after) for panel, (before, after) in steps]
    _add_color_bar(figure, panels[0].images[0])
    _explain_marks(figure, outlined=bool(gold), dotted=any(moves))
    _save(figure, path)


def learning_curve(
    records: Iterable[Mapping[str, Any]], path: str | os.PathLike[str]
) -> None:
    """Draws the losses above the BLEU of one training run.

    Args:
        records: Metrics as training logs them, in the order of logging: ``step`` and
            any of ``train_loss``, ``valid_loss``, ``valid_bleu``. Where a step was
            logged twice, as after a restart, the later value counts.
        path: Where to write the PNG.
    """
    records = list(records)
    figure = Figure((7.0, 5.5), layout="constrained")
    losses, bleu = figure.subplots(2, 1, sharex=True)
    _curve(losses, records, "train_loss", "training", color="#6baed6", linewidth=1)
    _curve(losses, records, "valid_loss", "validation", color="#08306b", marker="o")
    _curve(bleu, records, "valid_bleu", "validation", color=_GOLD, marker="o")
    losses.set_ylabel("loss (nats per target token)")
    bleu.set_ylabel("BLEU")
    bleu.set_xlabel("step")
    bleu.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
    for panel in (losses, bleu):
        panel.grid(color="0.9", linewidth=0.6)
        panel.spines[["top", "right"]].set_visible(False)
        if panel.lines:
            panel.legend(frameon=False, fontsize=9)
        else:
            panel.set_yticks([])
            centre = {"ha": "center", "transform": panel.transAxes}
            panel.text(0.5, 0.5, "not recorded", **centre)
    _save(figure, path)


def _check_shapes(
    rounds: Sequence[np.ndarray],
    shape: tuple[int, int],
    titles: Sequence[str],
    gold: Links,
) -> None:
    if not rounds or 0 in shape:
        raise ValueError("there is no alignment to draw")
    for alignment in rounds:
        if alignment.shape != shape:
            raise ValueError(
                f"an alignment has shape {alignment.shape}, but there are {shape[0]} "
                f"target and {shape[1]} source labels"
            )
    if len(titles) != len(rounds):
        raise ValueError(f"{len(titles)} titles for {len(rounds)} rounds")
    if any(j >= shape[0] or i >= shape[1] for i, j in gold):
        raise ValueError("a gold link lies outside the sentence pair")


def _grid(
    titles: Sequence[str], width: float, height: float
) -> tuple[Figure, Sequence[Axes]]:
    """Makes a panel of exactly this size in inches for each title, side by side.

    The panels fill the figure; words, color bar and legend lie outside of it and are
    added to the picture when it is saved. No layout engine can then resize the cells.
    """
    # Ten-point letters are less than 0.1 inches wide: titles do not touch either.
    gap = max(_GAP, 0.1 * max(map(len, titles)) - width)
    panels = {"left": 0, "right": 1, "bottom": 0, "top": 1, "wspace": gap / width}
    figure = Figure((len(titles) * (width + gap) - gap, height))
    axes = figure.subplots(
        1, len(titles), sharey=True, squeeze=False, gridspec_kw=panels
    )
    return figure, axes[0]


def _write_words(
    panel: Axes,
    source: Sequence[str],
    target: Sequence[str],
    title: str,
    font_size: float,
) -> None:
    # Words may hold dollar signs, which would otherwise start a formula.
    style: dict[str, Any] = {"family": _font_families(), "parse_math": False}
    panel.set_title(title, fontsize=10, pad=9, **style)
    style["fontsize"] = font_size
    panel.xaxis.tick_top()
    panel.set_yticks(range(len(target)), map(_shorten, target), **style)
    panel.set_xticks(range(len(source)), map(_shorten_column, source), **style)
    for word, label in zip(source, panel.get_xticklabels(), strict=True):
        label.set(rotation=0 if _is_wide(word) else 90, linespacing=1.0)
    panel.set_xticks(np.arange(1, len(source)) - 0.5, minor=True)
    panel.set_yticks(np.arange(1, len(target)) - 0.5, minor=True)
    panel.grid(which="minor", color="0.9", linewidth=0.5)
    panel.tick_params(which="both", length=0)
    panel.spines[:].set_color("0.7")


def _shorten(word: str) -> str:
    if len(word) <= _LONGEST_LABEL:
        return word
    return word[: _LONGEST_LABEL - 1] + "…"


def _shorten_column(word: str) -> str:
    """A label to stand above a column; Chinese and Japanese are written downwards."""
    return "\n".join(_shorten(word)) if _is_wide(word) else _shorten(word)


def _is_wide(word: str) -> bool:
    return all(east_asian_width(character) in "WF" for character in word)


def _outline(panel: Axes, gold: Links) -> None:
    for i, j in gold:
        square = Rectangle(
            (i - 0.32, j - 0.32), 0.64, 0.64, fill=False, edgecolor=_GOLD, linewidth=1.5
        )
        panel.add_patch(square)


def _dot_moves(panel: Axes, before: np.ndarray, after: np.ndarray) -> bool:
    """Marks where a target word changed its strongest source word; did any?"""
    was, now = before.argmax(axis=1), after.argmax(axis=1)
    for j in np.flatnonzero(was != now):
        panel.add_patch(
            Circle(
                (float(now[j]), float(j)),
                0.15,
                facecolor=_MOVED,
                edgecolor="white",
                linewidth=0.8,
            )
        )
    return bool((was != now).any())


def _add_color_bar(figure: Figure, image: AxesImage) -> None:
    width = figure.get_figwidth()
    place = figure.add_axes((1 + 0.15 / width, 0, 0.13 / width, 1))
    bar = figure.colorbar(image, cax=place)
    bar.set_ticks([0, 0.5, 1], labels=["0", "0.5", "1"])
    place.tick_params(labelsize=8, length=2, color="0.7")
    bar.outline.set_edgecolor("0.7")


def _explain_marks(figure: Figure, *, outlined: bool, dotted: bool) -> None:
    square = Line2D([], [], marker="s", markersize=8, color=_GOLD, fillstyle="none")
    dot = Line2D([], [], marker="o", markersize=6, color=_MOVED)
    marks = [(square, "gold link")] * outlined
    marks += [(dot, "strongest word moved")] * dotted
    for line, label in marks:
        line.set(linestyle="", label=label)
    if marks:
        figure.legend(
            handles=[line for line, _ in marks],
            loc="upper center",
            bbox_to_anchor=(0.5, -0.05 / figure.get_figheight()),
            ncols=2,
            frameon=False,
            fontsize=9,
        )


def _curve(
    panel: Axes,
    records: Iterable[Mapping[str, Any]],
    key: str,
    label: str,
    **style: Any,
) -> None:
    points = {
        record["step"]: record[key]
        for record in records
        if record.get("step") is not None and _is_number(record.get(key))
    }
    if points:
        steps = sorted(points)
        values = [points[step] for step in steps]
        panel.plot(steps, values, label=label, markersize=4, **style)


def _is_number(value: Any) -> bool:
    return value is not None and math.isfinite(value)


def _font_families() -> list[str]:
    """DejaVu Sans, and one font with Chinese and Japanese characters if there is one.

    Asking for a font that is not installed would log a warning for every label.
    """
    installed = set(font_manager.fontManager.get_font_names())
    return ["DejaVu Sans", *[font for font in _CJK_FONTS if font in installed][:1]]


def _save(figure: Figure, path: str | os.PathLike[str]) -> None:
    with warnings.catch_warnings():
        # Characters in none of the fonts become boxes; nobody can act on the warning.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        try:
            figure.savefig(path, format="png", dpi=150, bbox_inches="tight")
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror}") from error
