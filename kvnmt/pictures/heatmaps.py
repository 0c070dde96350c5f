# SPDX-License-Identifier: Apache-2.0
"""Pictures of attention, words along both axes, written as PNG."""

import os
from collections.abc import Sequence
from itertools import chain, pairwise
from typing import Any, BinaryIO
from unicodedata import east_asian_width

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Rectangle

from kvnmt.metrics.links import Links
from kvnmt.pictures.drawing import GOLD, MOVED, font_families, save, style

_CELL = 0.27  # inches
_GAP = 0.2  # inches, between panels
_LONGEST_SIDE = 30.0  # inches; more words get smaller cells and smaller text
_LONGEST_LABEL = 20  # characters
_NULL = "∅"


def attention_heatmap(
    alignments: Sequence[np.ndarray],
    source: Sequence[str],
    target: Sequence[str],
    path: str | os.PathLike[str] | BinaryIO,
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
        path: Where to write the PNG: a path, or a file open for bytes.
        titles: One per round; by default they are numbered if there are several.
        gold: Links (source, target) to outline.

    Raises:
        ValueError: There is nothing to draw, or shapes and words do not fit together.
        UserError: The file cannot be written.
    """
    rounds = [np.asarray(alignment, dtype=np.float64) for alignment in alignments]
    if titles is None:
        numbers = range(1, len(rounds) + 1)
        titles = [f"round {r}" if len(rounds) > 1 else "" for r in numbers]
    gold = gold or frozenset()
    _check_shapes(rounds, (len(target), len(source)), titles, gold)
    cell = min(_CELL, _LONGEST_SIDE / max(len(rounds) * len(source), len(target)))
    shape = (len(target), len(source))
    figure, panels = _grid(titles, [shape] * len(rounds), cell)
    families = font_families([*titles, *source, *target])
    for panel, alignment, title in zip(panels, rounds, titles, strict=True):
        _shade(panel, alignment)
        panel.xaxis.tick_top()  # before labels are set: these are other texts
        rows = target if panel is panels[0] else []
        _write_words(panel, rows, source, title, cell, families)
        _rule(panel, shape)
        _outline(panel, gold)
    steps = zip(panels[1:], pairwise(rounds), strict=True)
    moves = [_dot_moves(panel, before, after) for panel, (before, after) in steps]
    _add_color_bar(figure, panels[0].images[0])
    _explain_marks(figure, outlined=bool(gold), dotted=any(moves))
    save(figure, path)


def self_attention_heatmap(
    weights: Sequence[np.ndarray],
    words: Sequence[Sequence[str]],
    path: str | os.PathLike[str],
    *,
    titles: Sequence[str] | None = None,
) -> None:
    """Draws where a decoder looked among its own words, one panel per system.

    Figure 3 of Miculicich Werlen et al. 2018: a row for each step, a column for each
    word before it; the first column is the null slot. What lies ahead stays empty, so
    that words stand below their columns.

    Args:
        weights: One [T, T] array per system, as self_attention describes them.
        words: The T words that each system predicts, with EOS if there is its row.
        path: Where to write the PNG.
        titles: One per system.

    Raises:
        ValueError: There is nothing to draw, or shapes and words do not fit together.
        UserError: The file cannot be written.
    """
    systems = [np.asarray(matrix, dtype=np.float64) for matrix in weights]
    titles = titles or [""] * len(systems)
    if not len(systems) == len(words) == len(titles) or not systems:
        raise ValueError(
            f"{len(words)} lists of words and {len(titles)} titles for {len(systems)} "
            "systems"
        )
    for matrix, tokens in zip(systems, words, strict=True):
        _check_shapes([matrix], (len(tokens), len(tokens)), [""], frozenset())
    cell = min(_CELL, _LONGEST_SIDE / sum(map(len, words)))
    # Where all say the same, its rows are labelled once.
    same = all(list(tokens) == list(words[0]) for tokens in words)
    longest = max(_width(_shorten(word)) for word in chain(*words))
    gap = 0.0 if same else 0.3 * cell * longest  # letters are 0.3 cells wide
    figure, panels = _grid(titles, [matrix.shape for matrix in systems], cell, gap)
    families = font_families([*titles, *chain(*words), _NULL])
    for panel, matrix, tokens, title in zip(
        panels, systems, words, titles, strict=True
    ):
        ahead = np.triu(np.ones_like(matrix, dtype=bool), 1)
        _shade(panel, np.ma.masked_array(matrix, ahead))
        rows = tokens if panel is panels[0] or not same else []
        _write_words(panel, rows, [_NULL, *tokens[:-1]], title, cell, families)
        _rule_triangle(panel, len(tokens))
    _add_color_bar(figure, panels[0].images[0])
    save(figure, path)


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
    titles: Sequence[str],
    shapes: Sequence[tuple[int, int]],
    cell: float,
    gap: float = 0.0,
) -> tuple[Figure, Sequence[Axes]]:
    """Makes a panel of exactly these rows and columns for each title, side by side.

    The panels fill the figure; words, color bar and legend lie outside of it and are
    added to the picture when it is saved. No layout engine can then resize the cells.
    """
    # Ten-point letters are less than 0.1 inches wide: titles do not touch either.
    widest_title = 0.1 * max(map(_width, titles))
    narrowest = cell * min(columns for _, columns in shapes)
    gap = _GAP + max(gap, widest_title - narrowest)
    width = sum(cell * columns + gap for _, columns in shapes) - gap
    height = cell * max(rows for rows, _ in shapes)
    figure = Figure((width, height))
    panels, left = [], 0.0
    for rows, columns in shapes:
        size = (cell * columns / width, cell * rows / height)
        panels.append(figure.add_axes((left / width, 1 - size[1], *size)))
        left += cell * columns + gap
    return figure, panels


def _shade(panel: Axes, weights: np.ndarray) -> None:
    panel.imshow(weights, cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto")


def _write_words(
    panel: Axes,
    rows: Sequence[str],
    columns: Sequence[str],
    title: str,
    cell: float,
    families: Sequence[str],
) -> None:
    panel.set_title(title, fontsize=10, pad=9)
    panel.set_yticks(range(len(rows)), map(_shorten, rows), fontsize=32 * cell)
    labels = map(_shorten_column, columns)
    panel.set_xticks(range(len(columns)), labels, fontsize=32 * cell)
    for word, label in zip(columns, panel.get_xticklabels(), strict=True):
        label.set(rotation=0 if _is_wide(word) else 90, linespacing=1.0)
    labels = [*panel.get_xticklabels(), *panel.get_yticklabels()]
    style([panel.title, *labels], families)
    panel.tick_params(which="both", length=0)


def _rule(panel: Axes, shape: tuple[int, int]) -> None:
    panel.set_xticks(np.arange(1, shape[1]) - 0.5, minor=True)
    panel.set_yticks(np.arange(1, shape[0]) - 0.5, minor=True)
    panel.grid(which="minor", color="0.9", linewidth=0.5)
    panel.tick_params(which="minor", length=0)
    panel.spines[:].set_color("0.7")


def _rule_triangle(panel: Axes, size: int) -> None:
    """Lines around the cells on and below the diagonal, which have a meaning."""
    edges = np.arange(size + 1) - 0.5
    first, last = -0.5, size - 0.5
    look: dict[str, Any] = {"colors": "0.85", "linewidth": 0.5}
    panel.hlines(edges, first, np.minimum(edges + 1, last), **look)
    panel.vlines(edges, np.maximum(edges - 1, first), last, **look)
    panel.spines[:].set_visible(False)


def _shorten(word: str) -> str:
    if len(word) <= _LONGEST_LABEL:
        return word
    return word[: _LONGEST_LABEL - 1] + "…"


def _shorten_column(word: str) -> str:
    """A label of a column; Chinese and Japanese are written downwards."""
    return "\n".join(_shorten(word)) if _is_wide(word) else _shorten(word)


def _is_wide(word: str) -> bool:
    return all(east_asian_width(character) in "WF" for character in word)


def _width(text: str) -> float:
    """About how wide it is drawn, in narrow letters."""
    return len(text) + sum(east_asian_width(character) in "WF" for character in text)


def _outline(panel: Axes, gold: Links) -> None:
    for i, j in gold:
        square = Rectangle(
            (i - 0.32, j - 0.32), 0.64, 0.64, fill=False, edgecolor=GOLD, linewidth=1.5
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
                facecolor=MOVED,
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
