# SPDX-License-Identifier: Apache-2.0
"""Alignment error of attention on hand-aligned text, compared with word aligners.

Claim (Meng et al. 2018, table 2, 900 Chinese-English pairs): RNNsearch* 39.97, R1
37.70, R1 + ATTEOS 36.89, R2 35.70, R2 + ATTEOS 35.39% AER. Here the systems are
trained on small free text and read hand-aligned text of another domain: French to
English on Tatoeba, read on Hansards of the Canadian parliament; Japanese to English on
Tanaka, read on Wikipedia articles on Kyoto. Results: experiments/findings/alignment.md.

The text is not shipped. Get, below one folder, ``tatoeba-fren/{train,valid}.{fr,en}``,
``tanaka-enja/{train,valid}.{ja,en}``, and the hand alignments as
``align/hansards-enfr/dev.{en,fr,align}`` and ``align/kftt-jaen/dev.{ja,en,align}``
(Pharaoh format, ``i?j`` for possible links).

Launch::

    python -m experiments.alignment --data DATA
    python -m experiments.alignment --data DATA --pairs ja-en
    python -m experiments.alignment --data DATA --aligners   # the word aligners alone

Training text is lower-cased and tokenised as the hand-aligned text is; half of its
lines are two to four sentences in a row, since hand-aligned lines are longer. Once all
runs of a pair exist, all of them are evaluated, also joined with the other direction.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

from experiments.harness.results import Figures
from experiments.harness.rows import AnyRow, OtherRow, Row, Train
from experiments.harness.settings import text_digest
from experiments.harness.summaries import Summary
from experiments.harness.table import Options, Table, launch, make_table
from experiments.harness.texts import Text
from experiments.parts.hand_aligned import (
    TASKS,
    align_with_eflomal,
    align_with_thot,
    installed_aligners,
    originals,
    write_gold,
    write_text,
)
from experiments.parts.recipes import (
    greedy_bleu,
    parallel_text,
    small_model,
    with_system,
)
from kvnmt.data.config import DataConfig
from kvnmt.errors import Idle, UserError, check_given, unknown_name
from kvnmt.evaluation import MEASURES, System, Test
from kvnmt.evaluation.alignment import COLUMNS, DIAGONAL, DIAGONAL_NOTE, NOTE
from kvnmt.evaluation.base import Column
from kvnmt.evaluation.inputs import TestFiles, read_test
from kvnmt.fields import at_least
from kvnmt.metrics.links import Gold
from kvnmt.model.config import Dropout
from kvnmt.runs import train as training
from kvnmt.runs.config import Experiment
from kvnmt.runs.directory import load_run
from kvnmt.training.config import TrainingConfig
from kvnmt.training.optimizer import OptimizerConfig

BASELINE = "rnnsearch-star"
MEMORIES = "kvmematt-r2-atteos", "kvmematt-r1-atteos", "kvmematt-r2", "kvmematt-r1"
SYSTEMS = BASELINE, *MEMORIES
BASE = Experiment(
    model=small_model(192, 192, Dropout(embedding=0.1, output=0.3), "unit"),
    data=DataConfig(vocabulary="bpe", joint=True, subwords=8000),
    training=TrainingConfig(batch_tokens=1200, bleu_tokenize="none"),
)
LAST_COLUMNS = Column("data", "pair"), Column("seed", "seed")
# How names end of what a run's rows leave out; the diagonal is of no run.
LEFT_OUT = (", intersection", ", union", ", grow-diag", ", grow-diag-final", DIAGONAL)
PUBLISHED = {  # Meng et al. (2018), table 2
    "rnnsearch-star, scratch": "39.97",
    "kvmematt-r1, warm": "37.70",
    "kvmematt-r1-atteos, warm": "36.89",
    "kvmematt-r2, warm": "35.70",
    "kvmematt-r2-atteos, warm": "35.39",
}


def summary_of(pair: str) -> Summary:
    """The table of a pair in experiments/findings/alignment.md."""
    return Summary(
        name=f"alignment-{pair}",
        folder="alignment",
        columns=[
            Column((pair, "valid_bleu"), "BLEU valid", "{:.2f}"),
            Column((pair, "aer"), "AER", "{:.1%}"),
            Column((pair, "precision"), "precision", "{:.1%}"),
            Column((pair, "recall"), "recall", "{:.1%}"),
            Column((pair, "soft_aer"), "soft AER", "{:.1%}"),
            Column((pair, "gdfa_aer"), "gdfa AER", "{:.1%}"),
        ],
        published=PUBLISHED if pair == "fr-en" else {},
        published_as="published AER, zh-en",
        published_with="1.25 million pairs, 30 000 words; read on 900 pairs"
        if pair == "fr-en"
        else "",
    )


TABLES = tuple(map(summary_of, TASKS))


@dataclass(frozen=True, kw_only=True)
class Alignment(Options):
    """Options of the experiment."""

    data: Path  # folder of the text
    workdir: Path = Path("runs/alignment")  # where text and runs are written
    pairs: tuple[str, ...] = ("fr-en", "ja-en")
    systems: tuple[str, ...] = SYSTEMS
    epochs: Annotated[int, at_least(1)] = 4  # of the baselines, from scratch
    warm_epochs: Annotated[int, at_least(1)] = 1  # of all, from the trained baseline
    aligners: bool = False  # only the word aligners; trains no system


def main(options: Alignment, train: Train = training.run) -> None:
    """Trains what is not yet trained, then prints all pairs in a table.

    Raises:
        UserError: There is no such pair, or no word aligner where these alone are
            asked for, or a row failed.
    """
    rows: list[AnyRow] = []
    aligners = " and ".join(installed_aligners())
    if options.aligners and not aligners:
        raise UserError(
            "no word aligner is installed; put eflomal-align on the PATH, or install "
            "Thot as experiments/findings/captions.md says."
        )
    if options.aligners:
        why = "{0} is of systems, and {1} trains none; leave one of them out."
        idle = Idle(("systems", "epochs", "warm_epochs", "seeds"), why, ("aligners",))
        check_given(options, [idle], Alignment)
    for pair in options.pairs:
        if pair not in TASKS:
            raise unknown_name("pair of languages", pair, TASKS)
        if aligners:
            rows.append(aligners_row(options, pair, aligners))
        for seed in () if options.aligners else options.seeds:
            rows += rows_of(options, pair, seed)
    table = Table(
        title="alignment error",
        columns=[Column("what", "system"), *COLUMNS[1:], *LAST_COLUMNS],
        rows=rows,
        notes=[NOTE, DIAGONAL_NOTE],
        texts=[text_of(options, pair) for pair in options.pairs],
        lines=lambda results: [
            line for result in results for line in result.get("rows", [])
        ],
    )
    make_table(options, table, train)


def text_of(options: Alignment, pair: str) -> Text:
    """What is trained on and what is read."""

    def write() -> None:
        write_text(text_folder(options, pair), options.data, pair, seed=1)
        write_gold(text_folder(options, pair), options.data, pair)

    read = text_digest(originals(options.data, pair))
    return Text(read and f"{pair} {read}", write, name=f"text-{pair}")


def rows_of(options: Alignment, pair: str, seed: int) -> list[AnyRow]:
    """The baseline, all systems from there, the other direction, and all read."""
    trained = [
        configure(options, pair, BASELINE, "scratch", seed),
        *(configure(options, pair, name, "warm", seed) for name in options.systems),
    ]
    turned = configure(options, _turned(pair), BASELINE, "scratch", seed)
    read = OtherRow(
        folder=options.workdir / f"{pair}-read-{seed}",
        system="all",
        work=partial(measure, options, pair, trained, turned),
        after=tuple(row.folder for row in (*trained, turned)),
        tests=gold_files(options, pair),
    )
    return [*trained, turned, read]


def configure(options: Alignment, pair: str, name: str, start: str, seed: int) -> Row:
    """The row of one run."""
    source, target = pair.split("-")
    folder = text_folder(options, pair)
    warm = start == "warm"
    base = replace(
        BASE,
        data=parallel_text(BASE.data, folder, source, target),
        optimizer=OptimizerConfig(learning_rate=5e-4 if warm else 1e-3, decay=0.6),
    )
    trained = _run_folder(options, pair, BASELINE, "scratch", seed)
    epochs = options.warm_epochs if warm else options.epochs
    experiment = with_system(
        base, name, epochs=epochs, seed=seed, warm_start=trained if warm else None
    )
    return Row(
        folder=_run_folder(options, pair, name, start, seed),
        system=name,
        experiment=experiment,
        measure=greedy_bleu,
        data=pair,
    )


def text_folder(options: Alignment, pair: str) -> Path:
    """Where the text of a pair is, the same for both directions."""
    return options.workdir / "text" / "-".join(sorted(pair.split("-")))


def gold_files(options: Alignment, pair: str) -> tuple[Path, ...]:
    """What people aligned, as it is read."""
    folder = text_folder(options, pair)
    return tuple(folder / f"gold.{side}" for side in (*pair.split("-"), "align"))


def measure(options: Alignment, pair: str, rows: Sequence[Row], turned: Row) -> Figures:
    """Alignment error of every row, also joined with the turned run.

    Args:
        options: Say where the text is.
        pair: The languages.
        rows: Runs of this direction.
        turned: The run of the other direction.
    """
    seed, test = turned.experiment.training.seed, test_of(options, pair)
    test.reverse = load_run(turned.folder)
    names = {f"{row.system}, {row.start}": row for row in rows}
    systems = [System(name, list, load_run(row.folder)) for name, row in names.items()]
    (report,) = MEASURES["alignment"](test, systems)
    found, lines = {line["system"]: line for line in report.rows}, []
    for what, line in found.items():
        if what.endswith(LEFT_OUT):
            continue
        line = line | {"what": what, "seed": seed, "data": f"{pair}, in parts"}
        del line["sentences"]
        if what in names:
            row, joined = names[what], found[f"{what}, grow-diag-final-and"]
            line |= {"system": row.system, "start": row.start, "data": pair}
            line["gdfa_aer"] = joined["aer"]
        lines.append(line)
    return {"rows": lines}


def aligners_row(options: Alignment, pair: str, aligners: str) -> OtherRow:
    """The row of all word aligners; those that are installed tell it apart."""
    return OtherRow(
        folder=options.workdir / f"{pair}-aligners",
        system="aligners",
        work=partial(measure_aligners, options, pair),
        tests=gold_files(options, pair),
        config=aligners,
    )


def measure_aligners(options: Alignment, pair: str) -> Figures:
    """Alignment error of the word aligners that are installed, and the diagonal."""
    folder = text_folder(options, pair)
    aligners = align_with_eflomal(folder, pair) | align_with_thot(folder, pair)
    (report,) = MEASURES["alignment"](test_of(options, pair, aligners), [])
    named = [line | {"what": line["system"], "data": pair} for line in report.rows]
    return {"rows": [{k: line[k] for k in line if k != "sentences"} for line in named]}


def test_of(
    options: Alignment, pair: str, aligners: dict[str, list[Gold]] | None = None
) -> Test:
    """The hand-aligned text of a pair."""
    source, reference, gold = gold_files(options, pair)
    files = TestFiles(reference=reference, source=source, gold=gold)
    return replace(read_test(files), aligners=aligners or {})


def _run_folder(
    options: Alignment, pair: str, name: str, start: str, seed: int
) -> Path:
    return options.workdir / f"{pair}-{name}-{start}-{seed}"


def _turned(pair: str) -> str:
    return "-".join(reversed(pair.split("-")))


if __name__ == "__main__":
    launch(Alignment, main, __doc__)
