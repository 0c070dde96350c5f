# SPDX-License-Identifier: Apache-2.0
"""Rows that learn both directions of a text before they learn one.

L. Ding, D. Wu, D. Tao (2021), "Improving Neural Machine Translation by Bidirectional
Training": a model first translates every pair either way, with nothing that says which
way but the language of the line, and then goes on in one direction. What it learns of
both languages in encoder and decoder is kept; it costs no text.

Departure: theirs is a third of all steps, here it is less: four epochs of both
directions, which are eight of one, then three quarters of the epochs of a row from
scratch. Where each side keeps its own pieces, one direction has fewer than both: those
that stay keep their rows.
"""

from dataclasses import replace
from pathlib import Path

from experiments.harness.rows import Row
from experiments.harness.settings import text_digest
from experiments.harness.texts import Text
from kvnmt.data.outputs import write_lines
from kvnmt.data.text import read_parallel
from kvnmt.errors import UserError

NAME = "both"
# What the text of both directions is made of before a row has its flags.
READ = "data.source", "data.target", "data.faulty"
EPOCHS = 4  # of both directions


def both_text(workdir: Path, pair: str, files: tuple[Path, Path]) -> Text:
    """The pairs of two files, and behind them the same the other way round.

    Args:
        workdir: Where it is written.
        pair: Its languages, such as ``en-de``: a workdir may have several.
        files: Source and target.
    """
    source, target = _places(workdir, pair)

    def write() -> None:
        text = read_parallel(*files)
        write_lines(source, [*text.source, *text.target])
        write_lines(target, [*text.target, *text.source])

    read = text_digest(files)
    return Text(read and f"both directions of {read}", write, name=f"{NAME}-{pair}")


def both_ways(row: Row) -> tuple[Row, Row]:
    """The row that learns both directions of its text, and the one that goes on.

    Args:
        row: One from scratch, whose text `both_text` has.

    Raises:
        UserError: It has links, which are of one direction.
    """
    if row.experiment.data.links:
        raise UserError(
            "--data.links are of pairs in one direction, and --both learns both first; "
            "leave one of them out."
        )
    before, folder = row.experiment, row.folder
    most = before.training.epochs
    source, target = _places(folder.parent, row.data)
    first = replace(
        row,
        folder=folder.with_name(f"{folder.name}-{NAME}"),
        system=f"{row.system}, both directions",
        experiment=replace(
            before,
            data=replace(before.data, source=source, target=target),
            training=replace(before.training, epochs=min(EPOCHS, most)),
        ),
    )
    second = replace(
        row,
        folder=folder.with_name(f"{folder.name}-after-{NAME}"),
        system=f"{row.system}, after both directions",
        experiment=replace(
            before,
            training=replace(
                before.training,
                epochs=max(1, most * 3 // 4),
                warm_start=first.folder,
                new_words=True,
            ),
        ),
    )
    return first, second


def _places(workdir: Path, pair: str) -> tuple[Path, Path]:
    return workdir / f"{NAME}-{pair}.source", workdir / f"{NAME}-{pair}.target"
