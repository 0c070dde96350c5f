# SPDX-License-Identifier: Apache-2.0
"""What the flags of a command start from: a recipe and a system, or a run's config.

Flags exist for the options of the mechanisms chosen, so the choice must be known before
the flags can be read.
"""

import dataclasses
import io
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from kvnmt import attention, decoder, target_context
from kvnmt.console import say
from kvnmt.data.config import check_vocabularies
from kvnmt.data.sources import replacing
from kvnmt.errors import UserError, flag
from kvnmt.fields import check_used
from kvnmt.inference.config import check_asked
from kvnmt.model.config import ModelConfig
from kvnmt.runs.config import Experiment, leaves, to_plain
from kvnmt.runs.directory import chosen, load_experiment
from kvnmt.runs.history import told_of_former
from kvnmt.runs.idle import check_experiment, check_rounds
from kvnmt.runs.recipes import DEFAULT, RECIPES, Recipe, with_optimizer
from kvnmt.systems.named import NamedSystem, system
from kvnmt.training.losses import with_terms

HELP = {"-h", "--help"}
AXES = {
    "attention": attention.CATALOGUE,
    "decoder": decoder.CATALOGUE,
    "target_context": target_context.CATALOGUE,
}
# What a system that does not name it has as RNNsearch*, whatever a run has.
RESET = "model.cell", "model.layers", "model.readout", "model.decoder.transitions"


@dataclass(frozen=True)
class OptimizerChoice:
    """Which optimiser, as far as it was typed."""

    name: str | None = None


@dataclass(frozen=True)
class Choices:
    """The flags that decide what the others are, or start from."""

    system: str | None = None
    attention: str | None = None
    decoder: str | None = None
    target_context: str | None = None
    recipe: Recipe | None = None
    like: Path | None = None
    resume: bool = False
    optimizer: OptimizerChoice = OptimizerChoice()

    def start(self, base: Experiment | None) -> Experiment:
        """What training starts from: another run, a recipe, else ``base`` or a recipe.

        A run that is resumed starts from itself instead.

        Raises:
            UserError: Two of them are named, or there is no such run.
        """
        if self.like is None:
            if base and not self.recipe:
                return base
            return with_optimizer(RECIPES[self.recipe or DEFAULT], self.optimizer.name)
        if self.recipe:
            raise UserError(
                "--like and --recipe both say what other flags start from; give one."
            )
        return with_optimizer(load_experiment(self.like), self.optimizer.name)

    def apply(self, base: Experiment) -> Experiment:
        """The sizes and settings of ``base`` with the system and mechanisms named.

        Where it is a run's config, what is not named stays as it is there.

        Raises:
            UserError: There is none of that name; the nearest is suggested.
        """
        model, objective = base.model, base.objective
        if self.system or not (self.like or self.resume):
            chosen = system(self.system or "rnnsearch-star")
            named = chosen.objective(objective)
            whole = chosen.model(model)
            model = _joined(model, whole, chosen) if self.resume else whole
            objective = with_terms(objective, named) if self.resume else named
        for axis, catalogue in AXES.items():
            if name := getattr(self, axis):
                options = catalogue[name].Options()
                model = dataclasses.replace(model, **{axis: options})
        return dataclasses.replace(base, model=model, objective=objective)


def parse(
    kind: Any,
    arguments: Sequence[str],
    *,
    prog: str,
    runs: str,
    base: Experiment | None = None,
) -> Any:
    """Reads the flags of a command that start from a recipe, a system or a run.

    Args:
        kind: The command, with a field ``experiment``, ``search`` or ``data``, or with
            a function ``config_of`` from an experiment to its field ``config``, and
            perhaps ``check_given``, which sees what all flags started from. If others
            ask for searches later, it has ``is_asked_later`` and looks at ``search``.
        arguments: What was typed after the command's name.
        prog: What the program is called in messages.
        runs: The field of the command that names one or several runs, if there is one.
        base: What training starts from that resumes no run and names no recipe;
            by default the default recipe.

    Raises:
        UserError: There is no such system or mechanism, or a flag does nothing beside
            the others.
    """
    choices, experiment = Choices(), base or Experiment()
    names = {field.name for field in dataclasses.fields(kind)}
    builds, before = "system" in names, None
    if "recipe" in names:
        choices = _glance(Choices, arguments, Choices(), unknown=True) or choices
    if runs and (choices.resume or not builds):
        before = _of_run(kind, arguments, runs)
    if before:  # whatever it was like once
        experiment = before
    elif "recipe" in names:
        experiment = choices.start(base)
    if builds:
        experiment = choices.apply(experiment)
    default = _start(kind, experiment)
    typed = tyro.cli(kind, args=arguments, prog=prog, default=default)
    if "experiment" in names:
        data = replacing(typed.experiment.data, default.experiment.data)
        whole = dataclasses.replace(typed.experiment, data=data)
        typed = dataclasses.replace(typed, experiment=whole)
    if "search" in names and not getattr(kind, "is_asked_later", False):
        check_asked(typed.search, default.search)
    if hasattr(typed, "check_given"):
        typed.check_given(default)
    if "data" in names:
        check_vocabularies(typed.data, default.data)
        pair = (dataclasses.replace(experiment, data=c.data) for c in (typed, default))
        check_used(*pair)
    if choices.like and not before:
        like = load_experiment(choices.like)
        if note := told_of_former(chosen(choices.like)[0], like):
            say(note)
    if choices.like and choices.system and not before:
        _tell_reset(choices.like, choices.system, default.experiment, typed.experiment)
    if "experiment" in names:
        check_experiment(typed.experiment, default.experiment)
        if choices.attention:  # perhaps beside a system whose own has something to do
            check_rounds(typed.experiment.model)
    return typed


def _joined(run: ModelConfig, whole: ModelConfig, named: NamedSystem) -> ModelConfig:
    """A run's model as a system names it: what it does not name is the run's.

    But another mechanism than the system has stays the system's, which is refused: a
    run cannot go on with it.
    """
    changes = dict(named.choices)
    for axis in AXES:
        if type(getattr(run, axis)) is not type(getattr(whole, axis)):
            changes[axis] = getattr(whole, axis)
    return dataclasses.replace(run, **changes)


def _tell_reset(like: Path, name: str, start: Experiment, typed: Experiment) -> None:
    """Says what another system has otherwise than a run, though nobody asked for it.

    Args:
        like: The run.
        name: Of the system.
        start: What flags were typed to.
        typed: What they make of it.
    """
    plain = (to_plain(one) for one in (load_experiment(like), start, typed))
    was, before, now = map(leaves, plain)
    named = system(name).choices
    for path in RESET:
        pair = was.get(path), now.get(path)
        if None in pair or before.get(path) != now.get(path):
            continue
        if pair[0] != pair[1] and path.split(".")[1] not in named:
            say(
                f"note: {flag(path)} is {pair[1]}, as --system {name} has it, and was "
                f"{pair[0]} in '{like}'; give {flag(path)} {pair[0]} to keep that"
            )


def _of_run(kind: Any, arguments: Sequence[str], runs: str) -> Experiment | None:
    """The config of the first run that the command's field of runs names.

    A flag may name another run, and which flags take a value depends on the mechanisms
    of the run. So every folder is tried: with the config of the right one, the
    arguments name the folder that the config was read from. If other arguments are
    missing, help is that of the first folder.
    """
    shown = None
    for folder in _folders(arguments):
        try:
            experiment = load_experiment(folder)
        except UserError:
            continue  # if it is the one, the command says so
        shown = shown or experiment
        parsed = _glance(kind, arguments, _start(kind, experiment))
        if parsed and folder == next(_folders(_paths(parsed, runs)), None):
            return experiment
    return shown if HELP & {*arguments} else None


def _folders(words: Sequence[object]) -> Iterator[Path]:
    """The run directories among words, and the checkpoints of such."""
    for path in (Path(str(word)) for word in words):
        with suppress(UserError, OSError):  # if it is the one, the command says so
            folder, _ = chosen(path)
            if (folder / "config.json").is_file():
                yield path


def _paths(parsed: Any, runs: str) -> Sequence[Path]:
    named = getattr(parsed, runs)
    return [named] if isinstance(named, Path) else named


def _glance(
    kind: Any, arguments: Sequence[str], default: Any, *, unknown: bool = False
) -> Any:
    """Reads flags before they are read in earnest; None if they cannot be read.

    Args:
        kind: What is read.
        arguments: What was typed. Help waits until the flags are known.
        default: What the flags start from.
        unknown: Whether there may be other flags.
    """
    words = [word for word in arguments if word not in HELP]
    nowhere = io.StringIO()  # a mistake is told when the flags are read in earnest
    try:
        with redirect_stdout(nowhere), redirect_stderr(nowhere):
            parsed = tyro.cli(
                kind,
                args=words,
                default=default,
                return_unknown_args=unknown,
            )
    except SystemExit:
        return None
    return parsed[0] if unknown else parsed


def _start(kind: Any, experiment: Experiment) -> Any:
    """The command before any flag is read."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        if field.name == "experiment":
            values[field.name] = experiment
        elif field.name in ("search", "data"):
            values[field.name] = getattr(experiment, field.name)
        elif field.name == "config":
            values[field.name] = kind.config_of(experiment)
        elif field.default is field.default_factory is dataclasses.MISSING:
            values[field.name] = tyro.MISSING
    return kind(**values)
