# SPDX-License-Identifier: Apache-2.0
"""Pictures of attention, words along both axes, written as PNG, PDF or SVG."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, pairwise
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kvnmt.data.links import Links
from kvnmt.pictures.drawing import font_families, save
from kvnmt.pictures.marks import dot_moves, explain_marks, outline
from kvnmt.pictures.panels import (
    CELL,
    LONGEST_SIDE,
    add_color_bar,
    make_panels,
    rule,
    shade,
    shade_signs,
    write_words,
)

_NULL = "∅"
_OWN = "own writes, 0 to 1"


class _Panel(NamedTuple):
    """What a panel shows, and how."""

    title: str
    matrix: np.ndarray
    columns: Sequence[str]  # labels
    paint: Callable[[Axes, np.ndarray], None]


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
        path: Where to write the picture: a path, or a file open for bytes.
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
    _check_shapes(rounds, (len(target), len(source)))
    if any(j >= len(target) or i >= len(source) for i, j in gold):
        raise ValueError("a gold link lies outside the sentence pair")
    drawn = [_Panel(*one, source, shade) for one in zip(titles, rounds, strict=True)]
    figure, panels = _draw(drawn, target)
    for panel in panels:
        outline(panel, gold)
    steps = zip(panels[1:], pairwise(rounds), strict=True)
    moves = [dot_moves(panel, before, after) for panel, (before, after) in steps]
    explain_marks(figure, outlined=bool(gold), dotted=any(moves))
    save(figure, path)


def memory_heatmap(
    forgotten: Sequence[np.ndarray],
    added: Sequence[np.ndarray],
    source: Sequence[str],
    target: Sequence[str],
    path: str | os.PathLike[str] | BinaryIO,
) -> None:
    """Draws what writes forgot and added, a panel of each for every round.

    Args:
        forgotten: One [T, S] array per round: the length of the vector that the write
            of the step that predicts word t took from the slot of source word j.
        added: Likewise of what it put there.
        source: S labels, with EOS if there is its slot.
        target: T labels, with EOS if the step that predicts it is there.
        path: Where to write the picture: a path, or a file open for bytes.

    Raises:
        ValueError: There is nothing to draw, or shapes and words do not fit together.
        UserError: The file cannot be written.
    """
    matrices, titles = [], []
    for number, (less, more) in enumerate(zip(forgotten, added, strict=True), start=1):
        of_round = f" in round {number}" if len(forgotten) > 1 else ""
        matrices += [np.asarray(less, np.float64), np.asarray(more, np.float64)]
        titles += [f"forgotten{of_round}", f"added{of_round}"]
    _check_shapes(matrices, (len(target), len(source)))
    greatest = _greatest(matrices)
    paint = partial(shade, greatest=greatest)
    drawn = [_Panel(*one, source, paint) for one in zip(titles, matrices, strict=True)]
    figure, _ = _draw(drawn, target)
    save(figure, path)


def signed_heatmap(
    signed: Sequence[np.ndarray],
    own: Sequence[np.ndarray],
    source: Sequence[str],
    target: Sequence[str],
    path: str | os.PathLike[str] | BinaryIO,
) -> None:
    """Draws weights with signs, a panel for every head of every round.

    What is read is purple, what is taken away orange, on one scale. Where the decoder
    writes, too, a narrow panel after those of the round has the share of its own
    writes, from 0, white, to 1.

    Args:
        signed: One [N, T, S] array per round, of N heads.
        own: One [T] array per round.
        source: S labels, with EOS if the weights have its column.
        target: T labels, with EOS if the weights have its row.
        path: Where to write the picture: a path, or a file open for bytes.

    Raises:
        ValueError: There is nothing to draw, or shapes and words do not fit together.
        UserError: The file cannot be written.
    """
    rounds = [np.asarray(heads, np.float64) for heads in signed]
    size = (len(target), len(source))
    for heads in rounds:
        _check_shapes(list(heads), size)
    if any(np.shape(shares) != (len(target),) for shares in own):
        raise ValueError("own has not a share for each target word")
    greatest = _greatest(rounds)
    signs = partial(shade_signs, greatest=greatest)
    written = any(np.any(np.asarray(shares) > 0) for shares in own)
    panels = []
    for number, (heads, shares) in enumerate(zip(rounds, own, strict=True), start=1):
        of_round = [f"round {number}"] * (len(rounds) > 1)
        for n, weights in enumerate(heads, start=1):
            title = ", ".join(of_round + [f"head {n}"] * (len(heads) > 1))
            panels.append(_Panel(title, weights, source, signs))
        if written:
            panels.append(_Panel("", np.asarray(shares)[:, None], [_OWN], shade))
    figure, _ = _draw(panels, target)
    save(figure, path)


def self_attention_heatmap(
    weights: Sequence[np.ndarray],
    words: Sequence[str],
    path: str | os.PathLike[str] | BinaryIO,
    *,
    titles: Sequence[str] | None = None,
) -> None:
    """Draws where a decoder looked among its own words, one panel per system.

    Figure 3 of Miculicich Werlen et al. 2018: a row for each step, a column for each
    word before it; the first column is the null slot. What lies ahead stays empty, so
    that words stand below their columns.

    Args:
        weights: One [T, T] array per system, as self_attention describes them.
        words: The T words that are predicted, with EOS if there is its row.
        path: Where to write the picture.
        titles: One per system.

    Raises:
        ValueError: There is nothing to draw, or shapes and words do not fit together.
        UserError: The file cannot be written.
    """
    systems = [np.asarray(matrix, dtype=np.float64) for matrix in weights]
    _check_shapes(systems, (len(words), len(words)))
    titles = titles or [""] * len(systems)
    cell = min(CELL, LONGEST_SIDE / (len(words) * len(systems)))
    figure, panels = make_panels(titles, [matrix.shape for matrix in systems], cell)
    families = font_families([*titles, *words, _NULL])
    ahead = np.triu(np.ones_like(systems[0], dtype=bool), 1)
    for panel, matrix, title in zip(panels, systems, titles, strict=True):
        shade(panel, np.ma.masked_array(matrix, ahead))
        rows = words if panel is panels[0] else []
        write_words(panel, rows, [_NULL, *words[:-1]], title, cell, families)
        _rule_triangle(panel, len(words))
    add_color_bar(figure, panels[0].images[0])
    save(figure, path)


def _draw(
    drawn: Sequence[_Panel], target: Sequence[str]
) -> tuple[Figure, Sequence[Axes]]:
    """Draws [T, S] matrices: a row for each target word, a column for each source."""
    shapes = [matrix.shape for _, matrix, *_ in drawn]
    across = sum(columns for _, columns in shapes)
    cell = min(CELL, LONGEST_SIDE / max(across, len(target)))
    titles = [panel.title for panel in drawn]
    figure, panels = make_panels(titles, shapes, cell)
    families = font_families([*titles, *target, *chain(*(p.columns for p in drawn))])
    for panel, (title, matrix, columns, paint) in zip(panels, drawn, strict=True):
        paint(panel, matrix)
        panel.xaxis.tick_top()  # before labels are set: these are other texts
        rows = target if panel is panels[0] else []
        write_words(panel, rows, columns, title, cell, families)
        rule(panel, matrix.shape)
    add_color_bar(figure, panels[0].images[0])
    return figure, panels


def _greatest(matrices: Sequence[np.ndarray]) -> float:
    """The greatest size of an entry, of those that are numbers; 1 if that is 0."""
    sizes = [np.nan_to_num(np.abs(matrix), posinf=0.0) for matrix in matrices]
    return max(float(size.max()) for size in sizes) or 1.0


def _check_shapes(rounds: Sequence[np.ndarray], shape: tuple[int, int]) -> None:
    if not rounds or 0 in shape:
        raise ValueError("there is no alignment to draw")
    for alignment in rounds:
        if alignment.shape != shape:
            raise ValueError(
                f"an alignment has shape {alignment.shape}, but there are {shape[0]} "
                f"target and {shape[1]} source labels"
            )


def _rule_triangle(panel: Axes, size: int) -> None:
    """Lines around the cells on and below the diagonal, which have a meaning."""
    edges = np.arange(size + 1) - 0.5
    first, last = -0.5, size - 0.5
    look: dict[str, Any] = {"colors": "0.85", "linewidth": 0.5}
    panel.hlines(edges, first, np.minimum(edges + 1, last), **look)
    panel.vlines(edges, np.maximum(edges - 1, first), last, **look)
    panel.spines[:].set_visible(False)
