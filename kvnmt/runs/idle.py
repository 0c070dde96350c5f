# SPDX-License-Identifier: Apache-2.0
"""Finds choices of an experiment that have no effect because of other choices."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from operator import attrgetter
from typing import Any

import jax

from kvnmt.data.config import check_vocabularies
from kvnmt.errors import Idle, OptionError, check_given
from kvnmt.fields import WIDEST, check_used
from kvnmt.inference.config import check_asked
from kvnmt.layers import LSTM, has_units
from kvnmt.model.assembly import build
from kvnmt.model.config import ModelConfig
from kvnmt.runs.config import Experiment
from kvnmt.training.losses import Objective

SCANNED = Idle(
    ("products",),
    "{0} is of what goes from word to word, and in this model nothing does; leave it "
    "out.",
)
REMAT = Idle(
    ("remat", "residuals"),
    "{0} is of decoders that go from word to word, and this one computes all words at "
    "once; leave it out.",
)
WORDS = 8  # of a vocabulary that nobody reads
VECTORS = "source_vectors", "target_vectors"


def check_experiment(experiment: Experiment, *starts: Experiment) -> None:
    """Refuses what somebody gave though training does nothing with it.

    Args:
        experiment: All choices.
        starts: Those that they may have been made from, such as a recipe's. What is as
            in one of them was not given.

    Raises:
        OptionError: A choice was given that does nothing; the first is named.
    """
    check_vocabularies(experiment.data, *(start.data for start in starts))
    check_asked(experiment.search, *(start.search for start in starts))
    links, guided = experiment.data.links, experiment.objective.guided
    if links and not guided and all(start.data.links != links for start in starts):
        raise OptionError(
            "{0} guides the attention as much as {1} says, which is 0; give that too, "
            "such as 0.3.",
            *("data.links", "objective.guided"),
        )
    _check_plateau(experiment, *starts)
    check_used(experiment, *starts)
    check_rounds(experiment.model, *(start.model for start in starts))
    check_parts(_idle(experiment), experiment, *starts)


def check_parts(idle: Iterable[tuple[str, Idle]], *configs: Any) -> None:
    """Refuses what somebody gave in parts of a config though nothing reads it.

    Args:
        idle: The parts, by their paths, and what is not read of them.
        configs: The config, and those that it may have been made from.

    Raises:
        OptionError: Something was given.
    """
    for part, what in idle:
        config, *starts = map(attrgetter(part), configs)
        check_given(config, [what], *starts, prefix=f"{part}.")


def _check_plateau(experiment: Experiment, *starts: Experiment) -> None:
    """Refuses a rate that would fall at the earliest where training stops."""

    def waits(one: Experiment) -> tuple[float, int, int, int]:
        optimizer, training = one.optimizer, one.training
        falls = optimizer.plateau, optimizer.plateau_patience
        return *falls, training.patience, training.min_epochs

    factor, falls, stops, least = waits(experiment)
    # Until then nothing stops; how many validations come before is known of epochs.
    rescued = least > (0 if experiment.training.validate_every else falls + 1)
    given = waits(experiment) not in map(waits, starts)
    if factor < 1 and falls >= stops and not rescued and given:
        raise OptionError(
            f"{{0}} is {falls}, but training stops after {stops} validations without a "
            "better score ({1}), so the rate would never fall; lower the first, or "
            "raise the second.",
            *("optimizer.plateau_patience", "training.patience"),
        )


def check_rounds(model: ModelConfig, *starts: ModelConfig) -> None:
    """Refuses rounds that all see the same.

    Raises:
        OptionError: There are several, as in no start, and nothing is written.
    """
    rounds, *others = (getattr(one.decoder, "rounds", 1) for one in (model, *starts))
    if rounds == 1 or rounds in others or not model.built_decoder.rounds_need_writes:
        return
    if model.built_attention.write is None:
        raise OptionError(
            f"{{0}} is {rounds}, but the attention writes nothing between rounds: all "
            "but the last would be for nothing; choose another, such as kv_memory, or "
            "give {0} 1.",
            "model.decoder.rounds",
        )


def idle_steps(model: ModelConfig, objective: Objective) -> Iterator[Idle]:
    """What changes nothing in the steps of a model."""
    if model.at_once:
        yield REMAT
    # What is drawn for a risk goes from word to word.
    if model.at_once and not model.encoder_recurs and not objective.risk:
        yield SCANNED


def idle_sizes(model: ModelConfig) -> Iterator[tuple[str, Idle]]:
    """What changes nothing in a model: the part of a config, and what of it."""
    if model.alignment and not _reads(model, model.alignment):
        why = "{0} is of energies, and this model has none so wide; leave it out."
        yield "model", Idle(("alignment",), why)
    if not model.recurs:
        why = "{0} is of GRUs and LSTMs, of which this model has none; leave it out."
        yield "model", Idle(("layer_norm",), why)
    if model.forget_bias and not has_units(_shapes(model), LSTM):
        why = "{0} is of LSTMs, of which this model has none; leave it out."
        yield "model", Idle(("forget_bias",), why)
    if model.layers == 1 or not model.encoder_recurs:
        why = (
            "{0} is between layers of GRUs or LSTMs of the encoder; leave it out, or "
            "give it more of them."
        )
        yield "model.dropout", Idle(("layers",), why)
    if not model.encoder_recurs:
        why = "{0} is of GRUs or LSTMs, and this encoder has none; leave it out."
        yield "model", Idle(("residual",), why)
    if not model.reads_source:
        why = "{0} is of a source, and a language model reads none; leave it out."
        yield "model.dropout", Idle(("annotations",), why)


def _reads(model: ModelConfig, width: int) -> bool:
    """Whether an array is so wide as the energies are."""
    other = 2 * width if 2 * width <= WIDEST else width // 2
    one, two = (replace(model, alignment=size) for size in (width, other))
    return _shapes(one) != _shapes(two)


def _shapes(model: ModelConfig) -> Any:
    """The parameters as shapes."""
    init = build(model, WORDS, WORDS).init
    # The key, too: processes that are to be joined must not have a device yet.
    return jax.eval_shape(lambda: init(jax.random.key(0)))


def _idle(experiment: Experiment) -> Iterator[tuple[str, Idle]]:
    model = experiment.model
    yield from (("training", idle) for idle in idle_steps(model, experiment.objective))
    yield from idle_sizes(model)
    if getattr(model.decoder, "rounds", 1) == 1:
        why = "{0} is of several rounds, and this decoder has one; leave it out."
        yield "objective", Idle(("atteos_rounds",), why)
    if not model.reads_source:
        why = "{0} is of translations, and a language model makes none; leave it out."
        yield "training", Idle(("metric", "bleu_tokenize", "valid_beam"), why)
    if experiment.training.warm_start and not experiment.training.new_words:
        why = "{0} is of embeddings that start anew, and {1} copies them; leave it out."
        yield "training", Idle(VECTORS, why, ("warm_start",))
    if experiment.training.batch_tokens:
        why = "{0} counts pairs, and {1} counts tokens; give one."
        yield "training", Idle(("batch_size",), why, ("batch_tokens",))
