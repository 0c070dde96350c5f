# SPDX-License-Identifier: Apache-2.0
"""The command that compiles for devices which need not be there."""

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from kvnmt.cli.flags import FLAT
from kvnmt.compiling import targets
from kvnmt.compiling.figures import compile_for, plain
from kvnmt.compiling.program import CompileConfig
from kvnmt.console import error_console


@dataclass(frozen=True)
class Compile:
    """Compile for devices that need not be there: memory, kernels, collectives."""

    config: Annotated[CompileConfig, FLAT] = field(default_factory=CompileConfig)
    # cpu, gpu:h100, gpu:h100:8, tpu:v5e, tpu:v5e:4x4.
    target: Annotated[str, tyro.conf.arg(name="for")] = "cpu"
    hlo: Path | None = None  # file for the text of the compiled program
    json: bool = False  # print JSON instead of tables

    def __call__(self) -> None:
        """Compiles."""
        targets.without_devices()
        target = targets.target(self.target)
        with error_console().status("compiling"):
            compiled = compile_for(self.config, target)
        if self.hlo:
            self.hlo.write_text(compiled.text)
        print(json.dumps({"for": self.target} | plain(compiled.figures)))
