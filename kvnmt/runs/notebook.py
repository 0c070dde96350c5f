# SPDX-License-Identifier: Apache-2.0
"""What `import kvnmt` gives: the few functions that a notebook starts with.

Everything here is thin: what these functions return is documented where it is made.
"""

import dataclasses
import html
from collections import UserDict
from collections.abc import Iterable, Iterator
from operator import index
from pathlib import Path

from kvnmt.data.config import DataConfig
from kvnmt.errors import StoppedError as StoppedError
from kvnmt.errors import UserError, unknown_name
from kvnmt.fields import check_changes, check_fields
from kvnmt.inference.config import SearchConfig as SearchConfig
from kvnmt.inference.ensemble import Joined, Mean
from kvnmt.laws.check import check as check
from kvnmt.model import assembly
from kvnmt.model.config import Dropout as Dropout
from kvnmt.model.config import ModelConfig
from kvnmt.runs import directory
from kvnmt.runs import train as training
from kvnmt.runs.config import Experiment
from kvnmt.runs.idle import check_experiment
from kvnmt.runs.making import write_run
from kvnmt.runs.recipes import DEFAULT, RECIPES, Recipe
from kvnmt.runs.run import Run
from kvnmt.systems import named
from kvnmt.training.config import TrainingConfig as TrainingConfig
from kvnmt.training.losses import Objective as Objective
from kvnmt.training.optimizer import OptimizerConfig as OptimizerConfig


class Systems(UserDict[str, named.NamedSystem]):
    """The named systems of the papers by name; a notebook shows them as a table.

    What is put into it can be built by its name.

    Example::

        >>> kvnmt.SYSTEMS["kvmematt-r2"].paper
        'Meng et al. 2018, section 3'
    """

    def __init__(self) -> None:
        super().__init__()
        self.data = named.SYSTEMS

    def __missing__(self, name: str) -> named.NamedSystem:
        """Raises a `UserError` with the nearest name."""
        return named.system(name)

    def __setitem__(self, name: str, system: named.NamedSystem) -> None:
        """Lists a system of one's own.

        Raises:
            UserError: It is none, or chooses what no model has.
        """
        _check_kind("what is listed", system, named.NamedSystem)
        check_changes(ModelConfig(), system.choices, "model.")
        super().__setitem__(name, system)

    def __repr__(self) -> str:
        width = max(map(len, self), default=0)
        return "\n".join(f"{name:{width}}  {self[name].paper}" for name in self)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td><code>{html.escape(name)}</code></td>"
            f"<td>{html.escape(system.paper)}</td></tr>"
            for name, system in self.items()
        )
        return f"<table><tr><th>system</th><th>paper</th></tr>{rows}</table>"


SYSTEMS = Systems()


def build(
    system: str | ModelConfig,
    source_words: int,
    target_words: int,
    sizes: ModelConfig | None = None,
) -> assembly.Model:
    """Builds a model: pure functions, which `init` gives parameters to.

    Args:
        system: A name out of `SYSTEMS`, or a config that says everything.
        source_words: Rows of the source vocabulary; the end of sentence and the
            unknown word have the first two.
        target_words: Rows of the target vocabulary, likewise.
        sizes: With a name: the widths, dropout, initialiser and what is tied; by
            default those of `ModelConfig`.

    Raises:
        UserError: There is no system of that name, the sizes name a mechanism, or a
            vocabulary has no row.

    Example::

        >>> import jax, jax.numpy as jnp
        >>> sizes = kvnmt.ModelConfig(embedding=8, encoder=8, state=8)
        >>> model = kvnmt.build("kvmematt-r2", 20, 30, sizes)
        >>> params = model.init(jax.random.key(0))
        >>> source, target = jnp.array([[5, 6, 7, 0]]), jnp.array([[8, 9, 0]])  # 0: EOS
        >>> jax.jit(model.forward)(params, source, target).logits.shape
        (1, 3, 30)
    """
    source_words = _count("source_words", source_words)
    target_words = _count("target_words", target_words)
    _check_kind("system", system, str, ModelConfig)
    if isinstance(system, ModelConfig):
        if sizes is not None:
            raise UserError("a config has its sizes; pass sizes with a name only.")
        return assembly.build(system, source_words, target_words)
    config = named.system(system).model(_checked(sizes) or ModelConfig())
    return assembly.build(config, source_words, target_words)


def experiment(
    system: str,
    data: DataConfig,
    sizes: ModelConfig | None = None,
    recipe: Recipe = DEFAULT,
) -> Experiment:
    """Chooses what to train: a named system, with its objective, on some text.

    Everything else is the recipe's; `dataclasses.replace` changes it.

    Args:
        system: A name out of `SYSTEMS`.
        data: The text, and how it becomes ids: that is not the recipe's.
        sizes: As of `build`; they replace all of the recipe's model, its dropout,
            initialiser, normalisation and ``tie`` too. None: the recipe's.
        recipe: ``modern``, as the command has it, or ``papers``.

    Raises:
        UserError: There is no system or recipe of that name, the sizes name a
            mechanism, or the data are no `DataConfig`.

    Example::

        >>> from pathlib import Path
        >>> data = kvnmt.DataConfig(source=Path("train.de"), target=Path("train.en"))
        >>> kvnmt.experiment("kvmematt-r2-atteos", data).objective.atteos
        1.0
    """
    _check_kind("system", system, str)
    _check_kind("data", data, DataConfig)
    if recipe not in RECIPES:
        raise unknown_name("recipe", recipe, RECIPES)
    chosen, base = named.system(system), RECIPES[recipe]
    return dataclasses.replace(
        base,
        model=chosen.model(_checked(sizes) or base.model),
        objective=chosen.objective(base.objective),
        data=data,
    )


def train(experiment: Experiment, folder: Path | str, *, resume: bool = False) -> Run:
    """Trains in a run directory, and reads the best checkpoint back.

    Args:
        experiment: What to train.
        folder: The run directory, new or, to go on, the one begun.
        resume: Go on with the run that is there.

    Raises:
        UserError: The text, the directory or the config cannot be used.
        StoppedError: Somebody interrupted it; everything is saved, and
            ``resume=True`` goes on.

    Example::

        >>> run = kvnmt.train(experiment, "runs/new")
        >>> [translation] = run.translate(["a b c"])
    """
    _check_kind("experiment", experiment, Experiment)
    _check_kind("folder", folder, str, Path)
    check_fields(experiment)
    saved = [directory.load_experiment(Path(folder))] if resume else []
    check_experiment(experiment, *_starts(experiment), *saved)
    training.run(experiment, Path(folder), resume=resume)
    return directory.load_run(folder)


def load(
    folder: Path | str,
    *others: Path | str,
    weights: Iterable[float] = (),
    mean: Mean = "arithmetic",
) -> Run:
    """Reads a trained model from its run directory, or several as an ensemble.

    Args:
        folder: Of the run.
        others: Of further runs.
        weights: How much each counts; (): all the same.
        mean: Of their probabilities.

    Raises:
        UserError: A folder is no run directory, or they do not fit together.

    Example::

        >>> run = kvnmt.load("runs/mine")
        >>> [translation] = run.translate(["a b c"])
    """
    _check_kind("folder", folder, str, Path)
    for other in others:
        _check_kind("each of others", other, str, Path)
    joined = Joined(tuple(weights), mean)
    return directory.load_ensemble([*map(Path, (folder, *others))], joined)


def save(run: Run, folder: Path | str) -> None:
    """Writes a run directory of a model that was trained by a step of one's own.

    It can be loaded, translated with, served and started from, but not resumed.
    ``run._replace(params=state.served)`` is a run with what a step has made; of another
    model its ``experiment`` must be that model's, too.

    Raises:
        UserError: There is something in the folder, it cannot be written, the run is an
            ensemble, or its parameters are not finite or not of its experiment's model.

    Example::

        >>> run = kvnmt.load("runs/mine")
        >>> kvnmt.save(run, "runs/copy")
        >>> len(kvnmt.load("runs/copy").translate(["a b c"]))
        1
    """
    _check_kind("run", run, Run)
    _check_kind("folder", folder, str, Path)
    if not isinstance(run.params, assembly.Params):
        raise UserError(
            "what is saved are the parameters of one model: of an ensemble save each, "
            "of a state of training what it has as served."
        )
    write_run(run.experiment, run.vocabularies, run.params, Path(folder))


def _starts(experiment: Experiment) -> Iterator[Experiment]:
    """What it may have been made from: recipes, at the sizes of a language model."""
    for start in RECIPES.values():
        yield start
        wide = dataclasses.replace(start.model, readout_size=experiment.model.state)
        if not experiment.model.reads_source:  # even where nothing is read out
            yield dataclasses.replace(start, model=wide)


def _checked(sizes: ModelConfig | None) -> ModelConfig | None:
    if sizes is not None:
        _check_kind("sizes", sizes, ModelConfig)
        remedy = "change the config that kvnmt.SYSTEMS[name].model(sizes) gives"
        named.check_no_mechanism(sizes, remedy)
    return sizes


def _check_kind(name: str, value: object, *kinds: type) -> None:
    if not isinstance(value, kinds):
        needed = " or ".join(kind.__name__ for kind in kinds)
        raise UserError(
            f"{name} is of type {type(value).__name__} but must be {needed}."
        )


def _count(name: str, words: int) -> int:
    """The size of a vocabulary; NumPy's integers are integers, too."""
    try:
        count = 0 if isinstance(words, bool) else index(words)
    except TypeError:
        count = 0
    if count < 1:
        raise UserError(f"{name} is {words!r} but must be at least 1, an int.")
    return count
