# SPDX-License-Identifier: Apache-2.0
"""A measurement as people read it."""

from collections.abc import Iterator, Sequence

from rich.table import Table

from kvnmt.benchmark.compare import Change
from kvnmt.benchmark.published import MENG
from kvnmt.benchmark.report import Report
from kvnmt.benchmark.rounds import Spread
from kvnmt.benchmark.training import TrainingRow


def tables(report: Report, changes: Sequence[Change] = ()) -> Iterator[Table]:
    """The tables of a report, and what became of the figures of an older one."""
    if report.training:
        yield _training(report)
    if report.decoding:
        yield _decoding(report)
    if changes:
        yield _changes(changes)


def notes(report: Report, changes: Sequence[Change] = ()) -> list[str]:
    """What must be known to read the tables."""
    lines = ["low .. high: quartiles of the rounds; every round runs everything once"]
    if report.peak and report.training:
        lines.append(
            f"matrix peak: {report.peak / 1e9:,.0f} GFLOP/s of a {report.config.dtype} "
            "product, the best of the rounds"
        )
        lines.append(
            f"published: target words/s, {MENG.paper}, {MENG.hardware}, its sizes; "
            "not measured here"
        )
    if changes:
        lines.append(
            "x: speed over matrix peak, now by before; faster or slower: the quartiles "
            "of now and before leave nothing else open"
        )
    return lines


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
        f"vocabulary {config.vocabulary}, {config.dtype}, remat {config.remat}, "
        f"{config.accumulate} parts",
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
        "words as the source has",
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
