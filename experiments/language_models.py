# SPDX-License-Identifier: Apache-2.0
"""The language models of Miculicich et al. (2018), table 6, beside each other.

Claim (there on 22.5 million words of Wikipedia, all models near 47 million
parameters): a window of attention, a 4-gram of states, and the mean or self-attentive
residual each lower the perplexity of an LSTM. Here the same models at half the
paper's widths on a text of your own, sentence by sentence: paragraphs are cut after
" . ", nothing is carried from one sentence to the next, and the perplexity counts the
end of every sentence. Results and published figures: experiments/README.md.

Launch::

    python -m experiments.language_models --train train.txt --valid valid.txt

Runs that are already finished are reported, not repeated; an interrupted one goes on.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console
from rich.table import Table

from kvnmt.console import print_table
from kvnmt.data.config import DataConfig
from kvnmt.data.text import read_lines
from kvnmt.errors import run_program, unknown_name
from kvnmt.model_config import Dropout, ModelConfig
from kvnmt.models import count_parameters
from kvnmt.runs import directory
from kvnmt.runs import train as experiment
from kvnmt.runs.config import Experiment
from kvnmt.systems.named import system
from kvnmt.training.config import TrainingConfig
from kvnmt.training.optimizer import OptimizerConfig

WIDTHS = {  # of the state; half of those that the paper's parameter counts imply
    "lm-lstm": 150,
    "lm-attention": 148,
    "lm-key-value": 280,
    "lm-key-value-predict": 393,
    "lm-4-gram": 484,
    "lm-mean-residual": 148,
    "lm-self-attentive-residual": 148,
}


@dataclass(frozen=True)
class LanguageModels:
    """Options of the experiment."""

    train: Path  # text, a paragraph or a sentence per line
    valid: Path
    folder: Path = Path("runs/language_models")  # where the runs are written
    systems: tuple[str, ...] = tuple(WIDTHS)
    epochs: int = 8  # at most
    seed: int = 1


def configure(options: LanguageModels, name: str) -> Experiment:
    """The experiment of one language model."""
    text = {part: options.folder / f"{part}.txt" for part in ("train", "valid")}
    width = WIDTHS[name]
    sizes = ModelConfig(
        embedding=150,
        encoder=width,
        state=width,
        initializer="glorot",
        dropout=Dropout(embedding=0.2, output=0.5),
    )
    return Experiment(
        model=system(name).model(sizes),
        data=DataConfig(
            source=text["train"],
            target=text["train"],
            valid_source=text["valid"],
            valid_target=text["valid"],
            min_count=2,
            max_length=80,
        ),
        optimizer=OptimizerConfig(learning_rate=3e-3, decay=0.7, decay_after=3),
        training=TrainingConfig(
            epochs=options.epochs,
            batch_size=40,
            shapes=6,
            seed=options.seed,
            metric="loss",
            patience=2,
        ),
    )


def main(options: LanguageModels) -> None:
    """Trains what is not yet trained and prints the table."""
    console = Console()
    for name in options.systems:
        if name not in WIDTHS:
            raise unknown_name("language model", name, WIDTHS)
    options.folder.mkdir(parents=True, exist_ok=True)
    for part, path in (("train", options.train), ("valid", options.valid)):
        lines = "".join(f"{line}\n" for line in sentences(read_lines(path)))
        (options.folder / f"{part}.txt").write_text(lines)
    for name in options.systems:
        folder = options.folder / f"{name}-{options.seed}"
        if not (folder / "result.json").exists():
            console.rule(folder.name)
            _train(options, name, folder, console)
    print_table(_table(options))


def sentences(lines: list[str]) -> Iterator[str]:
    """Cuts paragraphs after every full stop that stands alone."""
    for line in lines:
        *closed, rest = line.split(" . ")
        yield from (f"{sentence} ." for sentence in closed if sentence.strip())
        if rest.strip():
            yield rest


def _train(options: LanguageModels, name: str, folder: Path, console: Console) -> None:
    resume = (folder / "config.json").exists()
    config = configure(options, name)
    trained = experiment.run(config, folder, resume=resume, console=console)
    run = directory.load_run(folder)
    result = {
        "system": name,
        "state": WIDTHS[name],
        "parameters": count_parameters(run.params),
        "perplexity": math.exp(trained.best["valid_loss"]),
        "best_epoch": trained.best_epoch,
    }
    (folder / "result.json").write_text(json.dumps(result, indent=2) + "\n")


def _table(options: LanguageModels) -> Table:
    table = Table(
        *("system", "state", "parameters", "perplexity", "best epoch"),
        title=f"validation perplexity, seed {options.seed}",
        box=None,
    )
    for name in options.systems:
        path = options.folder / f"{name}-{options.seed}" / "result.json"
        row = json.loads(path.read_text())
        table.add_row(
            *(name, str(row["state"]), f"{row['parameters']:,}"),
            *(f"{row['perplexity']:.2f}", f"{row['best_epoch']:g}"),
        )
    return table


if __name__ == "__main__":
    run_program(
        "language_models", lambda: main(tyro.cli(LanguageModels, description=__doc__))
    )
