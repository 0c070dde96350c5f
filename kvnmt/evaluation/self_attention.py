# SPDX-License-Identifier: Apache-2.0
"""Where decoders look among the words that they have written, and trees from that."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kvnmt.data.words import split_words
from kvnmt.evaluation.base import Column, LackingError, Report, System, Test
from kvnmt.inference.forced import Forced
from kvnmt.inference.score import looks_back
from kvnmt.metrics.self_attention import (
    RelativePositions,
    focus,
    pooled,
    relative_positions,
)
from kvnmt.metrics.trees import parseval, right_branching, sentence_tree

NEAREST = 5  # positions with columns of their own
POSITIONS = (
    Column("system", "system"),
    *(Column(str(p), f"{p} back", "{:.1%}") for p in range(1, NEAREST + 1)),
    Column("more", "further", "{:.1%}"),
    Column("predictions", "predictions", "{:,}"),
)
TREES = (
    Column("system", "system"),
    Column("precision", "precision", "{:.1%}"),
    Column("recall", "recall", "{:.1%}"),
    Column("f1", "F1", "{:.1%}"),
)
# Of each mechanism that looks back its name, and a matrix for every sentence.
Looks: TypeAlias = list[tuple[str, list[NDArray[np.floating]]]]
NOTE = "share of predictions whose strongest earlier word stands so many words back"
TREE_NOTE = "ParsEval of the references, unlabelled, the whole sentence counted"


def check(test: Test, systems: Sequence[System]) -> None:
    """Needs a run that looks at its own words."""
    runs = [system.run for system in systems if system.run]
    if not any(looks_back(run.model, run.params) for run in runs):
        raise LackingError("no system attends to earlier words")


def measure(test: Test, systems: Sequence[System]) -> list[Report]:
    """Relative positions of the focus; with brackets, trees by Algorithm 1."""
    rows, trees = [], []
    for system in systems:
        for name, matrices in looks_of(system, test):
            positions = relative_positions(matrices)
            rows.append({"system": name, **_positions(positions)})
            trees.append((name, matrices))
    notes = [NOTE, *test.unsegmented]
    reports = [Report("attention to earlier words", POSITIONS, rows, notes)]
    return reports + ([_trees(test, trees)] if test.brackets else [])


def looks_of(system: System, test: Test) -> Looks:
    """How a system looks at its own words on the references, as `by_word`."""
    run = system.run
    if run is None or not looks_back(run.model, run.params):
        return []
    return by_word(system.name, system.forced(test, "reference"))


def by_word(name: str, forced: Sequence[Forced]) -> Looks:
    """Self-attention between words, for each mechanism of a system.

    A word looks as its pieces do on average; what pieces of a word look at each other
    is left out.
    """
    count = len(forced[0].scored.self_attention) if forced else 0
    names = [name] if count == 1 else [f"{name}, {n + 1}" for n in range(count)]
    return [
        (label, [_between_words(pair, n) for pair in forced])
        for n, label in enumerate(names)
    ]


def _between_words(pair: Forced, n: int) -> NDArray[np.floating]:
    """[words + 1, words + 1], as in `kvnmt.metrics.self_attention`."""
    matrix, words = pair.scored.self_attention[n], pair.counts[1]
    rows = np.zeros((words + 1, len(matrix)))
    rows[[*pair.target, words], np.arange(len(matrix))] = 1  # EOS is a word
    columns = np.zeros((len(matrix), words + 1))
    columns[np.arange(len(matrix)), [0, *(word + 1 for word in pair.target)]] = 1
    share = rows / np.maximum(rows.sum(1, keepdims=True), 1)
    return np.tril(share @ matrix @ columns)


def _positions(positions: RelativePositions) -> dict[str, Any]:
    total = max(sum(positions.counts), 1)
    counts = pooled(positions.counts, NEAREST)
    shares = {str(p + 1): count / total for p, count in enumerate(counts)}
    shares["more"] = shares.pop(str(NEAREST + 1))
    return {
        **shares,
        "predictions": sum(positions.counts),
        "counts": positions.counts,
        "normalised": positions.normalised,
        "share_where_available": positions.share,
    }


def _trees(
    test: Test, systems: Sequence[tuple[str, list[NDArray[np.floating]]]]
) -> Report:
    assert test.brackets
    gold = test.brackets
    lines = [split_words(line) for line in test.reference]
    trees = [
        (name, [sentence_tree(w, focus(m)[:-1]) for w, m in zip(lines, matrices)])
        for name, matrices in systems
    ]
    trees.append(("right-branching", [right_branching(words) for words in lines]))
    rows = [{"system": n, **vars(parseval(parsed, gold))} for n, parsed in trees]
    notes = [TREE_NOTE, *test.unsegmented]
    return Report("trees from self-attention", TREES, rows, notes)
