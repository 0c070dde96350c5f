# SPDX-License-Identifier: Apache-2.0
"""What rows of several experiments are made of: sizes, systems, text, measures."""

from dataclasses import replace
from pathlib import Path

from experiments.results import Figures
from kvnmt.data.config import DataConfig
from kvnmt.data.text import Parallel
from kvnmt.inference.translate import translate_lines
from kvnmt.initializers import Scheme
from kvnmt.metrics.bleu import corpus_bleu
from kvnmt.model_config import Dropout, ModelConfig
from kvnmt.runs.config import Experiment
from kvnmt.runs.directory import Run
from kvnmt.systems.named import system
from kvnmt.training.loop import Result


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


def bleu(run: Run, text: Parallel) -> float:
    """BLEU of a run's translations of tokenised text, as its config searches."""
    hypotheses = translate_lines(run, text.source, run.experiment.search)
    return corpus_bleu(hypotheses, text.target, tokenize="none").score


def greedy_bleu(run: Run, result: Result) -> Figures:
    """BLEU of the best checkpoint on the validation text, as training measured it."""
    return {"valid_bleu": result.best.get("valid_bleu")}
