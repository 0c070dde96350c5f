# SPDX-License-Identifier: Apache-2.0
"""Panels of shaded cells side by side, words along both axes, a color bar."""

from collections.abc import Sequence
from unicodedata import category, east_asian_width

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from kvnmt.pictures.drawing import style

CELL = 0.27  # inches
LONGEST_SIDE = 30.0  # inches; more words get smaller cells and smaller text
_GAP = 0.2  # inches, between panels
_LONGEST_LABEL = 20  # characters


def make_panels(
    titles: Sequence[str], shapes: Sequence[tuple[int, int]], cell: float
) -> tuple[Figure, Sequence[Axes]]:
    """Makes a panel of exactly these rows and columns for each title, side by side.

    The panels fill the figure; words, color bar and legend lie outside of it and are
    added to the picture when it is saved. No layout engine can then resize the cells.
    """
    # Ten-point letters are less than 0.1 inches wide: titles do not touch either.
    wider = (
        0.1 * _text_width(title) - cell * columns
        for title, (_, columns) in zip(titles, shapes, strict=True)
    )
    gap = _GAP + max(0.0, *wider)
    width = sum(cell * columns + gap for _, columns in shapes) - gap
    height = cell * max(rows for rows, _ in shapes)
    figure = Figure((width, height))
    panels, left = [], 0.0
    for rows, columns in shapes:
        size = (cell * columns / width, cell * rows / height)
        panels.append(figure.add_axes((left / width, 1 - size[1], *size)))
        left += cell * columns + gap
    return figure, panels


def shade(panel: Axes, weights: np.ndarray, greatest: float = 1.0) -> None:
    """Shades the cell of row t and column j by ``weights[t, j]``, 0 to ``greatest``."""
    panel.imshow(weights, cmap="Blues", vmin=0.0, vmax=greatest, aspect="auto")


def shade_signs(panel: Axes, weights: np.ndarray, greatest: float) -> None:
    """Likewise from ``-greatest``, orange, to ``greatest``, purple; 0 is white."""
    panel.imshow(weights, cmap="PuOr", vmin=-greatest, vmax=greatest, aspect="auto")


def write_words(
    panel: Axes,
    rows: Sequence[str],
    columns: Sequence[str],
    title: str,
    cell: float,
    families: Sequence[str],
) -> None:
    """Writes the title, and a word at each row and each column."""
    panel.set_title(title, fontsize=10, pad=9)
    panel.set_yticks(range(len(rows)), map(shorten, rows), fontsize=32 * cell)
    labels = map(_shorten_column, columns)
    panel.set_xticks(range(len(columns)), labels, fontsize=32 * cell)
    for word, label in zip(columns, panel.get_xticklabels(), strict=True):
        label.set(rotation=0 if _is_wide(word) else 90, linespacing=1.0)
    labels = [*panel.get_xticklabels(), *panel.get_yticklabels()]
    style([panel.title, *labels], families)
    panel.tick_params(which="both", length=0)


def rule(panel: Axes, shape: tuple[int, int]) -> None:
    """Draws thin lines between the cells."""
    panel.set_xticks(np.arange(1, shape[1]) - 0.5, minor=True)
    panel.set_yticks(np.arange(1, shape[0]) - 0.5, minor=True)
    panel.grid(which="minor", color="0.9", linewidth=0.5)
    panel.tick_params(which="minor", length=0)
    panel.spines[:].set_color("0.7")


def shorten(word: str) -> str:
    """A word as a label: its beginning, if it is long.

    What is not seen, such as a tab or a mark of direction, is named by its number.
    """
    word = "".join(f"\\u{ord(c):04x}" if _is_unseen(c) else c for c in word)
    if len(word) <= _LONGEST_LABEL:
        return word
    return word[: _LONGEST_LABEL - 1] + "…"


def _is_unseen(character: str) -> bool:
    """Whether it controls others; what joins or parts letters is a part of a word."""
    return category(character) in ("Cc", "Cf") and character not in "\u200c\u200d"


def _shorten_column(word: str) -> str:
    """A label of a column; Chinese and Japanese are written downwards."""
    return "\n".join(shorten(word)) if _is_wide(word) else shorten(word)


def _is_wide(word: str) -> bool:
    return all(east_asian_width(character) in "WF" for character in word)


def _text_width(text: str) -> float:
    """About how wide it is drawn, in narrow letters."""
    return len(text) + sum(east_asian_width(character) in "WF" for character in text)


def add_color_bar(figure: Figure, image: AxesImage) -> None:
    """Adds what the shades of an image mean, on the right of all panels."""
    width = figure.get_figwidth()
    place = figure.add_axes((1 + 0.15 / width, 0, 0.13 / width, 1))
    bar = figure.colorbar(image, cax=place)
    ticks = np.linspace(*image.get_clim(), 3).tolist()
    bar.set_ticks(ticks, labels=[f"{tick:.2g}" for tick in ticks])
    place.tick_params(labelsize=8, length=2, color="0.7")
    bar.outline.set_edgecolor("0.7")
