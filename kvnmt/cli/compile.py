# SPDX-License-Identifier: Apache-2.0
"""The command that compiles for devices which need not be there."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from kvnmt.cli.flags import FLAT
from kvnmt.compiling import tables, targets
from kvnmt.compiling.figures import compile_for, plain
from kvnmt.compiling.largest import Largest, largest_batch
from kvnmt.compiling.program import CompileConfig
from kvnmt.console import error_console, print_table
from kvnmt.errors import UserError
from kvnmt.runs.config import converter


@dataclass(frozen=True)
class Compile:
    """Compile for devices that need not be there: memory, kernels, collectives."""

    config: Annotated[CompileConfig, FLAT] = field(default_factory=CompileConfig)
    # cpu, gpu:h100, gpu:h100:8, tpu:v5e, tpu:v5e:4x4: which devices, how many.
    target: Annotated[str, tyro.conf.arg(name="for")] = "cpu"
    largest_batch: bool = False  # compile the largest batch that fits
    hlo: Path | None = None  # file for the text of the compiled program
    json: bool = False  # print a line of JSON instead of tables

    def __call__(self) -> None:
        """Compiles."""
        targets.without_devices()
        target = targets.target(self.target)
        with error_console().status("compiling") as status:
            if self.largest_batch:
                result = largest_batch(self.config, target, status.update)
            else:
                result = Largest(self.config, compile_for(self.config, target), ())
        if self.hlo:
            _write(self.hlo, result.compiled.text)
        figures = result.compiled.figures
        if self.json:
            print(json.dumps(_line(self.target, result)))
            return
        print_table(tables.memory_table(figures, result.config))
        print()
        notes = tables.notes(figures, result.trials)
        print_table(tables.section_table(figures), notes)


def _line(target: str, result: Largest) -> dict[str, object]:
    """All that is known, as JSON holds it."""
    return {
        "for": target,
        "config": converter().unstructure(result.config),
        **plain(result.compiled.figures),
        "trials": [trial._asdict() for trial in result.trials],
    }


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise UserError(f"'{path}' cannot be written: {error.strerror}.") from None
