# SPDX-License-Identifier: Apache-2.0
"""An experiment: one frozen config, one run directory that needs nothing else.

A run directory holds ``config.json``, ``versions.json``, ``vocabulary/``,
``metrics.jsonl``, ``events/``, ``learning-curve.png`` and ``checkpoints/``.
"""

import json
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import cattrs
import jax
import jax.numpy as jnp
from rich.console import Console

from kvnmt import devices, models
from kvnmt.config import ModelConfig
from kvnmt.console import error_console
from kvnmt.data.config import DataConfig
from kvnmt.data.corpus import (
    Vocabularies,
    check_digests,
    digests,
    load_corpora,
    load_vocabularies,
    save_vocabularies,
)
from kvnmt.data.vocabulary import digest
from kvnmt.errors import Range, UserError, check_ranges
from kvnmt.evaluation.bleu import check_tokenizer
from kvnmt.files import write_json as _write_json
from kvnmt.losses import Objective, loss
from kvnmt.models import Model, Params
from kvnmt.plain import converter
from kvnmt.training.checkpoint import Checkpoints
from kvnmt.training.config import TrainingConfig
from kvnmt.training.loop import Result, Trainer
from kvnmt.training.optimizer import OptimizerConfig
from kvnmt.training.warm_start import warm_start
from kvnmt.translation import RANGES as SEARCH_RANGES
from kvnmt.translation import SearchConfig


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


class Run(NamedTuple):
    """A trained model, as read back from its run directory."""

    experiment: Experiment
    vocabularies: Vocabularies
    model: Model
    params: Params


def run(
    experiment: Experiment,
    folder: Path,
    *,
    resume: bool = False,
    console: Console | None = None,
) -> Result:
    """Trains an experiment in a run directory.

    All input is read and checked before the directory is touched.

    Args:
        experiment: What to train.
        folder: Run directory; must not hold a run unless ``resume``.
        resume: Go on from the last checkpoint.
        console: Where people read; standard error by default.

    Raises:
        UserError: The data, the directory or the config cannot be used.
    """
    console = console or Console(stderr=True, quiet=devices.part()[0] > 0)
    check_ranges(experiment, RANGES)
    check_tokenizer(experiment.training.bleu_tokenize)
    _ = experiment.training.chunk  # raises what is wrong with --training.remat
    trained = None
    if resume:
        before = load_experiment(folder)
        if _was_saved(folder):
            _check_kept(before, experiment, folder)
        trained = load_vocabularies(folder)
    else:
        _refuse_existing(folder)
    corpora = load_corpora(experiment.data, trained, console)
    words = corpora.vocabularies
    console.print(corpora.report, highlight=False, soft_wrap=True)
    model = models.build(experiment.model, len(words.source), len(words.target))
    params = jax.jit(model.init)(jax.random.key(experiment.training.seed))
    _check_objective(experiment.objective, model, params)
    if experiment.training.warm_start and not (resume and _was_saved(folder)):
        params = _warm_start(experiment.training.warm_start, params, words, console)
    about = {
        "config": to_plain(experiment),
        "versions": _versions(),
        "vocabularies": digests(words),
    }
    trainer = Trainer(
        *(model, params, corpora, experiment.training, experiment.objective),
        *(experiment.optimizer, folder, about, console),
    )
    devices.meet("checked")  # by all, before one of them makes the folder
    devices.first_does(lambda: _create(folder, experiment, words))
    return trainer.fit(resume=resume)


def load_run(folder: Path | str) -> Run:
    """Reads a run directory back, with the parameters of its best checkpoint.

    Raises:
        UserError: It is no run directory or holds no finished checkpoint.
    """
    folder = _existing(Path(folder))
    experiment = load_experiment(folder)
    words = load_vocabularies(folder)
    model = models.build(experiment.model, len(words.source), len(words.target))
    like = jax.eval_shape(model.init, jax.random.key(0))
    tell = partial(error_console().print, highlight=False, soft_wrap=True)
    kept = folder / "checkpoints"
    with Checkpoints(kept, read_only=True, tell=tell) as checkpoints:
        found = checkpoints.find("best")
        check_digests(found.about.get("vocabularies"), words, folder)
        params = checkpoints.restore_params(like, found.step)
    return Run(experiment, words, model, params)


def load_experiment(folder: Path) -> Experiment:
    """Reads the config of a run directory."""
    text = (_existing(folder) / "config.json").read_text()
    try:
        return from_plain(json.loads(text))
    except cattrs.BaseValidationError as error:
        reason = "; ".join(cattrs.transform_error(error))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = " ".join(str(error).split())
    raise UserError(f"'{folder}/config.json' is no config of this version: {reason}.")


def to_plain(experiment: Experiment) -> dict[str, Any]:
    """An experiment as plain data; mechanisms carry their name."""
    return converter().unstructure(experiment)


def from_plain(plain: dict[str, Any]) -> Experiment:
    """An experiment from what `to_plain` gave."""
    return converter().structure(plain, Experiment)


def _existing(folder: Path) -> Path:
    if not (folder / "config.json").is_file():
        raise UserError(
            f"'{folder}' is no run directory: it holds no config.json; give the "
            "folder that training wrote."
        )
    return folder


def _refuse_existing(folder: Path) -> None:
    begun = {"vocabulary", "versions.json", "versions.new", "config.new"}
    # What a start that was killed has left is no run.
    if folder.is_dir() and {path.name for path in folder.iterdir()} <= begun:
        return
    if folder.exists():
        raise UserError(
            f"'{folder}' exists already and is not empty; pass --resume to go on "
            "with the run in it, or choose another folder."
        )


def _check_kept(saved: Experiment, asked: Experiment, folder: Path) -> None:
    for path in KEPT:
        before, now = (attrgetter(path)(one) for one in (saved, asked))
        if before != now:
            raise UserError(
                f"the run in '{folder}' has {path} {before} and cannot go on with "
                f"{now}; leave it as it is, or train in another folder."
            )


def _check_objective(objective: Objective, model: Model, params: Params) -> None:
    """Traces the loss once, so that one that does not fit is told before any work."""
    word = jnp.zeros((1, 1), jnp.int32)
    jax.eval_shape(
        lambda params: loss(objective, model.forward(params, word, word), word, word),
        params,
    )


def _was_saved(folder: Path) -> bool:
    if not (folder / "checkpoints").is_dir():
        return False
    with Checkpoints(folder / "checkpoints", read_only=True) as checkpoints:
        return checkpoints.last_step() is not None


def _create(folder: Path, experiment: Experiment, words: Vocabularies) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "config.json").exists():  # else they are what was read
            save_vocabularies(words, folder / "vocabulary")
        _write_json(folder / "versions.json", _versions())
        _write_json(folder / "config.json", to_plain(experiment))  # last: it is a run
    except OSError as error:
        raise UserError(f"'{folder}' cannot be made: {error.strerror}.") from None


def _versions() -> dict[str, str]:
    packages = ("kvnmt", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")
    device = f"{jax.device_count()} x {jax.devices()[0].device_kind}"
    return {name: version(name) for name in packages} | {"device": device}


def _warm_start(
    folder: Path, params: Params, words: Vocabularies, console: Console
) -> Params:
    trained = load_run(folder)
    for side, ours, theirs in zip(Vocabularies._fields, words, trained.vocabularies):
        if digest(ours) != digest(theirs):
            raise UserError(
                f"the {side} vocabulary of '{folder}' ({len(theirs)} entries, "
                f"{digest(theirs)}) is not that of this run ({len(ours)} entries, "
                f"{digest(ours)}); train both on the same text with the same choices."
            )
    started = warm_start(params, trained.params)
    console.print(
        f"{len(started.copied)} arrays start as in '{folder}', "
        f"{len(started.fresh)} start fresh:",
        highlight=False,
        soft_wrap=True,
    )
    for what, names in (("copied", started.copied), ("fresh", started.fresh)):
        for name in names:
            console.print(f"  {what}  {name}", highlight=False, soft_wrap=True)
    return started.params
