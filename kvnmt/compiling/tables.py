# SPDX-License-Identifier: Apache-2.0
"""The figures of a compiled program as people read them."""

from collections.abc import Sequence
from itertools import groupby

from rich.table import Table

from kvnmt.compiling.figures import Figures
from kvnmt.compiling.largest import Largest
from kvnmt.compiling.program import CompileConfig
from kvnmt.compiling.sections import Kernel, Section
from kvnmt.data.buckets import edge, rows_of

MIB = 2**20
WIDEST = 60  # characters of a column


def title(name: str, figures: Figures, config: CompileConfig) -> str:
    """What was compiled, in a line; a name for the model comes first."""
    axes = f"{figures.devices} x {figures.device}"
    if config.model_axis > 1:
        data = figures.devices // config.model_axis
        axes += f" ({data} data x {config.model_axis} model)"
    sizes = config.model
    text = (
        f"{name} on {axes}, {config.what}: "
        f"sizes {sizes.embedding} / {sizes.encoder} / {sizes.state}, "
        f"vocabulary {config.vocabulary}, batch {config.rows} x {config.source_length}"
    )
    if config.what == "search":
        among = f", {config.candidates} candidates" if config.candidates else ""
        search = config.search
        width = f"{search.nbest} draws" if search.sample else f"beam {search.beam}"
        return f"{text}, {width}{among}"
    return (
        f"{text} x {config.target_length}, {config.dtype}, precision "
        f"{config.precision}, products {config.products}, residuals "
        f"{config.residuals}, remat {config.remat}, {config.accumulate} parts, "
        f"{config.optimizer.name}"
    )


def memory_table(figures: Figures) -> Table:
    """What the program needs on one device, part by part."""
    memory = figures.memory
    table = Table("on one device", "MiB", box=None)
    table.columns[1].justify = "right"
    names = {
        "parameters": memory.parameters,
        "optimiser": memory.optimizer,
        "batch": memory.batch,
        "temporaries": memory.temporaries,
        "output": memory.output,
        "program": memory.program,
        "in all": memory.total,
    }
    for name, size in names.items():
        table.add_row(name, f"{size / MIB:,.1f}")
    if memory.available is not None:
        verdict = "fits" if memory.fits else "does not fit"
        table.add_row(f"available: {verdict}", f"{memory.available / MIB:,.1f}")
    return table


def section_table(figures: Figures) -> Table:
    """What is done in a turn of every loop; neighbours that do the same stand once."""
    table = Table(
        "in a turn of",
        "turns",
        "kernels",
        "products",
        "MiB written",
        "kcycles",
        "collectives",
        box=None,
    )
    for column in table.columns[1:6]:
        column.justify = "right"
    for (name, *cells), alike in groupby(map(_section_row, figures.sections)):
        count = len([*alike])
        table.add_row(f"{name}, {count} of them" if count > 1 else name, *cells)
    return table


def _section_row(section: Section) -> tuple[str, ...]:
    return (
        "  " * section.depth + section.name,
        "?" if section.turns is None else f"{section.turns:,}",
        f"{section.kernels:,}",
        f"{section.products:,}",
        f"{section.written_bytes / MIB:,.1f}",
        _thousands(section.cycles),
        _collectives(section),
    )


def kernel_table(name: str, kernels: Sequence[Kernel]) -> Table:
    """The largest kernels of a section."""
    table = Table(
        f"largest of: {name}",
        "result",
        "MiB written",
        "kcycles",
        "from",
        box=None,
    )
    for column in table.columns[2:4]:
        column.justify = "right"
    for kernel in kernels:
        table.add_row(
            kernel.kind,
            kernel.shape[:WIDEST],
            f"{kernel.written_bytes / MIB:,.2f}",
            _thousands(kernel.cycles),
            kernel.source[-WIDEST:],
        )
    return table


def notes(result: Largest) -> list[str]:
    """What else there is to say, a sentence each."""
    figures, config = result.compiled.figures, result.config
    lines = [
        f"{figures.parameters:,} parameters; traced in {figures.trace_seconds:.1f} s, "
        f"compiled in {figures.compile_seconds:.1f} s"
    ]
    if figures.cycles is not None:
        millions = figures.cycles / 1e6
        lines.append(
            f"{millions:,.1f} million cycles, by the compiler's model of costs"
        )
    inside = [section for section in figures.sections[1:] if section.collectives]
    if figures.devices > 1:
        where = ", ".join(section.name for section in inside)
        lines.append(f"devices meet in loops: {where or 'never'}")
    rows, width = config.rows, edge(config.source_length)
    taken = rows_of(width, rows, config.search.batch_tokens, figures.devices)
    if config.what == "search" and taken < rows:
        lines.append(
            f"kvnmt translate takes {taken} sentences of this length, padded to "
            f"{width}; for {rows} give --search.batch-tokens {rows * width}"
        )
    if result.trials:
        tried = ", ".join(
            f"{trial.rows} {'fits' if trial.fits else 'does not'}"
            for trial in result.trials
        )
        lines.append(f"batches tried: {tried}")
    return lines


def _thousands(number: int | None) -> str:
    return "-" if number is None else f"{number / 1000:,.1f}"


def _collectives(section: Section) -> str:
    if not section.collectives:
        return "-"
    size = sum(each.bytes for each in section.collectives) / MIB
    names = ", ".join(dict.fromkeys(each.name for each in section.collectives))
    return f"{len(section.collectives)} {names}, {size:,.1f} MiB"
