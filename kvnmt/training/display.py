# SPDX-License-Identifier: Apache-2.0
"""What people see of a training: a bar while it runs, a line for every validation."""

from collections.abc import Mapping

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from kvnmt.console import is_watched
from kvnmt.metrics.perplexity import perplexity


def bar(console: Console, epoch: int, done: int, total: int) -> Progress:
    """The steps of an epoch, shown while it is open, if somebody looks.

    Its one task has the field ``note``, which stands beside the bar.
    """
    steps = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not is_watched(console),
    )
    steps.add_task(f"epoch {epoch}", total=total, completed=done, note="")
    return steps


def running(loss: float, skipped: int, padding: float, rate: float) -> str:
    """What stands beside the bar."""
    return (
        f"loss {loss:.3f}  {_skipped(skipped)}{100 * padding:.0f}% padding  "
        f"{_speed(rate)}"
    )


def validated(record: Mapping[str, float], better: bool) -> str:
    """The line of a validation."""
    quality = f"perplexity {perplexity(-record['valid_loss'], 1):.1f}"
    if "valid_bleu" in record:
        quality = f"BLEU {record['valid_bleu']:5.2f}"
    if "valid_chrf" in record:
        quality += f"  chrF {record['valid_chrf']:5.2f}"
    return (
        f"epoch {record['epoch']:5.4g}  step {record['step']:6d}  "
        f"train loss {record['train_loss']:.3f}  "
        f"valid loss {record['valid_loss']:.3f}  {quality}  "
        f"{_skipped(int(record['skipped']))}"
        f"rate {record['learning_rate']:.2g}  "
        f"{_speed(record['tokens_per_second'])}"
        f"{'  best' if better else ''}"
    )


def _skipped(steps: int) -> str:
    return f"{steps} steps skipped  " if steps else ""


def _speed(rate: float) -> str:
    """Steps that compiled their program are not timed; so there may be no rate yet."""
    return f"{rate:,.0f} target tokens/s" if rate else "compiling"
