# SPDX-License-Identifier: Apache-2.0
"""Alignment error of attention on text that people aligned, beside a word aligner's.

Claim (Meng et al. 2018, table 4, 900 Chinese-English pairs): RNNsearch* 39.97, R1
37.70, R1 + ATTEOS 36.89, R2 35.70, R2 + ATTEOS 35.39% AER. Here the systems are
trained on small free text and read hand-aligned text of another domain: French to
English on Tatoeba, read on Hansards of the Canadian parliament; Japanese to English on
Tanaka, read on Wikipedia articles on Kyoto. Results: experiments/README.md.

The text is not shipped. Get, below one folder, ``tatoeba-fren/{train,valid}.{fr,en}``,
``tanaka-enja/{train,valid}.{ja,en}``, and the hand alignments as
``align/hansards-enfr/dev.{en,fr,align}`` and ``align/kftt-jaen/dev.{ja,en,align}``
(Pharaoh format, ``i?j`` for possible links).

Launch::

    python -m experiments.alignment --data DATA
    python -m experiments.alignment --data DATA --pairs ja-en

Training text is lower-cased and tokenised as the hand-aligned text is; half of its
lines are two to four sentences in a row, since the hand-aligned ones are longer than
any sentence of the training text. Runs that are already finished are only read.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import tyro

from experiments.hand_aligned import align_with_eflomal, write_gold, write_text
from experiments.table import (
    Figures,
    Row,
    Train,
    complete,
    parallel_text,
    small_model,
    with_system,
)
from kvnmt.console import print_table
from kvnmt.data.config import DataConfig
from kvnmt.data.text import read_lines
from kvnmt.errors import run_program
from kvnmt.evaluation import MEASURES, Report, System, Test, table
from kvnmt.metrics.links import Gold, read_gold
from kvnmt.model_config import Dropout
from kvnmt.runs import train as training
from kvnmt.runs.config import Experiment
from kvnmt.runs.directory import Run, load_run
from kvnmt.training.config import TrainingConfig
from kvnmt.training.loop import Result
from kvnmt.training.optimizer import OptimizerConfig

BASELINE = "rnnsearch-star"
SYSTEMS = (
    BASELINE,
    "kvmematt-r2-atteos",
    "kvmematt-r1-atteos",
    "kvmematt-r2",
    "kvmematt-r1",
)
BASE = Experiment(
    model=small_model(192, 192, Dropout(embedding=0.1, output=0.3), "unit"),
    data=DataConfig(vocabulary="bpe", joint=True, subwords=8000),
    training=TrainingConfig(batch_tokens=1200, bleu_tokenize="none"),
)
LEFT_OUT = (", intersection", ", union", ", grow-diag", ", grow-diag-final")


@dataclass(frozen=True)
class Alignment:
    """Options of the experiment."""

    data: Path  # folder of the text
    folder: Path = Path("runs/alignment")  # where text and runs are written
    pairs: tuple[str, ...] = ("fr-en", "ja-en")
    systems: tuple[str, ...] = SYSTEMS
    epochs: int = 4  # of the baselines, from scratch
    warm_epochs: int = 1  # of all systems, from the trained baseline
    seed: int = 1


def main(options: Alignment, train: Train = training.run) -> None:
    """Trains what is not yet trained, then prints a table for each pair."""
    for pair in options.pairs:
        folder = text_folder(options, pair)
        write_text(folder, options.data, pair, options.seed)
        write_gold(folder, options.data, pair)
        rows = rows_of(options, pair)
        turned = configure(options, _turned(pair), BASELINE, "scratch")
        complete([*rows, turned], train)
        aligners = align_with_eflomal(folder, pair)
        report = measure(folder, pair, rows, turned, aligners)
        print_table(table(report), report.notes)


def rows_of(options: Alignment, pair: str) -> list[Row]:
    """The rows of a pair: the baseline, and all systems from there."""
    warm = [configure(options, pair, name, "warm") for name in options.systems]
    return [configure(options, pair, BASELINE, "scratch"), *warm]


def configure(options: Alignment, pair: str, name: str, start: str) -> Row:
    """The row of one run."""
    source, target = pair.split("-")
    folder = text_folder(options, pair)
    warm = start == "warm"
    base = replace(
        BASE,
        data=parallel_text(BASE.data, folder, source, target),
        optimizer=OptimizerConfig(learning_rate=5e-4 if warm else 1e-3, decay=0.6),
    )
    experiment = with_system(
        base,
        name,
        epochs=options.warm_epochs if warm else options.epochs,
        seed=options.seed,
        warm_start=_run_folder(options, pair, BASELINE, "scratch") if warm else None,
    )
    return Row(_run_folder(options, pair, name, start), name, experiment, _nothing)


def text_folder(options: Alignment, pair: str) -> Path:
    """Where the text of a pair is, the same for both directions."""
    return options.folder / "text" / "-".join(sorted(pair.split("-")))


def measure(
    folder: Path,
    pair: str,
    rows: Sequence[Row],
    turned: Row,
    aligners: dict[str, list[Gold]],
) -> Report:
    """Alignment error of every row and aligner, also joined with the turned run.

    Args:
        folder: Where the text of the pair is.
        pair: The languages.
        rows: Runs of this direction.
        turned: The run of the other direction.
        aligners: Alignments that other programs made.
    """
    source, reference = (
        read_lines(folder / f"gold.{side}") for side in pair.split("-")
    )
    gold = read_gold(folder / "gold.align", len(source))
    test = Test(reference, source, gold=gold, aligners=aligners)
    test.reverse = load_run(turned.folder)
    systems = [
        System(f"{row.system}, {row.start}", list, load_run(row.folder)) for row in rows
    ]
    report = MEASURES["alignment"](test, systems)
    assert isinstance(report, Report)
    kept = [row for row in report.rows if not row["system"].endswith(LEFT_OUT)]
    return report._replace(rows=kept)


def _run_folder(options: Alignment, pair: str, name: str, start: str) -> Path:
    return options.folder / f"{pair}-{name}-{start}-{options.seed}"


def _turned(pair: str) -> str:
    return "-".join(reversed(pair.split("-")))


def _nothing(run: Run, result: Result) -> Figures:
    """The rows are measured together, once all are trained."""
    return {}


if __name__ == "__main__":
    run_program("alignment", lambda: main(tyro.cli(Alignment, description=__doc__)))
