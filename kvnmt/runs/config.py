# SPDX-License-Identifier: Apache-2.0
"""Everything that decides a run, as one frozen config and as plain data."""

import dataclasses
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any

import cattrs

from kvnmt import attention, decoder, target_context
from kvnmt.catalogue import Catalogue
from kvnmt.data.config import DataConfig
from kvnmt.errors import Range, UserError
from kvnmt.inference.program import RANGES as SEARCH_RANGES
from kvnmt.inference.program import SearchConfig
from kvnmt.losses import Objective
from kvnmt.model_config import ModelConfig
from kvnmt.training.config import TrainingConfig
from kvnmt.training.optimizer import OptimizerConfig


@dataclass(frozen=True)
class Experiment:
    """Everything that decides a run."""

    model: ModelConfig = field(default_factory=ModelConfig)
    objective: Objective = field(default_factory=Objective)
    data: DataConfig = field(default_factory=DataConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    search: SearchConfig = field(default_factory=SearchConfig)


RANGES: dict[str, Range] = {
    "model.embedding": (1, None),
    "model.encoder": (1, None),
    "model.state": (1, None),
    "model.alignment": (1, None),
    "model.layers": (1, None),
    "model.readout_size": (1, None),
    "model.low_rank": (1, None),
    "model.attention.max_fertility": (0, None),
    "model.attention.size": (1, None),
    "model.attention.window": (0, None),
    "model.attention.weight": (0, 1),
    "model.decoder.rounds": (1, None),
    "model.decoder.layers": (1, None),
    "model.decoder.slots": (1, None),
    "model.decoder.noise": (0, None),
    "model.target_context.window": (1, None),
    "model.target_context.parts": (1, None),
    "model.dropout.embedding": (0, 0.99),
    "model.dropout.annotations": (0, 0.99),
    "model.dropout.state": (0, 0.99),
    "model.dropout.output": (0, 0.99),
    "objective.label_smoothing": (0, 0.99),
    "objective.atteos": (0, None),
    "objective.subtractive": (0, None),
    "data.min_count": (1, None),
    "data.vocabulary_size": (3, None),
    "data.subwords": (3, None),
    "data.subword_sentences": (1, None),
    "data.max_length": (1, None),
    "data.max_ratio": (1, None),
    "data.workers": (0, None),
    "optimizer.learning_rate": (0, None),
    "optimizer.decay": (0, None),
    "optimizer.decay_after": (0, None),
    "optimizer.warmup": (0, None),
    "optimizer.clip": (0, None),
    "optimizer.momentum": (0, 0.999999),
    "optimizer.plateau": (0.000001, 1),
    "optimizer.plateau_patience": (1, None),
    "training.epochs": (1, None),
    "training.batch_size": (1, None),
    "training.batch_tokens": (1, None),
    "training.shapes": (1, 255),
    "training.workers": (0, None),
    "training.seed": (0, 2**32 - 1),
    "training.validate_every": (0, None),
    "training.patience": (1, None),
    "training.skip_at_most": (1, None),
    "training.keep_last": (1, None),
    "training.keep_every": (0, None),
    "training.save_every": (0, None),
    "training.accumulate": (1, None),
    "training.ema": (0, 0.999999),
    "training.model_axis": (1, None),
    **{f"search.{name}": bounds for name, bounds in SEARCH_RANGES.items()},
}


# What a run keeps when it is resumed: its arrays and its place in the batch stream
# mean something only under these.
KEPT = (
    "model",
    "optimizer.name",
    "optimizer.momentum",
    "data.vocabulary",
    "data.max_length",
    "data.max_ratio",
    "data.faulty",
    "training.batch_size",
    "training.batch_tokens",
    "training.shapes",
    "training.seed",
    "training.metric",
    "training.bleu_tokenize",
    "training.accumulate",
    "training.ema",
)


def to_plain(experiment: Experiment) -> dict[str, Any]:
    """An experiment as plain data; mechanisms carry their name."""
    return converter().unstructure(experiment)


def from_plain(plain: dict[str, Any]) -> Experiment:
    """An experiment from what `to_plain` gave."""
    return converter().structure(plain, Experiment)


def check_kept(saved: Experiment, asked: Experiment, folder: Path) -> None:
    """Refuses to resume a run with what its arrays and its batches do not allow.

    Raises:
        UserError: A choice that a run keeps is another one now; it is named.
    """
    for path in KEPT:
        before, now = (attrgetter(path)(one) for one in (saved, asked))
        if before != now:
            raise UserError(
                f"the run in '{folder}' has {path} {before} and cannot go on with "
                f"{now}; leave it as it is, or train in another folder."
            )


def converter() -> cattrs.Converter:
    """The conversion of configs, both ways; unknown fields are refused."""
    made = cattrs.Converter(forbid_extra_keys=True)
    made.register_unstructure_hook(Path, str)
    made.register_structure_hook(Path, lambda value, _: Path(value))
    for base, catalogue in (
        (attention.Options, attention.CATALOGUE),
        (decoder.Options, decoder.CATALOGUE),
        (target_context.Options, target_context.CATALOGUE),
    ):
        _register(made, base, catalogue)
    return made


def _register(converter: cattrs.Converter, base: type, catalogue: Catalogue) -> None:
    """Lets options of any member stand for the base, tagged by the member's name."""

    def unstructure(options: Any) -> dict[str, Any]:
        return {"name": catalogue.name_of(options), **dataclasses.asdict(options)}

    def structure(plain: dict[str, Any], _: Any) -> Any:
        fields = dict(plain)
        member = catalogue[fields.pop("name")]
        return converter.structure(fields, member.Options)

    converter.register_unstructure_hook(base, unstructure)
    converter.register_structure_hook_func(lambda kind: kind is base, structure)
