# SPDX-License-Identifier: Apache-2.0
"""Everything that decides a run, as one frozen config and as plain data."""

import dataclasses
import difflib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import cattrs
from flax.traverse_util import flatten_dict

from kvnmt import attention, decoder, target_context
from kvnmt.catalogue import Catalogue
from kvnmt.data.config import DataConfig
from kvnmt.errors import OptionError, UserError
from kvnmt.fields import KINDS
from kvnmt.inference.program import SearchConfig
from kvnmt.model.config import ModelConfig
from kvnmt.training.config import TrainingConfig
from kvnmt.training.losses import Objective
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


# What may be another when a run is resumed. All else is kept, since the arrays of a run
# and its place in the batch stream mean something only under it.
MAY_CHANGE = (
    # Where the text is, and how it is prepared; vocabularies are those of the run.
    "data.source",
    "data.target",
    "data.valid_source",
    "data.valid_target",
    "data.pairs",
    "data.valid_pairs",
    "data.tfds",
    "data.tfds_folder",
    "data.tfds_train",
    "data.tfds_valid",
    "data.languages",
    "data.links",
    "data.max_length",  # other pairs than before are refused, whatever leaves them out
    "data.cache",
    "data.workers",
    # What is minimised from now on, and how fast.
    "objective",
    "optimizer.learning_rate",
    "optimizer.warmup",
    "optimizer.schedule",
    "optimizer.schedule_steps",
    "optimizer.decay",
    "optimizer.decay_after",
    "optimizer.plateau",
    "optimizer.plateau_patience",
    "optimizer.clip",
    # How a step is computed, and how long training goes on.
    "training.dtype",
    "training.accumulate",  # other batches than before are refused
    "training.remat",
    "training.residuals",
    "training.products",
    "training.precision",
    "training.frozen",
    "training.model_axis",
    "training.workers",
    "training.epochs",
    "training.steps",
    "training.validate_every",
    "training.log_every",
    "training.profile",
    "training.patience",
    "training.min_epochs",
    "training.skip_at_most",
    "training.save_every",
    "training.save_minutes",
    "training.keep_last",
    "training.keep_best",
    "training.keep_every",
    # How translations are searched for; what validation does as well is kept, since
    # scores are compared.
    "search.beam",
    "search.sample",
    "search.temperature",
    "search.top_k",
    "search.top_p",
    "search.seed",
    "search.normalization",
    "search.alpha",
    "search.coverage",
    "search.diversity",
    "search.nbest",
    "search.mbr",
    "search.batch_size",
    "search.batch_tokens",
)


# What a search with a beam in validation takes from the run's, too.
OF_BEAM = "search.normalization", "search.alpha"


class UnlistedError(UserError):
    """A config names a mechanism that no catalogue lists."""


# What a run began from. Folders move, so only whether there was one is compared.
STARTS = (
    *("data.vocabularies", "data.codes", "data.target_codes", "training.warm_start"),
    *("training.source_vectors", "training.target_vectors"),
)


def to_plain(experiment: Experiment) -> dict[str, Any]:
    """An experiment as plain data; mechanisms carry their name."""
    return converter().unstructure(experiment)


def from_plain(plain: dict[str, Any]) -> Experiment:
    """An experiment from what `to_plain` gave.

    Raises:
        BaseValidationError: Of cattrs: a value is not of the kind of its field.
    """
    return converter().structure(plain, Experiment)


def unlisted_in(error: BaseException) -> UnlistedError | None:
    """The mechanism that was not found, wherever it stands in a group of errors."""
    if isinstance(error, UnlistedError):
        return error
    inner = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return next(filter(None, map(unlisted_in, inner)), None)


def with_starts(experiment: Experiment, before: Experiment) -> Experiment:
    """The experiment, with what the run began from as in the run's own config."""
    plain, former = to_plain(experiment), to_plain(before)
    for part, name in (path.split(".") for path in STARTS):
        plain[part][name] = former[part][name]
    return from_plain(plain)


def leaves(plain: dict[str, Any]) -> dict[str, Any]:
    """The values of nested plain data by their dotted paths."""
    return flatten_dict(plain, sep=".")


def changed_fields(before: Experiment, after: Experiment) -> tuple[str, ...]:
    """The paths of the fields in which two configs differ."""
    was, now = leaves(to_plain(before)), leaves(to_plain(after))
    return tuple(path for path in was | now if was.get(path) != now.get(path))


def check_kept(saved: Experiment, asked: Experiment, folder: Path) -> None:
    """Refuses to resume a run with what its arrays and its batches do not allow.

    Args:
        saved: The config of the run.
        asked: The config to go on with.
        folder: Run directory.

    Raises:
        OptionError: They differ in what a run keeps; every field, or flag, is named
            with both values.
    """
    before, now = leaves(to_plain(saved)), leaves(to_plain(asked))
    kept = () if saved.training.valid_beam == 1 else OF_BEAM
    may_change = [path for path in MAY_CHANGE if path not in kept]
    mechanisms = [
        path.removesuffix("name")
        for path in before
        if path.startswith("model.")
        and path.endswith(".name")
        and before[path] != now[path]
    ]
    paths = [
        path
        for path in before | now
        if _compared(path, before) != _compared(path, now)
        and not any(f"{path}.".startswith(f"{free}.") for free in may_change)
        # The options of another mechanism are other options.
        and (path.endswith(".name") or not path.startswith(tuple(mechanisms)))
    ]
    if paths:

        def told(show: Callable[[str, Any], str], what: str) -> str:
            was, cannot = (
                ", ".join(show(path, plain[path]) for path in paths)
                for plain in (before, now)
            )
            return (
                f"the run in '{folder}' was made with {was} and cannot go on with "
                f"{cannot}; {what}, or train in another folder."
            )

        error = OptionError(told("{} {}".format, "keep the former"))
        error.by_flag = told(_flag, "leave the flags out")
        raise error


def _compared(path: str, plain: dict[str, Any]) -> Any:
    value = plain.get(path)
    return value is not None if path in STARTS else value


@cache
def converter() -> cattrs.Converter:
    """The conversion of configs, both ways; unknown fields are refused."""
    made = cattrs.Converter(forbid_extra_keys=True)
    # As they are: int(2.7) is 2, bool("false") is True, float(True) is 1.0.
    for kind in (bool, int, float, str):
        made.register_structure_hook(kind, _as_it_is)
    for base, catalogue in (
        (attention.Options, attention.CATALOGUE),
        (decoder.Options, decoder.CATALOGUE),
        (target_context.Options, target_context.CATALOGUE),
    ):
        _register(made, base, catalogue)
    return made


def _as_it_is(value: Any, kind: type) -> Any:
    """What is of this kind already."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if type(value) is not kind and not (kind is float and number):  # as of NumPy
        raise UserError(f"{value!r} must be {KINDS[kind]}")
    return kind(value)


def _flag(path: str, value: Any) -> str:
    """A choice as it is typed, ``--model.decoder.rounds 2``."""
    *parents, last = path.replace("_", "-").split(".")
    if parents[0] == "model" and last == "name":
        return f"--{parents[1]} {value}"
    if isinstance(value, bool):
        last = last if value else f"no-{last}"
        return f"--{'.'.join([*parents, last])}"
    if isinstance(value, (list, tuple)):
        value = " ".join(map(str, value))
    return f"--{'.'.join([*parents, last])} {value}"


def _register(converter: cattrs.Converter, base: type, catalogue: Catalogue) -> None:
    """Lets options of any member stand for the base, tagged by the member's name."""

    def unstructure(options: Any) -> dict[str, Any]:
        return {"name": catalogue.name_of(options), **dataclasses.asdict(options)}

    def structure(plain: dict[str, Any], _: Any) -> Any:
        fields = dict(plain)
        name = fields.pop("name")
        if name not in catalogue:
            near = difflib.get_close_matches(str(name), list(catalogue), 1, cutoff=0.8)
            hint = f" (did you mean '{near[0]}'?)" if near else ""
            raise UnlistedError(
                f"has '{name}' for {catalogue.kind}{hint}, which is not listed; import "
                "the file that lists it, the command by --import."
            )
        member = catalogue[name]
        return converter.structure(fields, member.Options)

    converter.register_unstructure_hook(base, unstructure)
    converter.register_structure_hook_func(lambda kind: kind is base, structure)
