# SPDX-License-Identifier: Apache-2.0
"""Compiles a program for devices that need not be there, and reads its figures."""

import re
import time
from typing import Any, NamedTuple

import jax

from kvnmt.compiling import hlo
from kvnmt.compiling.program import CompileConfig, Traced, trace
from kvnmt.compiling.sections import Section, cycles, sections
from kvnmt.compiling.targets import Target
from kvnmt.errors import UserError, first_line, short_of_memory

UNITS = {"B": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
NEEDED = re.compile(r"(?:Used |required [^(]*\()([\d.]+)([BKMGT])")  # in the refusal


class Memory(NamedTuple):
    """Bytes on one device."""

    parameters: int
    optimizer: int  # all else that is kept from step to step
    batch: int  # and other arguments
    temporaries: int
    output: int  # what does not take the place of an argument
    program: int
    available: int | None  # None: not known

    @property
    def total(self) -> int:
        """All that is needed at once."""
        return sum(self[:-1])

    @property
    def fits(self) -> bool | None:
        """Whether the device has as much; None: nobody knows."""
        return None if self.available is None else self.total <= self.available


class Figures(NamedTuple):
    """What is known of a compiled program."""

    device: str  # its kind
    devices: int
    parameters: int  # how many numbers
    memory: Memory
    sections: list[Section]
    cycles: int | None  # of a run; loops at their most turns
    trace_seconds: float
    compile_seconds: float


class Compiled(NamedTuple):
    """A compiled program."""

    figures: Figures
    program: hlo.Program
    text: str  # it, as the compiler writes it


class TooLargeError(UserError):
    """The compiler refuses a program that needs more memory than there is."""

    def __init__(self, config: CompileConfig, target: Target, needed: int | None):
        size = "more is" if needed is None else f"{needed / UNITS['G']:.2f} GiB are"
        there = f"{(target.memory or 0) / UNITS['G']:.2f} GiB"
        super().__init__(
            f"the program does not fit on {target.kind}: {size} needed of {there}; set "
            f"{remedy(config)}."
        )
        self.needed = needed


def remedy(config: CompileConfig) -> str:
    """What makes a program need less memory."""
    if config.what == "search":
        width = "nbest" if config.search.sample else "beam"
        return f"a smaller --search.batch-size or --search.{width}"
    less = "" if config.model.at_once else ", --remat 8"
    return f"a smaller --batch-size, or --accumulate 2{less} or --dtype bfloat16"


def compile_for(config: CompileConfig, target: Target) -> Compiled:
    """Compiles a program and reads its figures.

    Args:
        config: Which program.
        target: What for.

    Raises:
        UserError: The config is not possible.
        TooLargeError: The compiler says that the memory does not suffice.
    """
    start = time.perf_counter()
    traced = trace(config, target.devices)
    lowered = traced.stage.lower()
    middle = time.perf_counter()
    try:
        executable = lowered.compile(compiler_options=target.options or None)
    except jax.errors.JaxRuntimeError as error:
        if short_of_memory(error):
            raise TooLargeError(config, target, _needed(str(error))) from None
        told = f"the compiler of {target.kind} gives up: {first_line(error)}."
        raise UserError(told) from None
    end = time.perf_counter()
    text = executable.as_text()
    program = hlo.read(text)
    parts = sections(program)
    figures = Figures(
        device=target.kind,
        devices=len(target.devices),
        parameters=traced.parameters,
        memory=_memory(traced, executable, target),
        sections=parts,
        cycles=cycles(parts),
        trace_seconds=middle - start,
        compile_seconds=end - middle,
    )
    return Compiled(figures, program, text)


def plain(figures: Figures) -> dict[str, Any]:
    """Figures as JSON holds them."""
    memory = figures.memory
    parts = [
        section._asdict()
        | {"collectives": [each._asdict() for each in section.collectives]}
        for section in figures.sections
    ]
    return figures._asdict() | {
        "memory": memory._asdict() | {"total": memory.total, "fits": memory.fits},
        "sections": parts,
        "trace_seconds": round(figures.trace_seconds, 1),
        "compile_seconds": round(figures.compile_seconds, 1),
    }


def _memory(traced: Traced, executable: jax.stages.Compiled, target: Target) -> Memory:
    sizes: Any = executable.memory_analysis()
    state = traced.parameter_bytes + traced.optimizer_bytes
    return Memory(
        parameters=traced.parameter_bytes,
        optimizer=traced.optimizer_bytes,
        batch=max(sizes.argument_size_in_bytes - state, 0),
        temporaries=sizes.temp_size_in_bytes,
        output=max(sizes.output_size_in_bytes - sizes.alias_size_in_bytes, 0),
        program=sizes.generated_code_size_in_bytes,
        available=target.memory,
    )


def _needed(refusal: str) -> int | None:
    """Bytes that a compiler says are needed, where it refuses."""
    match = NEEDED.search(refusal)
    return match and int(float(match[1]) * UNITS[match[2]])
