# SPDX-License-Identifier: Apache-2.0
"""Every translation system of the catalogue on the same budget, in one table.

Claim: the systems of the five papers, and those they compare with, all train, all
translate, and none falls far behind the baseline it extends without a reason that
its description gives. Each starts from scratch with the same sizes, the same
optimiser and the same number of updates, on the made-up language of the quickstart
(with gold alignments) and, if its text is given, on Multi30k. Speeds come from an
interleaved benchmark, as ratios. Results: experiments/README.md.

Launch::

    python -m experiments.catalogue
    python -m experiments.catalogue --data DATA/multi30k/tok
    python -m experiments.catalogue --systems rnnsearch-star memdec --no-speed

Runs that are already finished are reported, not repeated; an interrupted one goes on.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import jax
import tyro
from rich.console import Console
from rich.table import Table

from experiments.quickstart import adequacy, alignment_error
from kvnmt.console import print_table
from kvnmt.data import synthetic
from kvnmt.data.config import DataConfig
from kvnmt.data.text import read_parallel
from kvnmt.errors import run_program
from kvnmt.inference.program import SearchConfig
from kvnmt.inference.translate import translate_lines
from kvnmt.metrics.bleu import corpus_bleu
from kvnmt.model_config import Dropout, ModelConfig
from kvnmt.models import count_parameters
from kvnmt.runs import directory
from kvnmt.runs import train as experiment
from kvnmt.runs.config import Experiment
from kvnmt.runs.directory import Run
from kvnmt.systems import speed as benchmark
from kvnmt.systems.named import SYSTEMS, system
from kvnmt.training.config import TrainingConfig
from kvnmt.training.optimizer import OptimizerConfig

TRANSLATORS = tuple(n for n, one in SYSTEMS.items() if not one.is_language_model)
# Every system fits these: annotations as wide as states, states in 2, 3 and 4 parts.
SIZES = {
    corpus: ModelConfig(
        embedding=embedding,
        encoder=units,
        state=units,
        merge="sum",
        initializer="unit",
        dropout=Dropout(output=0.2),
    )
    for corpus, embedding, units in (("synthetic", 64, 120), ("multi30k", 144, 144))
}
OPTIMIZERS = {
    "adam": OptimizerConfig(learning_rate=2e-3),
    "sgd": OptimizerConfig("sgd", 1.0, clip=5.0),  # as Luong et al. (2015)
}
SEARCH = SearchConfig(beam=5)


@dataclass(frozen=True)
class Catalogue:
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


def configure(options: Catalogue, name: str, corpus: str) -> Experiment:
    """The experiment of one system on one corpus, ``synthetic`` or ``multi30k``."""
    made = corpus == "synthetic"
    epochs = options.epochs if made else options.multi30k_epochs
    text = options.folder / "corpus" if made or not options.data else options.data
    sides = ("src", "trg") if made else ("de", "en")
    return Experiment(
        model=system(name).model(SIZES[corpus]),
        objective=system(name).objective(),
        data=DataConfig(
            source=text / f"train.{sides[0]}",
            target=text / f"train.{sides[1]}",
            valid_source=text / f"valid.{sides[0]}",
            valid_target=text / f"valid.{sides[1]}",
            min_count=1 if made else 2,
        ),
        optimizer=replace(
            OPTIMIZERS[options.optimizer], decay=0.5, decay_after=max(epochs - 2, 1)
        ),
        training=TrainingConfig(
            epochs=epochs,
            batch_size=40,
            shapes=4,
            seed=options.seed,
            metric="loss",
            bleu_tokenize="none",
        ),
        search=SEARCH,
    )


def main(options: Catalogue) -> None:
    """Trains what is not yet trained and prints the table."""
    console = Console()
    for name in options.systems:
        system(name)  # an unknown name is an error before any work
    made = synthetic.make_corpus(options.seed, train=options.pairs)
    synthetic.write_corpus(made, options.folder / "corpus")
    corpora = ["synthetic"] + (["multi30k"] if options.data else [])
    for corpus in corpora:
        for name in options.systems:
            folder = options.folder / f"{corpus}-{name}-{options.seed}"
            if not (folder / "result.json").exists():
                console.rule(folder.name)
                _train(options, name, corpus, made.test, console)
                # Thirty systems' programs are more mappings than a process may hold.
                jax.clear_caches()
    print_table(_table(options, corpora, _speeds(options)))


def _train(
    options: Catalogue,
    name: str,
    corpus: str,
    test: tuple[synthetic.Pair, ...],
    console: Console,
) -> None:
    folder = options.folder / f"{corpus}-{name}-{options.seed}"
    config = configure(options, name, corpus)
    resume = (folder / "config.json").exists()
    trained = experiment.run(config, folder, resume=resume, console=console)
    run = directory.load_run(folder)
    result = {"system": name, "parameters": count_parameters(run.params)}
    result |= {"steps": trained.steps, "valid_loss": trained.best["valid_loss"]}
    if corpus == "synthetic":
        source = [" ".join(pair.source) for pair in test]
        references = [" ".join(pair.target) for pair in test]
        if _aligns(run):
            result["aer"] = alignment_error(run, test)
    else:
        assert options.data is not None
        text = read_parallel(options.data / "test2016.de", options.data / "test2016.en")
        source, references = text.source, text.target
    found = translate_lines(run, source, SEARCH)
    result["bleu"] = corpus_bleu(found, references, tokenize="none").score
    if corpus == "synthetic":
        coverage = adequacy(found, test)
        result |= {"dropped": coverage.under, "repeated": coverage.over}
    (folder / "result.json").write_text(json.dumps(result, indent=2) + "\n")


def _aligns(run: Run) -> bool:
    return run.experiment.model.attention != system("rnnencdec").choices["attention"]


def _speeds(options: Catalogue) -> dict[str, float]:
    """Training speed relative to RNNsearch*, measured once per folder."""
    path = options.folder / "speed.json"
    known: dict[str, float] = json.loads(path.read_text()) if path.exists() else {}
    missing = [n for n in options.systems if n not in known]
    if options.speed and missing:
        others = tuple(n for n in missing if n != "rnnsearch-star")
        config = benchmark.BenchmarkConfig(
            systems=("rnnsearch-star", *others),
            model=SIZES["multi30k"],
            batch_size=40,
            vocabulary=5000,
            repeats=5,
        )
        known |= {row.system: row.relative for row in benchmark.measure(config)}
        path.write_text(json.dumps(known, indent=2) + "\n")
    return known


def _table(options: Catalogue, corpora: list[str], speeds: dict[str, float]) -> Table:
    table = Table(
        *("system", "parameters", "synthetic BLEU", "AER %", "dropped %"),
        *("repeated %", "Multi30k BLEU", "speed / RNNsearch*"),
        title=f"{options.epochs} epochs of {options.pairs} made-up pairs; "
        f"{options.multi30k_epochs} of Multi30k de-en; seed {options.seed}",
        caption="beam 5, sacreBLEU, tokenize none; parameters on the made-up language",
        box=None,
    )
    for name in options.systems:
        rows = {}
        for corpus in corpora:
            path = options.folder / f"{corpus}-{name}-{options.seed}" / "result.json"
            rows[corpus] = json.loads(path.read_text())
        made, real = rows["synthetic"], rows.get("multi30k")
        table.add_row(
            *(name, f"{made['parameters']:,}", f"{made['bleu']:.2f}"),
            f"{100 * made['aer']:.1f}" if "aer" in made else "-",
            *(
                f"{100 * made[kind]:.2f}" if kind in made else "-"
                for kind in ("dropped", "repeated")
            ),
            f"{real['bleu']:.2f}" if real else "-",
            f"{speeds[name]:.2f}" if name in speeds else "-",
        )
    return table


if __name__ == "__main__":
    run_program("catalogue", lambda: main(tyro.cli(Catalogue, description=__doc__)))
