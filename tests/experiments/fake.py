# SPDX-License-Identifier: Apache-2.0
"""Trainings that take no time, and the made-up language in the files of Multi30k."""

import dataclasses
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from experiments.harness.results import Figures
from experiments.harness.rows import AnyRow, Train
from experiments.harness.table import refuse, work
from kvnmt.data import synthetic
from kvnmt.files import write_json
from kvnmt.runs import train as training
from kvnmt.runs.config import Experiment, to_plain
from kvnmt.training.loop import Result
from tests.helpers import drawn, write_untrained

RESULT = Result(
    steps=30,
    best_step=20,
    epochs=3.0,
    best_epoch=2.0,
    best={"valid_loss": 1.5},
    tokens_per_second=1000.0,
    minutes=0.5,
    stopped_early=False,
)


def small(experiment: Experiment) -> Experiment:
    """An experiment at sizes that any system fits, searched greedily."""
    model = dataclasses.replace(
        experiment.model,
        embedding=6,
        encoder=12,
        state=12,
        initializer="wide",  # no orthogonal matrices, which take long to compile
    )
    search = dataclasses.replace(experiment.search, beam=1)
    return dataclasses.replace(experiment, model=model, search=search)


draw = partial(drawn, seed=1, scale=0.3)


def untrained(
    experiment: Experiment, folder: Path, *, resume: bool, console: Console
) -> Result:
    """Leaves a run of small sizes that knows nothing."""
    write_untrained(small(experiment), folder, draw)
    return RESULT


def leave(run: Path, experiment: Experiment, folder: Path) -> None:
    """Leaves a copy of a run as that of an experiment; others may look meanwhile."""
    ours = shutil.ignore_patterns("config.json")
    shutil.copytree(run, folder, dirs_exist_ok=True, ignore=ours)
    write_json(folder / "config.json", to_plain(experiment))


def complete(rows: Sequence[AnyRow], train: Train = training.run) -> list[Figures]:
    """Trains and measures the rows without a result; gives all results."""
    refuse(work(rows, train), len(rows))
    return [result for row in rows if (result := row.result())]


def never(
    experiment: Experiment, folder: Path, *, resume: bool, console: Console
) -> Result:
    """Fails: nothing is to be trained."""
    raise AssertionError(f"'{folder}' was trained again")


def write_captions(folder: Path, train: int = 40, others: int = 4) -> None:
    """Writes the made-up language as ``{train,valid,test2016}.{de,en}``."""
    corpus = synthetic.make_corpus(1, train=train, valid=others, test=others)
    # Validated and tested on the same pairs: their programs are compiled once.
    splits = {"train": corpus.train, "valid": corpus.valid, "test2016": corpus.valid}
    for split, pairs in splits.items():
        sides = {
            "de": [" ".join(pair.source) for pair in pairs],
            "en": [" ".join(pair.target) for pair in pairs],
        }
        for side, lines in sides.items():
            text = "".join(f"{line}\n" for line in lines)
            (folder / f"{split}.{side}").write_text(text)


def paper_flags(folder: Path) -> dict[str, Any]:
    """Options of the modules of the papers for `write_captions`, which are written."""
    write_captions(folder)
    sides = (("source", "de"), ("target", "en"))
    return {
        **{side: folder / f"train.{language}" for side, language in sides},
        **{f"valid_{side}": folder / f"valid.{language}" for side, language in sides},
        **{f"test_{s}": (folder / f"test2016.{language}",) for s, language in sides},
    }
