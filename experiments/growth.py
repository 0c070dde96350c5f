# SPDX-License-Identifier: Apache-2.0
"""How the speed of training grows with batch, length, vocabulary and rounds.

Claim: besides its arithmetic, a step has a cost that is paid once for each position, so
speed rises with the batch until the device is full. A memory that is rewritten costs
more if the source is longer. Each further round costs as much as the first.

Setting: 256 units everywhere, annotations summed, batches of 80 pairs of 25 and 25
tokens, 85% of them real, 10 000 words on each side; one of these is changed at a time.
The figures are medians of `kvnmt benchmark`, which measures both systems in
alternation. Results: experiments/findings/speed.md.

Launch, on an idle device::

    python -m experiments.growth
    python -m experiments.growth --axes batch length --picture growth.png
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from experiments.harness.results import Figures
from experiments.harness.rows import OtherRow
from experiments.harness.summaries import Summary
from experiments.harness.table import Options, Table, launch, make_table
from kvnmt.benchmark.config import BenchmarkConfig
from kvnmt.benchmark.report import measure
from kvnmt.decoder import conditional
from kvnmt.errors import UserError, unknown_name
from kvnmt.evaluation.base import Column
from kvnmt.model.config import ModelConfig
from kvnmt.pictures.charts import growth_chart
from kvnmt.pictures.drawing import kind_of
from kvnmt.systems.named import SYSTEMS

BASELINE, MEMORY = "rnnsearch-star", "kvmematt-r2"
BASE = BenchmarkConfig(
    systems=(BASELINE, MEMORY),
    model=ModelConfig(merge="sum"),
    split=False,
    repeats=5,
)


def with_rounds(config: BenchmarkConfig, rounds: int) -> BenchmarkConfig:
    """With so many rounds of the memory."""
    name = f"kvmematt-r{rounds}"
    if name not in SYSTEMS:  # no paper has one of so many
        changed = {"decoder": conditional.Options(rounds=rounds)}
        like = SYSTEMS[MEMORY]
        SYSTEMS[name] = replace(like, choices={**like.choices, **changed})
    return replace(config, systems=(BASELINE, name))


Change = Callable[[BenchmarkConfig, int], BenchmarkConfig]
AXES: dict[str, tuple[tuple[int, ...], Change]] = {
    "batch": (
        (16, 32, 64, 128, 256, 512, 1024),
        lambda config, n: replace(config, batch_size=n),
    ),
    "length": (
        (10, 25, 50, 100),
        lambda config, n: replace(config, source_length=n, target_length=n),
    ),
    "vocabulary": (
        (1000, 5000, 10000, 20000, 50000),
        lambda config, n: replace(config, vocabulary=n),
    ),
    "rounds": ((1, 2, 3, 4), with_rounds),
}
COLUMNS = tuple(
    Column((kind, key), f"{name}: {heading}", form)
    for kind, name in (("baseline", "RNNsearch*"), ("memory", "KVMemAtt-R2"))
    for key, heading, form in (
        ("target_tokens_per_second", "target tokens/s", "{:,.0f}"),
        ("memory_mib", "MiB", "{:,.0f}"),
    )
)
TABLES = (
    Summary(
        name="growth",
        columns=COLUMNS,
        by=("axis", "value"),
        differences={
            "rounds, 1": "R1",
            "rounds, 3": "R3",
            "rounds, 4": "R4, in no paper",
        },
    ),
)


@dataclass(frozen=True, kw_only=True)
class Growth(Options):
    """Options of the experiment."""

    workdir: Path = Path("runs/growth")  # where the results are written
    axes: tuple[str, ...] = tuple(AXES)  # what is changed
    picture: Path | None = None  # PNG to draw


def main(options: Growth) -> None:
    """Measures what is not yet measured, prints the table and draws.

    Raises:
        UserError: There is no such axis, or seeds are given, which speeds have not.
    """
    if options.seeds != Growth().seeds:
        raise UserError("--seeds is of trainings, and here are speeds; leave it out.")
    for name in options.axes:
        if name not in AXES:
            raise unknown_name("axis", name, AXES)
    rows = [
        OtherRow(
            folder=options.workdir / f"{axis}-{value}",
            system=f"{axis} {value}",
            work=partial(point, axis, value),
        )
        for axis in options.axes
        for value in AXES[axis][0]
    ]
    columns = Column("system", "changed"), *COLUMNS
    table = Table("training speed", columns, rows, lines=_lines)
    if options.picture:
        kind_of(options.picture)  # complains before anything is measured
    results = make_table(options, table)
    if options.picture and results:
        growth_chart(curves(results), options.picture)


def point(axis: str, value: int) -> Figures:
    """Both systems at one value of an axis."""
    report = measure(AXES[axis][1](BASE, value))
    rows = [
        {
            "data": kind,
            "system": row.system,
            "target_tokens_per_second": row.target_tokens_per_second.median,
            "share": row.share,
            "relative": row.relative.median,
            "memory_mib": row.memory_bytes / 2**20 if row.memory_bytes else None,
        }
        for kind, row in zip(("baseline", "memory"), report.training)
    ]
    return {"axis": axis, "value": value, "peak": report.peak, "rows": rows}


def curves(results: list[Figures]) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """For every axis and kind of system, speed by value."""
    panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for result, row in _points(results):
        lines = panels.setdefault(result["axis"], {})
        name = "RNNsearch*" if row["data"] == "baseline" else "KVMemAtt"
        place = (result["value"], row["target_tokens_per_second"])
        lines.setdefault(name, []).append(place)
    return panels


def _lines(results: Sequence[Figures]) -> list[Figures]:
    """A line for each value, with the speed of both systems."""
    return [
        {"system": f"{result['axis']} {result['value']}"}
        | {row["data"]: row for row in result["rows"]}
        for result in results
    ]


def _points(results: list[Figures]) -> Iterator[tuple[Figures, Figures]]:
    return ((result, row) for result in results for row in result["rows"])


if __name__ == "__main__":
    launch(Growth, main, __doc__)
