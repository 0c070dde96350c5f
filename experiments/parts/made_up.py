# SPDX-License-Identifier: Apache-2.0
"""What is measured on the made-up language, whose gold alignments are known."""

import random
from collections.abc import Sequence
from functools import partial
from itertools import islice
from pathlib import Path

from kvnmt.data.synthetic import Pair
from kvnmt.evaluation import System, Test, adequacy, alignment
from kvnmt.metrics.bleu import corpus_bleu
from kvnmt.metrics.links import Gold
from kvnmt.runs.directory import Run

STEM = 4  # letters that tell target words of the language apart; endings follow


def lines_of(pairs: Sequence[Pair]) -> tuple[list[str], list[str]]:
    """The lines of both sides."""
    source = [" ".join(pair.source) for pair in pairs]
    return source, [" ".join(pair.target) for pair in pairs]


def test_files(folder: Path) -> tuple[Path, ...]:
    """What is measured on, of a corpus that was written."""
    return tuple(folder / f"test.{side}" for side in ("src", "trg", "align"))


def measure(
    run: Run, hypotheses: Sequence[str], pairs: Sequence[Pair]
) -> dict[str, float]:
    """BLEU, what is dropped, repeated and invented and, if it aligns, its AER."""
    source, references = lines_of(pairs)
    gold = [Gold(pair.links, pair.links) for pair in pairs]
    test = Test(references, source, gold=gold, stem=STEM)
    output = System("text", partial(list, hypotheses))
    (shares,) = adequacy.measure(test, [output]).rows
    figures = {
        "bleu": corpus_bleu(hypotheses, references, tokenize="none").score,
        **{key: shares[key] for key in ("dropped", "repeated", "invented")},
    }
    system = System("system", list, run)
    if system.rounds:
        figures["aer"] = alignment.error_of(system, test)
    return figures


def in_rows(pairs: Sequence[Pair], most: int, seed: int = 1) -> tuple[Pair, ...]:
    """Lines of up to ``most`` sentences in a row, each number as often as the others.

    Args:
        pairs: Sentences; each stands in one line.
        most: Sentences of a line.
        seed: Of the draw.
    """
    draw, rest, lines = random.Random(seed), iter(pairs), []
    while some := list(islice(rest, draw.randint(1, most))):
        line = some[0]
        for pair in some[1:]:
            line = _after(line, pair)
        lines.append(line)
    return tuple(lines)


def _after(first: Pair, second: Pair) -> Pair:
    s, t = len(first.source), len(first.target)
    return Pair(
        source=first.source + second.source,
        target=first.target + second.target,
        links=first.links | {(i + s, j + t) for i, j in second.links},
    )
