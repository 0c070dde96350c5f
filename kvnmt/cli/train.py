# SPDX-License-Identifier: Apache-2.0
"""The commands that make a run directory: train and average."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from kvnmt import companions, devices
from kvnmt.cli.flags import FLAT
from kvnmt.cli.own_code import IMPORTED
from kvnmt.cli.program_cache import agree_on_programs
from kvnmt.companions import gathered
from kvnmt.console import say
from kvnmt.errors import UserError, counted
from kvnmt.fields import at_least, check_fields
from kvnmt.metrics.perplexity import perplexity
from kvnmt.runs import train as experiment
from kvnmt.runs.average import average
from kvnmt.runs.config import Experiment
from kvnmt.runs.recipes import Recipe
from kvnmt.training.loop import Result
from kvnmt.training.shared_folder import check_shared

STOPPED = (
    "; stopped early, since as many validations as --training.patience says were no "
    "better: --resume goes on with a greater one"
)


@dataclass(frozen=True)
class Train:
    """Train a system on parallel text.

    The system and the recipe give the defaults of flags; with --resume, the run does.
    """

    run: tyro.conf.Positional[Path]  # run directory to write
    experiment: Annotated[Experiment, FLAT]
    system: str = "rnnsearch-star"  # one of the named systems
    attention: str | None = None  # another attention than the system's, by name
    decoder: str | None = None  # another decoder than the system's
    target_context: str | None = None  # another target context than the system's
    # where the defaults of all other flags come from; default: modern. papers: as in
    # papers of 2015 to 2018. A resumed run starts from its own config.
    recipe: Recipe | None = None
    # a run whose config gives all other defaults, including its text and system
    like: Path | None = None
    resume: bool = False  # go on from the last checkpoint
    verbose: bool = False  # name every array that a warm start copies
    distributed: bool = False  # train with processes of SLURM, Open MPI 4 or a TPU pod
    # HOST:PORT of the first process, instead of --distributed
    coordinator: str | None = None
    processes: int | None = None  # number of processes, with --coordinator
    process: int | None = None  # number of this process, from 0

    def __call__(self) -> None:
        """Trains."""
        if self.distributed or self.coordinator:
            companions.join(self.coordinator, self.processes, self.process)
        elif self.processes is not None or self.process is not None:
            raise UserError(
                "--processes and --process need --coordinator HOST:PORT, where the "
                "first process is found."
            )
        with companions.together():
            agree_on_programs()
            self._check_together()
            result = experiment.run(
                self.experiment, self.run, resume=self.resume, verbose=self.verbose
            )
        if devices.part()[0]:
            return  # one of them says what came of it
        say(summary(result))
        own = (word for path in IMPORTED for word in ("--import", str(path)))
        run = shlex.join([str(self.run), *own])
        if self.experiment.model.reads_source:
            say(f"translate with: kvnmt translate {run} < source > target")
        else:
            say(f"score with: kvnmt score {run} --target text")

    def _check_together(self) -> None:
        """Refuses processes that do not resume the same run."""
        if len({*gathered(str(self.resume))}) > 1:
            raise UserError(
                "some processes have --resume and others have not; give it to all of "
                "them, or to none."
            )
        if self.resume:
            check_shared(self.run)  # who does not see it finds no config either


@dataclass(frozen=True)
class Average:
    """Average checkpoints of one or several runs into a run directory of its own."""

    runs: tyro.conf.Positional[tuple[Path, ...]]  # run directories of one model
    output: Path  # run directory to write
    # so many newest checkpoints of each run, of those that were validated
    last: Annotated[int | None, at_least(1)] = None
    # so many best checkpoints of each run; default: the best one
    best: Annotated[int | None, at_least(1)] = None

    def __call__(self) -> None:
        """Averages."""
        if not self.runs:
            raise UserError("name the run directories whose checkpoints to average.")
        check_fields(self)
        names = average(self.runs, self.output, last=self.last, best=self.best)
        for name in names:
            say(f"  {name}")
        say(f"the mean of {counted(len(names), 'checkpoint')} is in {self.output}")


def summary(result: Result) -> str:
    """What a finished training comes to, in a sentence.

    Args:
        result: Its figures; a language model has a perplexity instead of BLEU.
    """
    if not result.best:
        return (
            f"{result.steps} steps in {result.minutes:.1f} minutes, and no validation "
            "that gave a number: the last checkpoint translates"
        )
    figure = f"perplexity {perplexity(-result.best['valid_loss'], 1):.2f}"
    if "valid_bleu" in result.best:
        figure = f"BLEU {result.best['valid_bleu']:.2f}"
    if "valid_chrf" in result.best:
        figure += f" and chrF {result.best['valid_chrf']:.2f}"
    rate = f"{result.tokens_per_second:,.0f} target tokens/s, "
    return (
        f"best checkpoint: step {result.best_step}, {figure} on the validation text; "
        f"{rate if result.tokens_per_second else ''}{result.minutes:.1f} minutes"
        f"{STOPPED if result.stopped_early else ''}"
    )
