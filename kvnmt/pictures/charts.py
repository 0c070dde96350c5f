# SPDX-License-Identifier: Apache-2.0
"""Charts of figures: of a training run, and of systems side by side."""

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from kvnmt.metrics.self_attention import RelativePositions, pooled
from kvnmt.pictures.drawing import GOLD, MARKERS, PALETTE, font_families, save, style

FARTHEST = 15  # the last relative position with bars of its own


def learning_curve(
    records: Iterable[Mapping[str, Any]], path: str | os.PathLike[str]
) -> None:
    """Draws the losses above the BLEU, and the chrF, of one training run.

    Args:
        records: Metrics as training logs them, in the order of logging: ``step`` and
            any of ``train_loss``, ``valid_loss``, ``valid_bleu``, ``valid_chrf``. Where
            a step was logged twice, as after a restart, the later value counts.
        path: Where to write the picture.

    Raises:
        UserError: The file cannot be written.
    """
    records = list(records)
    figure = Figure((7.0, 5.5), layout="constrained")
    losses, scores = figure.subplots(2, 1, sharex=True)
    _curve(losses, records, "train_loss", "training", color="#6baed6", linewidth=1)
    _curve(losses, records, "valid_loss", "validation", color="#08306b", marker="o")
    _curve(scores, records, "valid_bleu", "BLEU", color=GOLD, marker="o")
    _curve(scores, records, "valid_chrf", "chrF", color="#6baed6", marker="o")
    losses.set_ylabel("loss (nats per target token)")
    scores.set_ylabel("score of the validation")
    scores.set_xlabel("step")
    scores.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
    for panel in (losses, scores):
        _tidy(panel)
        if panel.lines:
            panel.legend(frameon=False, fontsize=9)
        else:
            panel.set_yticks([])
            centre = {"ha": "center", "transform": panel.transAxes}
            panel.text(0.5, 0.5, "not recorded", **centre)
    save(figure, path)


def bleu_by_length(
    systems: Mapping[str, Sequence[tuple[str, int, float | None]]],
    path: str | os.PathLike[str],
    *,
    axis: str = "source words (sentences)",
) -> None:
    """Draws the BLEU of systems on the shorter and the longer sentences of a test set.

    Args:
        systems: For each system by its name its buckets, from short to long: a label
            such as ``11-20``, how many sentences, and their BLEU. None, as of a bucket
            without sentences, leaves a gap. All systems have the same buckets.
        path: Where to write the picture.
        axis: What the labels and, in brackets, the numbers below them count.

    Raises:
        ValueError: There is nothing to draw, or the buckets of the systems differ.
        UserError: The file cannot be written.
    """
    buckets = {tuple((b[0], b[1]) for b in parts) for parts in systems.values()}
    if len(buckets) != 1 or not max(buckets):
        raise ValueError(f"the systems have {len(buckets)} different lists of buckets")
    (labels,) = buckets
    places = np.arange(len(labels))
    figure = Figure((max(5.0, 1.6 + 0.75 * len(labels)), 4.0), layout="constrained")
    panel = figure.subplots()
    for number, (name, parts) in enumerate(systems.items()):
        bleu = [math.nan if value is None else value for _, _, value in parts]
        panel.plot(
            places,
            bleu,
            label=_label(name),
            color=_pick(PALETTE, number),
            marker=_pick(MARKERS, number),
            markersize=5,
            linestyle="-" if number < len(PALETTE) else "--",
        )
    panel.set_xlim(-0.4, len(labels) - 0.6)
    panel.set_xticks(places, [f"{label}\n({count:,})" for label, count in labels])
    panel.set_xlabel(axis)
    panel.set_ylabel("BLEU")
    _finish(panel, path)


def relative_positions_chart(
    systems: Mapping[str, RelativePositions], path: str | os.PathLike[str]
) -> None:
    """Draws how far back systems attend most (Miculicich Werlen et al. 2018, figure 2).

    Args:
        systems: What ``relative_positions`` gave for one system or more, by its name;
            drawn is ``normalised``.
        path: Where to write the picture.

    Raises:
        UserError: The file cannot be written.
    """
    places = np.arange(FARTHEST + 1)
    width = 0.8 / len(systems)
    figure = Figure((9.0, 4.0), layout="constrained")
    panel = figure.subplots()
    for number, (name, positions) in enumerate(systems.items()):
        left = places - 0.4 + width * number
        values = pooled(positions.normalised, FARTHEST)
        look = {"color": _pick(PALETTE, number), "label": _label(name), "zorder": 2}
        panel.bar(left, values, width, align="edge", **look)
    panel.set_xticks(places, [*map(str, range(1, FARTHEST + 1)), "more"])
    panel.set_xlim(-0.6, FARTHEST + 0.6)
    panel.set_xlabel("position of the word attended to most (1: the previous word)")
    panel.set_ylabel("predictions,\neach over its number of earlier words")
    panel.set_ylim(bottom=0)
    _finish(panel, path)


def growth_chart(
    panels: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]],
    path: str | os.PathLike[str],
) -> None:
    """Draws how fast systems are as several things grow, a panel for each.

    Args:
        panels: For what is changed, for each system by its name, pairs of a value and
            the target tokens per second there, both above zero.
        path: Where to write the picture.

    Raises:
        UserError: The file cannot be written.
    """
    figure = Figure((3.0 * len(panels) + 1.0, 3.2), layout="constrained")
    row = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for panel, (changed, systems) in zip(row, panels.items()):
        for number, (name, points) in enumerate(systems.items()):
            look = {"color": _pick(PALETTE, number), "marker": _pick(MARKERS, number)}
            panel.plot(*zip(*sorted(points)), label=_label(name), markersize=5, **look)
        values = sorted({value for line in systems.values() for value, _ in line})
        panel.set_xscale("log", base=2)
        panel.set_yscale("log", base=2)
        panel.set_xticks(values, [f"{value:,}" for value in values], rotation=45)
        panel.set_xlabel(changed)
        panel.minorticks_off()
        panel.yaxis.set_major_formatter("{x:,.0f}")
        _tidy(panel)
        _finish_x(panel)
    row[0].set_ylabel("target tokens/s")
    _finish(row[-1], path)


def _curve(
    panel: Axes,
    records: Iterable[Mapping[str, Any]],
    key: str,
    label: str,
    **look: Any,
) -> None:
    points = {
        record["step"]: record[key]
        for record in records
        if record.get("step") is not None and _is_number(record.get(key))
    }
    if points:
        steps = sorted(points)
        values = [points[step] for step in steps]
        panel.plot(steps, values, label=label, markersize=4, **look)


def _is_number(value: Any) -> bool:
    return value is not None and math.isfinite(value)


def _pick(choices: Sequence[str], number: int) -> str:
    return choices[number % len(choices)]


def _finish(panel: Axes, path: str | os.PathLike[str]) -> None:
    """Adds what charts of several systems share, and writes the file."""
    _tidy(panel)
    _finish_x(panel)
    # Beside the panel: within it, it may lie upon a line.
    legend = panel.legend(
        frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1, 1)
    )
    _in_its_fonts(legend.get_texts())
    figure = panel.get_figure(root=True)
    assert figure is not None
    save(figure, path)


def _finish_x(panel: Axes) -> None:
    panel.grid(visible=False, axis="x")
    panel.tick_params(axis="x", length=0)
    _in_its_fonts([*panel.get_xticklabels(), panel.xaxis.label])


def _in_its_fonts(texts: Sequence[Text]) -> None:
    style(texts, font_families(text.get_text() for text in texts))


def _tidy(panel: Axes) -> None:
    panel.grid(color="0.9", linewidth=0.6)
    panel.spines[["top", "right"]].set_visible(False)


def _label(name: str) -> str:
    """A name as legends show it: they leave out what begins with an underscore."""
    return f" {name}" if name.startswith("_") else name
