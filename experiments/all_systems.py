# SPDX-License-Identifier: Apache-2.0
"""Every translation system of the catalogue on the same budget, in one table.

Claim: the systems of the five papers, and those they compare with, all train, all
translate, and none falls far behind the baseline it extends without a reason that
its description gives. Each starts from scratch with the same sizes, the same
optimiser and the same number of updates, on the made-up language of the quickstart
(with gold alignments) and, if its text is given, on Multi30k. Speeds are ratios from an
interleaved benchmark; the compiler tells the memory of a step. A system takes two to
four minutes on two cores, with the made-up language. Results:
experiments/findings/catalogue.md.

Launch::

    python -m experiments.all_systems
    python -m experiments.all_systems --data DATA/multi30k/tok
    python -m experiments.all_systems --systems rnnsearch-star memdec --no-speed
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from experiments.harness.results import Figures
from experiments.harness.rows import AnyRow, Measure, OtherRow, Row, Train, Trained
from experiments.harness.summaries import Summary
from experiments.harness.table import Options, Table, launch, make_table
from experiments.harness.texts import Text
from experiments.parts import made_up
from experiments.parts.captions import TEST, Captions
from experiments.parts.recipes import MADE_UP, parallel_text, with_system
from kvnmt.benchmark import report as benchmark
from kvnmt.benchmark.config import BenchmarkConfig
from kvnmt.benchmark.training import TrainingRow
from kvnmt.data import synthetic
from kvnmt.data.config import DataConfig
from kvnmt.data.text import Parallel, read_parallel
from kvnmt.errors import Idle, check_given
from kvnmt.evaluation.base import Column
from kvnmt.fields import at_least
from kvnmt.files import digest
from kvnmt.metrics.bleu import corpus_bleu
from kvnmt.runs import train as training
from kvnmt.runs.config import Experiment
from kvnmt.systems.named import SYSTEMS
from kvnmt.training.optimizer import OptimizerConfig

TRANSLATORS = tuple(
    name for name, system in SYSTEMS.items() if not system.is_language_model
)
MULTI30K = replace(
    MADE_UP,
    model=replace(MADE_UP.model, embedding=144, encoder=144, state=144),
    data=DataConfig(min_count=2),
)
OPTIMIZERS = {
    "adam": OptimizerConfig(learning_rate=2e-3),
    "sgd": OptimizerConfig("sgd", 1.0, clip=5.0),  # as Luong et al. (2015)
}
COLUMNS = (
    Column("system", "system"),
    Column(("synthetic", "parameters"), "parameters", "{:,}"),
    Column(("synthetic", "bleu"), "synthetic BLEU", "{:.2f}"),
    Column(("synthetic", "aer"), "AER", "{:.1%}"),
    Column(("synthetic", "dropped"), "dropped", "{:.2%}"),
    Column(("synthetic", "repeated"), "repeated", "{:.2%}"),
    Column(("synthetic", "invented"), "invented", "{:.2%}"),
    Column(("multi30k", "bleu"), "Multi30k BLEU", "{:.2f}"),
    Column("speed", "speed / RNNsearch*", "{:.2f}"),
    Column("memory", "MiB of a step", "{:.0f}"),
    Column("seed", "seed"),
)
NOTE = "sacreBLEU, tokenize none; parameters on the made-up language"
TABLES = (
    Summary(name="all_systems", columns=COLUMNS[1:-1], by=("system",)),
    Summary(name="all_systems-warmup", columns=COLUMNS[1:-1], by=("system",)),
    Summary(name="all_systems-guided", columns=COLUMNS[1:-1], by=("system",)),
    Summary(name="all_systems-forget", columns=COLUMNS[1:-1], by=("system",)),
    Summary(
        name="all_systems-sgd",
        columns=[Column(("multi30k", "bleu"), "BLEU test2016, 1 epoch", "{:.2f}")],
        by=("system",),
    ),
)


@dataclass(frozen=True, kw_only=True)
class AllSystems(Options):
    """Options of the experiment."""

    data: Path | None = None  # folder of Multi30k's tokenised text
    workdir: Path = Path("runs/catalogue")  # where the runs are written
    systems: tuple[str, ...] = TRANSLATORS
    epochs: Annotated[int, at_least(1)] = 10  # on the made-up language
    pairs: Annotated[int, at_least(1)] = 8000  # made-up pairs
    multi30k_epochs: Annotated[int, at_least(1)] = 1
    optimizer: Literal["adam", "sgd"] = "adam"
    speed: bool = True  # measure speed


def main(options: AllSystems, train: Train = training.run) -> None:
    """Trains what is not yet trained and prints the table."""
    if not options.data:
        why = "{0} is of Multi30k; give {1} too, or leave it out."
        check_given(options, [Idle(("multi30k_epochs",), why, ("data",))], AllSystems)
    corpus = synthetic.make_corpus(1, train=options.pairs)
    rows: list[AnyRow] = [*made_up_rows(options, corpus), *multi30k_rows(options)]
    if options.speed:
        rows.append(speed_row(options))
    table = Table(
        title=f"{options.pairs} made-up pairs, and Multi30k de-en",
        columns=COLUMNS,
        rows=rows,
        notes=[NOTE],
        texts=[
            Text(
                key=str(options.pairs),
                write=lambda: synthetic.write_corpus(
                    corpus, options.workdir / "corpus"
                ),
            )
        ],
        lines=lambda results: joined(options, results),
    )
    make_table(options, table, train)


def joined(options: AllSystems, results: list[Figures]) -> list[Figures]:
    """A line for every system and seed, with both texts, the speed and the memory."""
    costs = {row["system"]: row for r in results for row in r.get("rows", [])}
    found = {(r["data"], r["system"], r.get("seed")): r for r in results}
    return [
        {
            "system": name,
            "synthetic": found.get(("synthetic", name, seed), {}),
            "multi30k": found.get(("multi30k", name, seed), {}),
            "speed": costs.get(name, {}).get("speed"),
            "memory": costs.get(name, {}).get("memory"),
            "seed": seed,
        }
        for name in options.systems
        for seed in options.seeds
    ]


def made_up_rows(options: AllSystems, corpus: synthetic.Corpus) -> list[Row]:
    """The rows on the made-up language."""
    folder = options.workdir / "corpus"
    data = parallel_text(MADE_UP.data, folder, "src", "trg")

    def measure(trained: Trained) -> Figures:
        source, _ = made_up.lines_of(corpus.test)
        hypotheses = trained.run.translate(source)
        return made_up.measure(trained.run, hypotheses, corpus.test)

    base = replace(MADE_UP, data=data)
    tests = made_up.test_files(folder)
    return configure(options, "synthetic", base, options.epochs, measure, tests)


def multi30k_rows(options: AllSystems) -> list[Row]:
    """The rows on Multi30k; none without its text."""
    if not options.data:
        return []
    corpus = Captions(options.data)
    tests = corpus.files(TEST)
    text = Parallel([], []) if options.looks else read_parallel(*tests)

    def measure(trained: Trained) -> Figures:
        hypotheses = trained.run.translate(text.source)
        return {"bleu": corpus_bleu(hypotheses, text.target, tokenize="none").score}

    base = replace(MULTI30K, data=corpus.trained_on(MULTI30K.data))
    epochs = options.multi30k_epochs
    return configure(options, "multi30k", base, epochs, measure, tests)


def configure(
    options: AllSystems,
    text: str,
    base: Experiment,
    epochs: int,
    measure: Measure,
    tests: tuple[Path, ...],
) -> list[Row]:
    """A row for every system on one text; the last two epochs halve the rate."""
    optimizer = replace(
        OPTIMIZERS[options.optimizer], decay=0.5, decay_after=max(epochs - 2, 1)
    )
    base = replace(base, optimizer=optimizer)
    return [
        Row(
            folder=options.workdir / f"{text}-{name}-{seed}",
            system=name,
            experiment=with_system(base, name, epochs=epochs, seed=seed),
            measure=measure,
            data=text,
            tests=tests,
        )
        for name in options.systems
        for seed in options.seeds
    ]


def speed_row(options: AllSystems) -> OtherRow:
    """Training speeds relative to RNNsearch*, measured beside each other.

    And the memory that a step needs at once, in MiB, as the compiler tells it.
    """
    others = [name for name in options.systems if name != "rnnsearch-star"]
    names = ("rnnsearch-star", *others)
    which = "" if {*names} == {*TRANSLATORS} else f"-{digest(str(names).encode())[:6]}"

    def work() -> Figures:
        config = BenchmarkConfig(
            systems=names,
            model=MULTI30K.model,
            batch_size=40,
            vocabulary=5000,
            repeats=5,
            split=False,
        )
        rows = benchmark.measure(config).training
        if "rnnsearch-star" not in options.systems:
            rows = rows[1:]  # it was there for the others to be compared to
        return {"rows": [costs_of(row) for row in rows]}

    return OtherRow(
        folder=options.workdir / f"speed{which}", system="all", work=work, data="speed"
    )


def costs_of(row: TrainingRow) -> Figures:
    """What a system costs; no device is bound to tell the memory."""
    memory = row.memory_bytes and row.memory_bytes / 2**20
    return {"system": row.system, "speed": row.relative.median, "memory": memory}


if __name__ == "__main__":
    launch(AllSystems, main, __doc__)
