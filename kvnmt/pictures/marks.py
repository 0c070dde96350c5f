# SPDX-License-Identifier: Apache-2.0
"""Marks laid over the cells of an alignment, and what they mean."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Rectangle

from kvnmt.data.links import Links
from kvnmt.pictures.drawing import GOLD, MOVED


def outline(panel: Axes, gold: Links) -> None:
    """Outlines the cells of gold links."""
    for i, j in gold:
        square = Rectangle(
            (i - 0.32, j - 0.32), 0.64, 0.64, fill=False, edgecolor=GOLD, linewidth=1.5
        )
        panel.add_patch(square)


def dot_moves(panel: Axes, before: np.ndarray, after: np.ndarray) -> bool:
    """Marks where a target word changed its strongest source word; did any?

    Where a row holds no number nothing is known of it.
    """
    was, now = before.argmax(axis=1), after.argmax(axis=1)
    moved = (was != now) & ~np.isnan(before + after).any(axis=1)
    for j in np.flatnonzero(moved):
        panel.add_patch(
            Circle(
                (float(now[j]), float(j)),
                0.15,
                facecolor=MOVED,
                edgecolor="white",
                linewidth=0.8,
            )
        )
    return bool(moved.any())


def explain_marks(figure: Figure, *, outlined: bool, dotted: bool) -> None:
    """Says below the panels what the marks that there are mean."""
    square = Line2D([], [], marker="s", markersize=8, color=GOLD, fillstyle="none")
    dot = Line2D([], [], marker="o", markersize=6, color=MOVED)
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
