# SPDX-License-Identifier: Apache-2.0
"""What training starts from where nothing is said: rates, dropout, pieces, epochs.

A recipe chooses no mechanism and no text, and a flag changes any of it.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from kvnmt.data.config import DataConfig
from kvnmt.inference.config import SearchConfig
from kvnmt.model.config import Dropout, ModelConfig
from kvnmt.runs.config import Experiment
from kvnmt.training.config import TrainingConfig
from kvnmt.training.losses import Objective
from kvnmt.training.optimizer import KINDS, OptimizerConfig

Recipe = Literal["modern", "papers"]

RECIPES: Mapping[Recipe, Experiment] = {
    # For text of up to some hundred thousand pairs. Where each part of it comes from:
    # joint pieces, of which each side keeps its own (Sennrich et al. 2016); dropout of
    # embeddings, annotations and the readout, as Caglayan et al. (2017) on captions,
    # but less; label smoothing (Szegedy et al. 2016); normalised products of recurrent
    # units (Ba et al. 2016); an output layer that is the target embedding (Press and
    # Wolf 2017); a running mean of the parameters (Polyak and Juditsky 1992).
    "modern": Experiment(
        model=ModelConfig(
            initializer="glorot",
            layer_norm=True,
            tie="output",
            dropout=Dropout(embedding=0.3, annotations=0.3, output=0.5),
        ),
        objective=Objective(label_smoothing=0.1),
        data=DataConfig(vocabulary="bpe", joint=True, subwords=10_000, trimmed=True),
        # The rate stays: the running mean settles by itself. Where somebody lets it
        # fall, it does so from the sixth epoch on.
        optimizer=OptimizerConfig(learning_rate=2e-3, decay_after=6),
        training=TrainingConfig(epochs=40, batch_size=64, ema=0.999, patience=10),
        search=SearchConfig(beam=5),
    ),
    # Words, dropout of the readout alone, batches of 80, beam 10, as in the papers of
    # 2015 to 2018, but by Adam; they train by Adadelta.
    "papers": Experiment(),
}
DEFAULT: Recipe = "modern"


def with_optimizer(experiment: Experiment, optimizer: str | None) -> Experiment:
    """Changes the optimiser; another one has its own rate and options.

    Args:
        experiment: The settings.
        optimizer: The one that is asked for; None: that of the settings.
    """
    if optimizer in (None, experiment.optimizer.name):
        return experiment
    before = experiment.optimizer
    its = {name: getattr(OptimizerConfig, name) for name in KINDS[before.name].options}
    return replace(experiment, optimizer=replace(before, learning_rate=None, **its))
