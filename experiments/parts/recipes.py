# SPDX-License-Identifier: Apache-2.0
"""What rows of several experiments are made of: sizes, systems, text, measures."""

from dataclasses import replace
from pathlib import Path

from experiments.harness.results import Figures
from experiments.harness.rows import Trained
from kvnmt.data.config import DataConfig
from kvnmt.inference.config import SearchConfig
from kvnmt.initializers import Scheme
from kvnmt.model.config import Dropout, ModelConfig
from kvnmt.runs.config import Experiment
from kvnmt.systems.named import system
from kvnmt.training.config import TrainingConfig
from kvnmt.training.losses import Objective
from kvnmt.training.optimizer import OptimizerConfig


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


# Minutes for a system on two cores, with the made-up language.
MADE_UP = Experiment(
    # All systems fit these: annotations as wide as states, states in 2, 3 and 4 parts.
    model=small_model(64, 120, Dropout(output=0.2), "unit"),
    data=DataConfig(min_count=1),
    optimizer=OptimizerConfig(learning_rate=2e-3, decay=0.5, decay_after=8),
    training=TrainingConfig(
        epochs=10, batch_size=40, shapes=4, metric="loss", bleu_tokenize="none"
    ),
    search=SearchConfig(beam=5),
)
# What the papers that train by Adadelta have in common. They name no normalisation of
# scores by length. Their codes divide the loss by the number of sentences, which counts
# where gradients are clipped. Batches of 80 are not in the text of Miculicich et al.
ADADELTA = Experiment(
    objective=Objective(normalization="sentences"),
    data=DataConfig(min_count=1, vocabulary_size=30000),
    optimizer=OptimizerConfig(name="adadelta", clip=1.0),
    training=TrainingConfig(batch_size=80, validate_every=5000, bleu_tokenize="none"),
    search=SearchConfig(beam=10, normalization="none"),
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


def greedy_bleu(trained: Trained) -> Figures:
    """BLEU of the best checkpoint on the validation text, as training measured it."""
    return {"valid_bleu": trained.result.best.get("valid_bleu")}
