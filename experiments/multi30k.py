# SPDX-License-Identifier: Apache-2.0
"""Memory attention against its baseline on Multi30k image captions.

Claim (Meng et al. 2018, table 1, there on 1.25 million Chinese-English pairs):
KVMemAtt-R1 improves on RNNsearch*, R2 on R1, ATTEOS on each; the memory models start
from the trained baseline. Here the same systems on 29 000 short captions, started
both ways; the baseline trained on from itself is the control. Results and published
figures: experiments/README.md.

The corpus is not shipped: get the tokenised text of "task 1" of Multi30k (Elliott et
al. 2016), files ``train.de``, ``train.en``, ``valid.de``, ``valid.en``,
``test2016.de``, ``test2016.en``.

Launch::

    python -m experiments.multi30k --data DATA/multi30k/tok
    python -m experiments.multi30k --data DATA/multi30k/tok --source en --target fr
    python -m experiments.multi30k --data DATA/multi30k/tok --systems kvmematt-r2 \
        --starts warm        # needs the baseline's run in the same folder

Runs that are already finished are reported, not repeated; an interrupted one goes on.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro
from rich.console import Console
from rich.table import Table

from kvnmt.console import print_table
from kvnmt.data.config import DataConfig
from kvnmt.data.text import read_parallel
from kvnmt.errors import run_program
from kvnmt.inference.program import SearchConfig
from kvnmt.inference.translate import translate_lines
from kvnmt.losses import Objective
from kvnmt.metrics.bleu import corpus_bleu
from kvnmt.model_config import Dropout, ModelConfig
from kvnmt.models import count_parameters
from kvnmt.runs import directory
from kvnmt.runs import train as experiment
from kvnmt.runs.config import Experiment
from kvnmt.runs.directory import Run
from kvnmt.systems.named import system
from kvnmt.training.config import TrainingConfig
from kvnmt.training.optimizer import OptimizerConfig

BASELINE = "rnnsearch-star"
SYSTEMS = (
    BASELINE,
    "rnnsearch-star-atteos",
    "kvmematt-r1",
    "kvmematt-r1-atteos",
    "kvmematt-r2",
    "kvmematt-r2-atteos",
)


@dataclass(frozen=True)
class Multi30k:
    """Options of the experiment."""

    data: Path  # folder of the tokenised text
    folder: Path = Path("runs/multi30k")  # where the runs are written
    source: str = "de"
    target: str = "en"
    systems: tuple[str, ...] = SYSTEMS
    starts: tuple[Literal["scratch", "warm"], ...] = ("scratch", "warm")
    epochs: int = 12  # at most, from scratch
    warm_epochs: int = 3  # at most, from the trained baseline
    seed: int = 1


def configure(
    options: Multi30k, name: str, start: Literal["scratch", "warm"]
) -> Experiment:
    """The experiment of one row of the table."""
    data = options.data
    sizes = ModelConfig(
        embedding=256,
        encoder=256,
        state=256,
        merge="sum",
        initializer="glorot",
        dropout=Dropout(embedding=0.2, annotations=0.2, output=0.5),
    )
    warm = start == "warm"
    epochs = options.warm_epochs if warm else options.epochs
    return Experiment(
        model=system(name).model(sizes),
        objective=system(name).objective(Objective(label_smoothing=0.1)),
        data=DataConfig(
            source=data / f"train.{options.source}",
            target=data / f"train.{options.target}",
            valid_source=data / f"valid.{options.source}",
            valid_target=data / f"valid.{options.target}",
            min_count=2,
        ),
        optimizer=OptimizerConfig(
            learning_rate=5e-4 if warm else 1e-3, decay=_decay(epochs)
        ),
        training=TrainingConfig(
            epochs=epochs,
            batch_size=40,
            seed=options.seed,
            bleu_tokenize="none",
            warm_start=_folder(options, BASELINE, "scratch") if warm else None,
        ),
    )


def main(options: Multi30k) -> None:
    """Trains what is not yet trained and prints the table."""
    console = Console()
    for name, start in _rows(options):
        folder = _folder(options, name, start)
        if not (folder / "result.json").exists():
            console.rule(folder.name)
            _train(options, name, start, console)
    print_table(_table(options))


def _decay(epochs: int) -> float:
    """The factor per epoch that leaves a sixth of the rate for the last epoch."""
    return round((1 / 6) ** (1 / max(epochs - 1, 1)), 2)


def _rows(options: Multi30k) -> Iterator[tuple[str, Literal["scratch", "warm"]]]:
    for start in options.starts:
        for name in options.systems:
            yield name, start


def _folder(options: Multi30k, name: str, start: str) -> Path:
    pair = f"{options.source}-{options.target}"
    return options.folder / f"{pair}-{name}-{start}-{options.seed}"


def _train(
    options: Multi30k, name: str, start: Literal["scratch", "warm"], console: Console
) -> None:
    folder = _folder(options, name, start)
    resume = (folder / "config.json").exists()
    config = configure(options, name, start)
    trained = experiment.run(config, folder, resume=resume, console=console)
    run = directory.load_run(folder)
    result = {
        "system": name,
        "start": start,
        "parameters": count_parameters(run.params),
        "valid_bleu": _bleu(options, run, "valid"),
        "test2016_bleu": _bleu(options, run, "test2016"),
        "target_tokens_per_second": trained.tokens_per_second,
        "minutes": trained.minutes,
        "epochs": trained.epochs,
        "best_epoch": trained.best_epoch,
        "seed": options.seed,
    }
    (folder / "result.json").write_text(json.dumps(result, indent=2) + "\n")


def _bleu(options: Multi30k, run: Run, split: str) -> float:
    source = options.data / f"{split}.{options.source}"
    text = read_parallel(source, options.data / f"{split}.{options.target}")
    found = translate_lines(run, text.source, SearchConfig())
    return corpus_bleu(found, text.target, tokenize="none").score


def _table(options: Multi30k) -> Table:
    table = Table(
        *("system", "start", "parameters", "BLEU valid", "BLEU test2016"),
        *("target tokens/s", "minutes", "epochs (best)", "seed"),
        title=f"Multi30k {options.source}-{options.target}, beam 10",
        caption="sacreBLEU, tokenize none, on the tokenised lower-cased text",
        box=None,
    )
    for name, start in _rows(options):
        path = _folder(options, name, start) / "result.json"
        row = json.loads(path.read_text())
        table.add_row(
            *(row["system"], row["start"], f"{row['parameters']:,}"),
            *(f"{row['valid_bleu']:.2f}", f"{row['test2016_bleu']:.2f}"),
            f"{row['target_tokens_per_second']:,.0f}",
            f"{row['minutes']:.1f}",
            f"{row['epochs']:g} ({row['best_epoch']:g})",
            str(row["seed"]),
        )
    return table


if __name__ == "__main__":
    run_program("multi30k", lambda: main(tyro.cli(Multi30k, description=__doc__)))
