# SPDX-License-Identifier: Apache-2.0
"""Tables of runs: what is not trained yet is trained, measured and written down.

Every row has a run directory. Once it is trained and measured, its figures stand
beside it in ``result.json``, and the row is only read from then on. A run that was
interrupted goes on.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import jax
from rich.console import Console

from kvnmt.console import print_table
from kvnmt.data.config import DataConfig
from kvnmt.data.text import Parallel
from kvnmt.errors import UserError
from kvnmt.evaluation.base import Column, Report, table
from kvnmt.files import write_json
from kvnmt.inference.translate import translate_lines
from kvnmt.initializers import Scheme
from kvnmt.metrics.bleu import corpus_bleu
from kvnmt.model_config import Dropout, ModelConfig
from kvnmt.models import count_parameters
from kvnmt.runs import train as training
from kvnmt.runs.config import Experiment
from kvnmt.runs.directory import Run, load_run
from kvnmt.systems.named import system
from kvnmt.training.loop import Result

RESULT = "result.json"
Figures = dict[str, Any]
Measure = Callable[[Run, Result], Figures]


class Train(Protocol):
    """How a run is trained; `kvnmt.runs.train.run` unless a test has its own."""

    def __call__(
        self, experiment: Experiment, folder: Path, *, resume: bool, console: Console
    ) -> Result:
        """Trains an experiment in a run directory."""
        ...


@dataclass(frozen=True)
class Row:
    """A run, and what is measured of it once it is trained."""

    folder: Path  # run directory
    system: str
    experiment: Experiment
    measure: Measure

    @property
    def start(self) -> Literal["scratch", "warm"]:
        """Whether it starts from a trained model."""
        return "warm" if self.experiment.training.warm_start else "scratch"


def small_model(
    embedding: int, units: int, dropout: Dropout, initializer: Scheme = "glorot"
) -> ModelConfig:
    """Sizes with as many units in each direction as in the state, directions summed."""
    return ModelConfig(
        embedding=embedding,
        encoder=units,
        state=units,
        merge="sum",
        initializer=initializer,
        dropout=dropout,
    )


def with_system(
    base: Experiment,
    name: str,
    *,
    epochs: int,
    seed: int,
    warm_start: Path | None = None,
) -> Experiment:
    """The experiment of a named system, in all else that of ``base``.

    Raises:
        UserError: There is no such system.
    """
    return replace(
        base,
        model=system(name).model(base.model),
        objective=system(name).objective(base.objective),
        training=replace(
            base.training, epochs=epochs, seed=seed, warm_start=warm_start
        ),
    )


def parallel_text(
    base: DataConfig, folder: Path, source: str, target: str
) -> DataConfig:
    """Text in ``{train,valid}.{source,target}`` of a folder, treated as in ``base``."""
    return replace(
        base,
        source=folder / f"train.{source}",
        target=folder / f"train.{target}",
        valid_source=folder / f"valid.{source}",
        valid_target=folder / f"valid.{target}",
    )


def complete(rows: Sequence[Row], train: Train = training.run) -> list[Figures]:
    """Trains and measures, in order, the rows without a result; gives all results.

    A row may start from the run of a row before it.

    Raises:
        UserError: A row cannot be trained, or its result cannot be read.
    """
    console = Console()
    return [read_result(row.folder) or _train(row, train, console) for row in rows]


def read_result(folder: Path) -> Figures | None:
    """The figures of a row; None: it is not measured yet.

    Raises:
        UserError: The file holds something else.
    """
    path = folder / RESULT
    if not path.exists():
        return None
    try:
        figures = json.loads(path.read_text())
    except ValueError:
        figures = None
    if not isinstance(figures, dict) or not figures:
        raise UserError(
            f"'{path}' holds no figures; delete it, and the run is measured again."
        )
    return figures


def bleu(run: Run, text: Parallel) -> float:
    """BLEU of a run's translations of tokenised text, as its config searches."""
    hypotheses = translate_lines(run, text.source, run.experiment.search)
    return corpus_bleu(hypotheses, text.target, tokenize="none").score


def show(
    title: str,
    columns: Sequence[Column],
    results: Sequence[Figures],
    notes: Sequence[str] = (),
) -> None:
    """Prints a row for each result; figures that one lacks stay empty."""
    print_table(table(Report(title, columns, list(results))), notes)


def _train(row: Row, train: Train, console: Console) -> Figures:
    console.rule(row.folder.name)
    resume = (row.folder / "config.json").exists()
    result = train(row.experiment, row.folder, resume=resume, console=console)
    run = load_run(row.folder)
    figures = {
        "system": row.system,
        "start": row.start,
        "seed": row.experiment.training.seed,
        "state": row.experiment.model.state,
        "parameters": count_parameters(run.params),
        "steps": result.steps,
        "epochs": result.epochs,
        "best_epoch": result.best_epoch,
        "valid_loss": result.best["valid_loss"],
        "target_tokens_per_second": result.tokens_per_second,
        "minutes": result.minutes,
    }
    figures |= row.measure(run, result)
    write_json(row.folder / RESULT, figures)
    # Programs of many systems are more memory mappings than a process may hold.
    jax.clear_caches()
    return figures
