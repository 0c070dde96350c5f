# SPDX-License-Identifier: Apache-2.0
"""A measurement as people read it."""

from collections.abc import Sequence
from typing import NamedTuple

from rich.table import Table
from rich.text import Text

from kvnmt.benchmark.against import Against
from kvnmt.benchmark.compare import Change
from kvnmt.benchmark.published import MENG
from kvnmt.benchmark.report import Report
from kvnmt.benchmark.rounds import Spread
from kvnmt.benchmark.training import TrainingRow

QUIET = 1.2  # quartiles of one product on a device that does nothing else
BUSY = 0.5  # load of a machine that does something else


class Shown(NamedTuple):
    """Tables, and what must be known to read them."""

    tables: list[Table]
    notes: list[str]


def of_systems(report: Report, changes: Sequence[Change] = ()) -> Shown:
    """A report, and what became of the figures of an older one."""
    tables, notes = [], _notes_on_peak(report)
    if report.training:
        tables.append(_training(report))
        notes.append(
            f"published: target words/s, {MENG.paper}, {MENG.hardware}, its sizes; not "
            "measured here"
        )
    if report.decoding:
        tables.append(_decoding(report))
    if changes:
        tables.append(_changes(changes))
        notes.append(
            "x: speed over yardstick, now by before; faster or slower: the quartiles "
            "of now and before leave nothing else open"
        )
    return Shown(tables, notes)


def _trained(both: Against) -> str:
    """What the two programs translate with."""
    task = both.task
    if both.models:
        names = " and ".join(f"'{model}'" for model in both.models)
        return f"kvnmt {both.version} and {both.peer}: {names}"
    return (
        f"{task.system} {both.version} and {both.peer}: {task.pairs} pairs, "
        f"{task.epochs} epochs, batch {task.batch_size}, widths {task.embedding} / "
        f"{task.encoder} / {task.state}"
    )


def _translated(both: Against) -> str:
    if not any(row.bleu for row in both.rows):
        return ""
    return f", {both.lines} lines of {both.text} translated"


def of_both(both: Against) -> Shown:
    """Two programs beside each other."""
    task = both.task
    result = Table(
        "",
        "",
        "kvnmt",
        "low .. high",
        both.peer,
        "low .. high",
        "x",
        "low .. high",
        "BLEU",
        title=Text(
            f"{_trained(both)}, {task.threads} threads{_translated(both)}",
            "table.title",
        ),
        box=None,
    )
    for row in both.rows:
        digits = 0 if row.ours.median > 100 else 2
        result.add_row(
            row.what,
            row.unit,
            f"{row.ours.median:,.{digits}f}",
            _range(row.ours, digits),
            f"{row.theirs.median:,.{digits}f}",
            _range(row.theirs, digits),
            f"{row.ratio.median:.2f}",
            _range(row.ratio, 2),
            "{:.2f}, {:.2f}".format(*row.bleu) if row.bleu else "-",
        )
    notes = [
        f"median and quartiles of {both.turns} turns; x: how many times as fast, turn "
        "by turn; each by its own command"
    ]
    if both.load > BUSY:
        notes.append(
            f"the machine was not idle (load {both.load:.1f}): threads that wait for "
            "each other may be slowed many times over; trust no ratio"
        )
    return Shown([result], notes)


def _notes_on_peak(report: Report) -> list[str]:
    seconds = report.peak_seconds
    notes = [
        "low .. high: quartiles of the rounds",
        f"matrix peak: {report.peak / 1e9:,.0f} GFLOP/s of a {report.config.dtype} "
        f"product, precision {report.config.precision}, the best of the rounds",
    ]
    if seconds.high > QUIET * seconds.low:
        notes.append(
            f"the device was not quiet: the same product took {1000 * seconds.low:.1f} "
            f"to {1000 * seconds.high:.1f} ms; trust ratios alone"
        )
    return notes


def _training(report: Report) -> Table:
    config = report.config
    first = report.training[0].system
    result = Table(
        "system",
        "parameters",
        "memory MiB",
        "compile s",
        "step ms",
        "source tokens/s",
        "target tokens/s",
        "low .. high",
        f"x {first}",
        "of the peak",
        "forward / backward / optimizer ms",
        "published",
        title=f"training, {report.devices} x {report.device}, batch "
        f"{config.batch_size} x {config.source_length} x {config.target_length}, "
        f"vocabulary {config.vocabulary}, {config.dtype}, precision "
        f"{config.precision}, products {config.products}, residuals "
        f"{config.residuals}, remat {config.remat}, {config.accumulate} parts",
        box=None,
    )
    for row in report.training:
        published = MENG.words_per_second.get(row.system)
        memory = row.memory_bytes
        result.add_row(
            row.system,
            f"{row.parameters:,}",
            "-" if memory is None else f"{memory / 2**20:,.0f}",
            f"{row.compile_seconds:.1f}",
            f"{1000 * row.step_seconds.median:.1f}",
            f"{row.source_tokens_per_second.median:,.0f}",
            f"{row.target_tokens_per_second.median:,.0f}",
            _range(row.target_tokens_per_second),
            f"{row.relative.median:.2f}",
            f"{row.share:.1%}",
            _split(row),
            f"{published:,.0f}" if published else "-",
        )
    return result


def _decoding(report: Report) -> Table:
    few = report.config.candidates
    among = f", {few} candidates" if few else ""
    result = Table(
        "system",
        "beam",
        "batch",
        "compile s",
        "ms a batch",
        "sentences/s",
        "low .. high",
        "words/s",
        f"x {report.decoding[0].system}",
        title=f"decoding, {report.devices} x {report.device}, untrained, as many "
        f"words as the source has{among}",
        box=None,
    )
    for row in report.decoding:
        result.add_row(
            row.system,
            f"{row.beam}",
            f"{row.batch}",
            f"{row.compile_seconds:.1f}",
            f"{1000 * row.batch_seconds.median:.1f}",
            f"{row.sentences_per_second.median:,.1f}",
            _range(row.sentences_per_second, digits=1),
            f"{row.words_per_second.median:,.0f}",
            f"{row.relative.median:.2f}",
        )
    return result


def _changes(changes: Sequence[Change]) -> Table:
    result = Table("", "before", "now", "", "x", "low .. high", "", box=None)
    for change in changes:
        result.add_row(
            change.what,
            f"{change.before:,.1f}",
            f"{change.now:,.1f}",
            change.unit,
            f"{change.ratio.median:.3f}",
            _range(change.ratio, digits=3),
            change.verdict,
        )
    return result


def _range(figure: Spread, digits: int = 0) -> str:
    return f"{figure.low:,.{digits}f} .. {figure.high:,.{digits}f}"


def _split(row: TrainingRow) -> str:
    if row.split is None:
        return "-"
    parts = (row.split.forward, row.split.backward, row.split.optimizer)
    return " / ".join(f"{1000 * seconds:.1f}" for seconds in parts)
