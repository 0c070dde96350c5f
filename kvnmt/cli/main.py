# SPDX-License-Identifier: Apache-2.0
"""The ``kvnmt`` command: train, translate, evaluate, score, align and more."""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Union

import tyro

from kvnmt import attention, decoder, target_context
from kvnmt.cli.evaluate import Evaluate
from kvnmt.cli.explore import Explore
from kvnmt.cli.pairs import Align, Score
from kvnmt.cli.systems import Benchmark, Systems
from kvnmt.cli.text import Prepare, PrepareTfds, Validate
from kvnmt.cli.train import Average, Train
from kvnmt.cli.translate import Translate
from kvnmt.errors import run_program, unknown_name
from kvnmt.runs import directory
from kvnmt.runs.config import Experiment
from kvnmt.systems.named import system

AXES = {
    "attention": attention.CATALOGUE,
    "decoder": decoder.CATALOGUE,
    "target_context": target_context.CATALOGUE,
}
NAMES_RUNS = ("--ensemble", "--training.warm-start", "--training.warm_start")


COMMANDS: dict[str, Any] = {
    "train": Train,
    "translate": Translate,
    "evaluate": Evaluate,
    "explore": Explore,
    "score": Score,
    "align": Align,
    "average": Average,
    "benchmark": Benchmark,
    "systems": Systems,
    "prepare": Prepare,
    "prepare-tfds": PrepareTfds,
    "validate": Validate,
}


def main(
    arguments: Sequence[str] | None = None,
    *,
    command: str | None = None,
    base: Experiment = Experiment(),
) -> None:
    """Runs the command line; a user's mistake is one sentence and status 2.

    Args:
        arguments: What was typed; by default that of the process.
        command: Put before the arguments, for a program that is one command.
        base: Sizes and settings that the flags of training start from.
    """
    given = [command] if command else []
    given += sys.argv[1:] if arguments is None else arguments
    run_program("kvnmt", lambda: _parse(given, base)())


def _parse(arguments: list[str], base: Experiment) -> Any:
    if arguments and not arguments[0].startswith("-") and arguments[0] not in COMMANDS:
        raise unknown_name("command", arguments[0], COMMANDS)
    start = _defaults(arguments, base)
    missing: Any = tyro.MISSING
    defaults = {
        "train": Train(missing, start),
        "translate": Translate(missing, start.search),
        "evaluate": Evaluate(missing, missing, start.search),
        "explore": Explore(missing, missing, start.search),
        "benchmark": Benchmark(),
        "systems": Systems(),
    }
    kinds = []
    for name, kind in COMMANDS.items():
        given = {"default": defaults[name]} if name in defaults else {}
        kinds.append(Annotated[kind, tyro.conf.subcommand(name, **given)])
    union: Any = Union[tuple(kinds)]  # noqa: UP007
    return tyro.cli(union, args=arguments, prog="kvnmt", description=__doc__)


def _defaults(arguments: list[str], base: Experiment) -> Experiment:
    """The config that the flags start from: the run's own, or that of a system."""
    command = arguments[0] if arguments else ""
    resumes = command == "train" and "--resume" in arguments
    if resumes or command in ("translate", "evaluate", "explore"):
        if run := _peek_run(arguments):
            base = directory.load_experiment(Path(run))
            if not any(_peek(arguments, name) for name in ("system", *AXES)):
                return base
    chosen = system(_peek(arguments, "system") or "rnnsearch-star")
    model = chosen.model(base.model)
    for axis, catalogue in AXES.items():
        if name := _peek(arguments, axis):
            model = dataclasses.replace(model, **{axis: catalogue[name].Options()})
    objective = chosen.objective(base.objective)
    return dataclasses.replace(base, model=model, objective=objective)


def _peek_run(arguments: list[str]) -> str | None:
    """The run directory: what looks like one and is not another run named."""
    for before, argument in zip(arguments, arguments[1:]):
        if before in NAMES_RUNS:
            continue
        if (Path(argument) / "config.json").is_file():
            return argument
    return None


def _peek(arguments: list[str], flag: str) -> str | None:
    """The value of a flag, before the flags that depend on it can be known."""
    names = f"--{flag}", f"--{flag.replace('_', '-')}"
    for argument, following in zip(arguments, [*arguments[1:], ""]):
        if argument in names:
            return following
        if argument.startswith(tuple(f"{name}=" for name in names)):
            return argument.split("=", 1)[1]
    return None
