# SPDX-License-Identifier: Apache-2.0
"""What is typed in these tests, and how a mistake is told."""

import subprocess
import sys
from pathlib import Path

from tests.helpers import Said, toy_data

SIZES = ["--model.embedding", "8", "--model.encoder", "8", "--model.state", "8"]


def flags(folder: Path) -> list[object]:
    """Training flags that stand for `helpers.tiny` on the text of a folder."""
    data = toy_data(folder)
    given = {
        "data.source": data.source,
        "data.target": data.target,
        "data.valid-source": data.valid_source,
        "data.valid-target": data.valid_target,
        "data.min-count": 1,
        "model.initializer": "glorot",
        "model.dropout.embedding": 0.05,
        "model.dropout.annotations": 0.05,
        "model.dropout.output": 0.1,
        "optimizer.learning-rate": 0.03,
        "training.batch-size": 16,
        "training.shapes": 1,
        "training.bleu-tokenize": "none",
    }
    named = [(f"--{name}", value) for name, value in given.items()]
    return ["--recipe", "papers", *SIZES, *(one for pair in named for one in pair)]


def check_sentence(said: Said, *parts: str) -> None:
    """One sentence for a person, and a status for a program."""
    assert said.status == 2, said.err
    assert said.out == b""
    *before, sentence = said.err.splitlines()
    assert sentence.startswith("kvnmt: ")
    assert sentence.endswith(".")
    assert "Traceback" not in said.err
    told = "training pairs", "trains on"
    assert all(any(what in line for what in told) for line in before)
    for part in parts:
        assert part in sentence


def filled(arguments: list[object], **places: Path) -> list[str]:
    words = [str(argument) for argument in arguments]
    for name, place in places.items():
        words = [word.replace(name, str(place)) for word in words]
    return words


def command(*arguments: object, **choices) -> subprocess.CompletedProcess[bytes]:
    """Runs the command in its own process."""
    words = [sys.executable, "-m", "kvnmt", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, timeout=300, **choices)
