# SPDX-License-Identifier: Apache-2.0
"""Every translation system of the catalogue on the same budget, in one table.

Claim: the systems of the five papers, and those they compare with, all train, all
translate, and none falls far behind the baseline it extends without a reason that
its description gives. Each starts from scratch with the same sizes, the same
optimiser and the same number of updates, on the made-up language of the quickstart
(with gold alignments) and, if its text is given, on Multi30k. Speeds come from an
interleaved benchmark, as ratios. Results: experiments/README.md.

Launch::

    python -m experiments.all_systems
    python -m experiments.all_systems --data DATA/multi30k/tok
    python -m experiments.all_systems --systems rnnsearch-star memdec --no-speed

Runs that are already finished are reported, not repeated; an interrupted one goes on.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import tyro

from experiments import made_up
from experiments.table import (
    Figures,
    Measure,
    Row,
    Train,
    bleu,
    complete,
    parallel_text,
    show,
    small_model,
    with_system,
)
from kvnmt.benchmark import report as benchmark
from kvnmt.benchmark.config import BenchmarkConfig
from kvnmt.data import synthetic
from kvnmt.data.config import DataConfig
from kvnmt.data.text import read_parallel
from kvnmt.errors import run_program
from kvnmt.evaluation.base import Column
from kvnmt.files import write_json
from kvnmt.inference.program import SearchConfig
from kvnmt.inference.translate import translate_lines
from kvnmt.model_config import Dropout
from kvnmt.runs import train as training
from kvnmt.runs.config import Experiment
from kvnmt.runs.directory import Run
from kvnmt.systems.named import SYSTEMS
from kvnmt.training.config import TrainingConfig
from kvnmt.training.loop import Result
from kvnmt.training.optimizer import OptimizerConfig

TRANSLATORS = tuple(
    name for name, system in SYSTEMS.items() if not system.is_language_model
)
MADE_UP = Experiment(
    # All systems fit these: annotations as wide as states, states in 2, 3 and 4 parts.
    model=small_model(64, 120, Dropout(output=0.2), "unit"),
    data=DataConfig(min_count=1),
    training=TrainingConfig(
        batch_size=40, shapes=4, metric="loss", bleu_tokenize="none"
    ),
    search=SearchConfig(beam=5),
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
    Column(("multi30k", "bleu"), "Multi30k BLEU", "{:.2f}"),
    Column("speed", "speed / RNNsearch*", "{:.2f}"),
)
NOTE = "beam 5, sacreBLEU, tokenize none; parameters on the made-up language"


@dataclass(frozen=True)
class AllSystems:
    """Options of the experiment."""

    data: Path | None = None  # folder of Multi30k's tokenised text
    folder: Path = Path("runs/catalogue")  # where the runs are written
    systems: tuple[str, ...] = TRANSLATORS
    epochs: int = 10  # on the made-up language
    pairs: int = 8000  # of it
    multi30k_epochs: int = 1
    optimizer: Literal["adam", "sgd"] = "adam"
    speed: bool = True  # measure it
    seed: int = 1


def main(options: AllSystems, train: Train = training.run) -> None:
    """Trains what is not yet trained and prints the table."""
    corpus = synthetic.make_corpus(options.seed, train=options.pairs)
    rows = made_up_rows(options, corpus), multi30k_rows(options)
    synthetic.write_corpus(corpus, options.folder / "corpus")
    on_made_up, on_multi30k = (complete(of_text, train) for of_text in rows)
    speeds = measure_speeds(options)
    results = [
        {
            "system": name,
            "synthetic": on_made_up[i],
            "multi30k": on_multi30k[i] if on_multi30k else {},
            "speed": speeds.get(name),
        }
        for i, name in enumerate(options.systems)
    ]
    title = (
        f"{options.epochs} epochs of {options.pairs} made-up pairs; "
        f"{options.multi30k_epochs} of Multi30k de-en; seed {options.seed}"
    )
    show(title, COLUMNS, results, [NOTE])


def made_up_rows(options: AllSystems, corpus: synthetic.Corpus) -> list[Row]:
    """The rows on the made-up language."""
    folder = options.folder / "corpus"
    data = parallel_text(MADE_UP.data, folder, "src", "trg")

    def measure(run: Run, result: Result) -> Figures:
        source, _ = made_up.lines_of(corpus.test)
        hypotheses = translate_lines(run, source, run.experiment.search)
        return made_up.measure(run, hypotheses, corpus.test)

    base = replace(MADE_UP, data=data)
    return configure(options, "synthetic", base, options.epochs, measure)


def multi30k_rows(options: AllSystems) -> list[Row]:
    """The rows on Multi30k; none without its text."""
    if not options.data:
        return []
    text = read_parallel(options.data / "test2016.de", options.data / "test2016.en")
    data = parallel_text(MULTI30K.data, options.data, "de", "en")

    def measure(run: Run, result: Result) -> Figures:
        return {"bleu": bleu(run, text)}

    base = replace(MULTI30K, data=data)
    return configure(options, "multi30k", base, options.multi30k_epochs, measure)


def configure(
    options: AllSystems, text: str, base: Experiment, epochs: int, measure: Measure
) -> list[Row]:
    """A row for every system on one text; the last two epochs halve the rate."""
    optimizer = replace(
        OPTIMIZERS[options.optimizer], decay=0.5, decay_after=max(epochs - 2, 1)
    )
    base = replace(base, optimizer=optimizer)
    return [
        Row(
            folder=options.folder / f"{text}-{name}-{options.seed}",
            system=name,
            experiment=with_system(base, name, epochs=epochs, seed=options.seed),
            measure=measure,
        )
        for name in options.systems
    ]


def measure_speeds(options: AllSystems) -> dict[str, float]:
    """Training speed relative to RNNsearch*, measured once per folder."""
    path = options.folder / "speed.json"
    speeds: dict[str, float] = json.loads(path.read_text()) if path.exists() else {}
    missing = [name for name in options.systems if name not in speeds]
    if options.speed and missing:
        others = tuple(name for name in missing if name != "rnnsearch-star")
        config = BenchmarkConfig(
            systems=("rnnsearch-star", *others),
            model=MULTI30K.model,
            batch_size=40,
            vocabulary=5000,
            repeats=5,
            split=False,
        )
        rows = benchmark.measure(config).training
        speeds |= {row.system: row.relative.median for row in rows}
        write_json(path, speeds)
    return speeds


if __name__ == "__main__":
    run_program("all_systems", lambda: main(tyro.cli(AllSystems, description=__doc__)))
