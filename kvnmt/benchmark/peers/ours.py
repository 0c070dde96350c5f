# SPDX-License-Identifier: Apache-2.0
"""This program, described as the others are."""

import re
from pathlib import Path

from kvnmt.benchmark.peers.base import Arguments, Program, Search, Task, numbers
from kvnmt.errors import UserError

COMMAND = "import sys; from kvnmt.cli import main; main(sys.argv[1:])"


def train(task: Task, folder: Path) -> list[Arguments]:
    """`kvnmt train`, validating after every epoch; nothing is compiled beforehand."""
    flags = {
        "recipe": "papers",
        "system": task.system,
        "model.embedding": task.embedding,
        "model.encoder": task.encoder,
        "model.state": task.state,
        "model.dropout.embedding": task.embedding_dropout,
        "model.dropout.output": task.output_dropout,
        "model.initializer": "unit",
        "data.source": task.text / f"train.{task.source}",
        "data.target": task.text / f"train.{task.target}",
        "data.valid-source": task.text / f"valid.{task.source}",
        "data.valid-target": task.text / f"valid.{task.target}",
        "data.max-length": task.longest,
        "data.vocabulary-size": None,
        "training.batch-size": task.batch_size,
        "training.epochs": task.epochs,
        "training.patience": task.epochs,  # others do not stop early
        "training.seed": task.seed,
        "training.bleu-tokenize": "none",
        "program-cache": "none",
    }
    words = [
        word for name, value in flags.items() for word in (f"--{name}", f"{value}")
    ]
    return [("-c", COMMAND, "train", str(folder), *words)]


def speed(log: str) -> float:
    """Target tokens a second, without compiling and validating.

    Raises:
        UserError: Every step was the first of its shape.
    """
    if re.search(r"best checkpoint: .* validation text; [\d.]+ minutes", log):
        raise UserError(
            "kvnmt had no step that was not compiled first; give more --pairs or "
            "--epochs."
        )
    return numbers(r"; ([\d,]+) target tokens/s, [\d.]+ minutes", log, "kvnmt")[-1][0]


def translate(folder: Path, search: Search) -> Arguments:
    """A program that translates all lines twice and tells how long the second took."""
    return (
        *("-m", "kvnmt.benchmark.peers.translating"),
        str(folder),
        *(str(search.beam), str(search.batch_size), str(search.longest)),
        *([str(search.shortlist)] if search.shortlist else []),
    )


def seconds(log: str) -> float:
    """Without loading the model and compiling."""
    return numbers(r"translating took ([\d.]+) seconds", log, "kvnmt")[-1][0]


PROGRAM = Program(
    name="kvnmt",
    module="kvnmt",
    install="pip install .",
    train=train,
    speed=speed,
    translate=translate,
    seconds=seconds,
    environment={"JAX_PLATFORMS": "cpu"},  # what the others are measured on
)
