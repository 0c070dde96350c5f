# SPDX-License-Identifier: Apache-2.0
"""What is told when loss or gradient are no finite numbers again and again."""

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from kvnmt.data.corpus import Corpora
from kvnmt.errors import OptionError, UserError

NAME = "bad-batch.json"


def report(
    folder: Path, corpora: Corpora, lines: Sequence[int], *, step: int, seed: int
) -> None:
    """Writes the pairs of a batch into the run directory, as they were trained on.

    Args:
        folder: Run directory.
        corpora: Whose training pairs they are.
        lines: Which of these pairs, from 0.
        step: At which step, from 1.
        seed: Of the run.
    """
    sides = zip(corpora.vocabularies, (corpora.train.source, corpora.train.target))
    texts = [[words.decode(side[i].tolist()) for i in lines] for words, side in sides]
    pairs = [{"source": source, "target": target} for source, target in zip(*texts)]
    plain = {"step": step, "seed": seed, "pairs": pairs}
    text = json.dumps(plain, indent=2, ensure_ascii=False)
    with suppress(OSError):  # the error to come is the thing to tell
        (folder / NAME).write_text(text + "\n", encoding="utf-8")


def too_many(folder: Path, count: int, step: int) -> UserError:
    """Builds the error for so many steps in a row, up to this one (from 1)."""
    return OptionError(
        f"loss or gradient was no finite number in {count} steps in a row, the last of "
        f"them step {step}, whose pairs are in '{folder / NAME}'; go on from the last "
        "checkpoint with {0} and a lower {1}, or without those pairs in another run.",
        *("resume", "optimizer.learning_rate"),
    )
