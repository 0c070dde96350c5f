# SPDX-License-Identifier: Apache-2.0
"""The ``kvnmt`` command: train, translate, evaluate, score, align and more."""

import dataclasses
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Union

import tyro

from kvnmt import attention, decoder, devices, experiment, target_context
from kvnmt.average import average
from kvnmt.cli_data import Prepare, Validate
from kvnmt.cli_evaluate import Evaluate
from kvnmt.cli_explore import Explore
from kvnmt.cli_pairs import Align, Score
from kvnmt.cli_tables import FLAT, Benchmark, Systems
from kvnmt.cli_tfds import PrepareTfds
from kvnmt.cli_translate import Translate
from kvnmt.errors import UserError, check_ranges, run_program, unknown_name
from kvnmt.experiment import Experiment
from kvnmt.progress import error_console
from kvnmt.systems import system

AXES = {
    "attention": attention.CATALOGUE,
    "decoder": decoder.CATALOGUE,
    "target_context": target_context.CATALOGUE,
}
NAMES_RUNS = ("--ensemble", "--training.warm-start", "--training.warm_start")


@dataclass(frozen=True)
class Train:
    """Train a system on parallel text.

    Every flag has the default of the system chosen; with --resume, of the run.
    """

    run: tyro.conf.Positional[Path]  # run directory to write
    experiment: Annotated[Experiment, FLAT]
    system: str = "rnnsearch-star"  # one of the named systems
    attention: str | None = None  # another attention mechanism, by name
    decoder: str | None = None  # another decoder
    target_context: str | None = None  # another target context
    resume: bool = False  # go on from the last checkpoint
    distributed: bool = False  # with other processes, found by SLURM or on a TPU pod
    coordinator: str | None = None  # or: HOST:PORT of the first process
    processes: int | None = None  # how many there are
    process: int | None = None  # which one this is, from 0

    def __call__(self) -> None:
        """Trains."""
        if self.distributed or self.coordinator:
            devices.join(self.coordinator, self.processes, self.process)
        elif self.processes is not None or self.process is not None:
            raise UserError(
                "--processes and --process need --coordinator HOST:PORT, where the "
                "first process is found."
            )
        result = experiment.run(self.experiment, self.run, resume=self.resume)
        error_console().print(
            f"best checkpoint: step {result.best_step}, "
            f"BLEU {result.best.get('valid_bleu', 0):.2f} on the validation text; "
            f"{result.tokens_per_second:,.0f} target tokens/s, "
            f"{result.minutes:.1f} minutes"
            f"{'; stopped early' if result.stopped_early else ''}",
            highlight=False,
        )
        error_console().print(
            f"translate with: kvnmt translate {self.run} < source > target",
            highlight=False,
            soft_wrap=True,
        )


@dataclass(frozen=True)
class Average:
    """Average checkpoints of one or several runs into a run directory of its own."""

    runs: tyro.conf.Positional[tuple[Path, ...]]  # run directories of one model
    output: Path  # run directory to write
    last: int | None = None  # the newest so many of each run; default: the best of each

    def __call__(self) -> None:
        """Averages."""
        if not self.runs:
            raise UserError("name the run directories whose checkpoints to average.")
        check_ranges(self, {"last": (1, None)})
        names = average(self.runs, self.output, last=self.last)
        for name in names:
            error_console().print(f"  {name}", highlight=False, soft_wrap=True)
        error_console().print(
            f"the mean of {len(names)} checkpoints is in {self.output}",
            highlight=False,
            soft_wrap=True,
        )


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
            base = experiment.load_experiment(Path(run))
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
