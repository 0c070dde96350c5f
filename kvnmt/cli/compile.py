# SPDX-License-Identifier: Apache-2.0
"""The command that compiles for devices which need not be there."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import tyro

from kvnmt.cli.flags import FLAT
from kvnmt.compiling import tables, targets
from kvnmt.compiling.figures import compile_for, plain
from kvnmt.compiling.largest import Largest, largest_batch
from kvnmt.compiling.program import CompileConfig, check_what
from kvnmt.compiling.sections import Kernel, largest_kernels
from kvnmt.console import people_console, print_table
from kvnmt.data.outputs import claim, write_lines
from kvnmt.errors import check_given
from kvnmt.fields import at_least, check_fields, check_used
from kvnmt.inference.config import check_asked
from kvnmt.model.choices import check_choices
from kvnmt.runs.checks import check_learnt
from kvnmt.runs.config import Experiment, converter
from kvnmt.runs.idle import check_parts, check_rounds, idle_sizes, idle_steps
from kvnmt.runs.recipes import Recipe
from kvnmt.training.step_options import StepOptions


@dataclass(frozen=True)
class Compile:
    """Compile for devices that need not be there: memory, kernels, collectives."""

    config: Annotated[CompileConfig, FLAT]
    system: str = "rnnsearch-star"  # one of the named systems
    attention: str | None = None  # another attention mechanism, by name
    decoder: str | None = None  # another decoder
    target_context: str | None = None  # another target context
    recipe: Recipe | None = None  # what all other flags start from; default: modern
    # devices and their number: cpu, gpu:h100, gpu:h100:8, tpu:v5e, tpu:v5e:4x4.
    target: Annotated[str, tyro.conf.arg(name="for")] = "cpu"
    largest_batch: bool = False  # compile the largest batch that fits
    # how many kernels of every loop to list: the slowest, or those that write most.
    kernels: Annotated[int, at_least(0)] = 0
    hlo: Path | None = None  # file for the text of the compiled program
    json: bool = False  # print a line of JSON instead of tables

    @staticmethod
    def config_of(experiment: Experiment) -> CompileConfig:
        """What the flags start from: a training as an experiment has it."""
        training = experiment.training
        options = {f.name: getattr(training, f.name) for f in fields(StepOptions)}
        return CompileConfig(
            model=experiment.model,
            objective=experiment.objective,
            batch_size=training.batch_size,
            model_axis=training.model_axis,
            optimizer=experiment.optimizer,
            search=experiment.search,
            **options,
        )

    def check_given(self, start: "Compile") -> None:
        """Refuses flags that do nothing; the others started from ``start``."""
        config, before = self.config, start.config
        check_what(config, before)
        check_used(config, before)
        check_choices(config.model)
        check_asked(config.search, before.search)
        check_rounds(config.model, *(() if self.attention else [before.model]))
        check_given(config, idle_steps(config.model, config.objective), before)
        check_parts(idle_sizes(config.model), config, before)

    def __call__(self) -> None:
        """Compiles."""
        check_fields(self.config)
        check_fields(self)
        if self.hlo:
            claim(self.hlo, ())
        target = targets.target(self.target)
        if self.config.what == "train":  # only now may JAX be used
            check_learnt(self.config.objective, self.config.model)
        with people_console().status("compiling") as status:
            if self.largest_batch:
                result = largest_batch(self.config, target, status.update)
            else:
                result = Largest(self.config, compile_for(self.config, target), ())
        if self.hlo:
            write_lines(self.hlo, result.compiled.text.splitlines())
        if self.json:
            print(json.dumps(self._plain(result)))
        else:
            self._print(result)

    def _plain(self, result: Largest) -> dict[str, Any]:
        """All that is known, as JSON holds it."""
        line = {
            "for": self.target,
            "system": self._name,
            "config": converter().unstructure(result.config),
            **plain(result.compiled.figures),
            "trials": [trial._asdict() for trial in result.trials],
        }
        for section, kernels in zip(line["sections"], self._kernels(result)):
            section["largest"] = [kernel._asdict() for kernel in kernels]
        return line

    def _print(self, result: Largest) -> None:
        """Prints tables."""
        figures = result.compiled.figures
        print(tables.title(self._name, figures, result.config), end="\n\n")
        print_table(tables.memory_table(figures))
        print()
        print_table(tables.section_table(figures), tables.notes(result))
        for section, kernels in zip(figures.sections, self._kernels(result)):
            if kernels:
                print()
                print_table(tables.kernel_table(section.name, kernels))

    @property
    def _name(self) -> str:
        """The system, and the mechanisms that are others than its own."""
        others = (self.attention, self.decoder, self.target_context)
        return " with ".join([self.system, *filter(None, others)])

    def _kernels(self, result: Largest) -> Iterator[list[Kernel]]:
        """For every section the kernels that were asked for."""
        compiled = result.compiled
        for section in compiled.figures.sections:
            yield largest_kernels(compiled.program, section, self.kernels)
