# SPDX-License-Identifier: Apache-2.0
"""What is refused before any text is read: choices of which no step can be made."""

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np

from kvnmt import devices
from kvnmt.errors import OptionError
from kvnmt.model import assembly
from kvnmt.model.assembly import Params
from kvnmt.model.choices import check_choices
from kvnmt.model.config import ModelConfig
from kvnmt.model.contract import Prediction
from kvnmt.runs.config import Experiment
from kvnmt.training.config import plan_batches
from kvnmt.training.freezing import check_frozen
from kvnmt.training.losses import Objective, check_risk, loss
from kvnmt.training.optimizer import build
from kvnmt.training.step import KEPT
from kvnmt.training.validation import trace_search

SAMPLE = 8  # words of a vocabulary that stands for any


def check_step(experiment: Experiment, begins: bool) -> None:
    """Refuses what no step can be made of, whatever the text is.

    A run that begins leaves nothing untrained, either.
    """
    _check_cuts(experiment)
    training = experiment.training
    build(experiment.optimizer, 1)
    one_pair = np.ones((1, 2), np.int32)
    plan_batches(training, one_pair, devices.data_mesh(training.model_axis))
    objective = experiment.objective
    if begins:
        check_learnt(objective, experiment.model)
    params, _ = _check_objective(objective, experiment.model, assembly.changes())
    check_frozen(params, training.frozen)
    if objective.guided and not experiment.data.links:
        raise OptionError(
            "{0} needs links between the words of the training text; name a file of "
            "them with {1}, as an aligner or kvnmt align writes it.",
            *("objective.guided", "data.links"),
        )


def check_learnt(objective: Objective, config: ModelConfig) -> None:
    """Refuses a training that would leave something untrained.

    Raises:
        OptionError: No prediction, or no loss, depends on something that is computed.
    """
    _, heads = _check_objective(objective, config, assembly.changes())
    check_choices(config)
    if heads > 1 and not objective.subtractive:
        raise OptionError(
            "the decoder has auxiliary predictors, and {0} is 0: they would learn "
            "nothing; give {0} 1, or choose one without (past_future has an option).",
            "objective.subtractive",
        )


def _check_cuts(experiment: Experiment) -> None:
    """Refuses BLEU of subwords against references that are cut by chance."""
    if experiment.objective.risk and experiment.data.subword_dropout:
        raise OptionError(
            "{0} compares subwords with those of the references, which {1} cuts "
            "otherwise each time; give {1} 0 and {2} 1.",
            *("objective.risk", "data.subword_dropout", "data.segmentations"),
        )


@lru_cache(maxsize=KEPT)
def _check_objective(
    objective: Objective,
    config: ModelConfig,
    changes: tuple[int, ...],  # of which the cache has to know
) -> tuple[Params, int]:
    """Traces loss and search; gives the parameters' shapes, and how many predict."""
    model = assembly.build(config, SAMPLE, SAMPLE)
    word, links = jnp.zeros((1, 1), jnp.int32), jnp.zeros((1, 1, 1), jnp.bool_)
    check_risk(objective, model)

    def predict_and_lose(params: Params) -> Prediction:
        prediction = model.forward(params, word, word)
        loss(objective, prediction, word, word, links, jnp.zeros(1))
        return prediction

    params = model.param_shapes
    prediction = jax.eval_shape(predict_and_lose, params)
    if model.reads_source:
        trace_search(model)
    if config.average_auxiliary and len(prediction.heads) == 1:
        raise OptionError(
            "{0} needs auxiliary predictors, and this system has none; leave it out.",
            "average_auxiliary",
            prefix="model.",
        )
    return params, len(prediction.heads)
