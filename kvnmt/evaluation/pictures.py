# SPDX-License-Identifier: Apache-2.0
"""The pictures of `kvnmt evaluate`: attention of sentences, figures of a test set."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from kvnmt.console import say
from kvnmt.data.outputs import in_file
from kvnmt.data.words import split_words
from kvnmt.evaluation import System, Test
from kvnmt.evaluation.length import PICTURE, parts
from kvnmt.evaluation.self_attention import looks_of
from kvnmt.metrics.self_attention import relative_positions
from kvnmt.pictures.charts import bleu_by_length, relative_positions_chart
from kvnmt.pictures.drawing import missing_font
from kvnmt.pictures.heatmaps import attention_heatmap, self_attention_heatmap

END = "</s>"


def draw(
    test: Test,
    systems: Sequence[System],
    sentences: Sequence[int],
    folder: Path,
    kind: str = "png",
) -> str | None:
    """Draws what the systems have to show.

    * ``bleu-by-length``: all systems;
    * ``relative-positions``: those that look at their own words (Miculicich Werlen et
      al. 2018, figure 2), on the references;
    * ``attention-N-SYSTEM``: how sentence N was read, word by word, a panel for each
      round (Meng et al. 2018, figure 3): of the system's own translation or, where
      there is gold, of the reference, the gold links outlined;
    * ``self-attention-N``: the same among the words of the reference (figure 3).

    Args:
        test: The text.
        systems: What to draw.
        sentences: Lines, from 1, of which the attention is drawn.
        folder: Where; it is there.
        kind: Of the files: png, pdf or svg.

    Returns:
        What to install if a font is missing, as a sentence.
    """
    axis = f"{'source' if test.source else 'reference'} words (sentences)"
    bleu_by_length(parts(test, systems), folder / f"{PICTURE}.{kind}", axis=axis)
    runs = [system for system in systems if system.run and test.source]
    looks = {
        name: matrices for system in runs for name, matrices in looks_of(system, test)
    }
    if looks:
        positions = {
            name: relative_positions(matrices) for name, matrices in looks.items()
        }
        relative_positions_chart(positions, folder / f"relative-positions.{kind}")
    drawn = [number - 1 for number in sentences]
    blank = {
        number
        for system in runs
        if system.rounds
        for number in _attention(test, system, drawn, folder, kind)
    }
    for number in sentences:
        words = [*split_words(test.reference[number - 1]), END]
        if looks:
            matrices = [weights[number - 1] for weights in looks.values()]
            self_attention_heatmap(
                matrices,
                words,
                folder / f"self-attention-{number}.{kind}",
                titles=list(looks),
            )
    if blank:
        numbers = ", ".join(map(str, sorted(blank)))
        say(f"where a side has no word no attention is drawn: line {numbers}")
    sides = [test.reference, test.source]
    if not test.gold:  # then attention is drawn over what was translated
        sides += [system.hypotheses for system in runs if system.rounds]
    texts = [text[n] for text in sides if text for n in drawn]
    return missing_font([*texts, *(system.name for system in systems)])


def _attention(
    test: Test, system: System, places: Sequence[int], folder: Path, kind: str
) -> Iterator[int]:
    """Draws what a system attends to; yields the lines of which that is nothing."""
    assert test.source is not None
    targets = test.reference if test.gold else system.hypotheses
    read = system.forced(test, "reference" if test.gold else "hypothesis", places)
    for n, forced in zip(places, read):
        source, target = split_words(test.source[n]), split_words(targets[n])
        if not (source and target):
            yield n + 1
            continue
        attention_heatmap(
            [forced.matrix(r) for r in range(system.rounds)],
            source,
            target,
            folder / f"attention-{n + 1}-{in_file(system.name)}.{kind}",
            gold=test.gold[n].possible if test.gold else None,
        )
