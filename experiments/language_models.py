# SPDX-License-Identifier: Apache-2.0
"""The language models of Miculicich et al. (2018), table 6, compared.

Claim (there on 22.5 million words of Wikipedia, all models near 47 million
parameters): a window of attention, a 4-gram of states, and the mean or self-attentive
residual each lower the perplexity of an LSTM. Here these models have half the
paper's widths and read text of your own sentence by sentence: paragraphs are cut after
" . ", nothing is carried from one sentence to the next, and the perplexity counts the
end of every sentence. Results and published figures:
experiments/findings/language_models.md.

Launch::

    python -m experiments.language_models --train train.txt --valid valid.txt
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from experiments.harness.results import Figures
from experiments.harness.rows import Row, Train, Trained
from experiments.harness.summaries import Summary
from experiments.harness.table import Options, Table, launch, make_table
from experiments.harness.texts import Text
from experiments.parts.recipes import with_system
from kvnmt.data.config import DataConfig
from kvnmt.data.outputs import write_lines
from kvnmt.data.text import read_lines
from kvnmt.errors import unknown_name
from kvnmt.evaluation.base import Column
from kvnmt.files import digest
from kvnmt.metrics.perplexity import perplexity
from kvnmt.model.config import Dropout, ModelConfig
from kvnmt.runs import train as training
from kvnmt.runs.config import Experiment
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
BASE = Experiment(
    model=ModelConfig(
        embedding=150,
        initializer="glorot",
        dropout=Dropout(embedding=0.2, output=0.5),
    ),
    data=DataConfig(min_count=2, max_length=80),
    optimizer=OptimizerConfig(learning_rate=3e-3, decay=0.7, decay_after=3),
    training=TrainingConfig(batch_size=40, shapes=6, metric="loss", patience=2),
)
COLUMNS = (
    Column("system", "system"),
    Column("state", "state"),
    Column("parameters", "parameters", "{:,}"),
    Column("perplexity", "perplexity", "{:.1f}"),
    Column("best_epoch", "best epoch", "{:.3g}"),
    Column("seed", "seed"),
)
TABLES = (
    Summary(
        name="language_models",
        columns=COLUMNS[1:-1],
        by=("system",),
        published={
            "lm-lstm": "85.2",
            "lm-attention": "82.0",
            "lm-4-gram": "75.9",
            "lm-mean-residual": "80.2",
            "lm-self-attentive-residual": "80.4",
        },
        published_as="published, other text and sizes",
        published_with="22.5 million words of Wikipedia, 47 million parameters each",
        differences={
            "lm-lstm": "published with 300 units",
            "lm-attention": "published with 296 units",
            "lm-4-gram": "published with 968 units",
            "lm-mean-residual": "published with 296 units",
            "lm-self-attentive-residual": "published with 296 units",
        },
    ),
)


@dataclass(frozen=True, kw_only=True)
class LanguageModels(Options):
    """Options of the experiment."""

    train: Path  # text, a paragraph or a sentence per line
    valid: Path
    workdir: Path = Path("runs/language_models")  # where the runs are written
    systems: tuple[str, ...] = tuple(WIDTHS)
    epochs: int = 6  # at most


def main(options: LanguageModels, train: Train = training.run) -> None:
    """Trains what is not yet trained and prints the table."""
    rows = [
        configure(options, name, seed)
        for name in options.systems
        for seed in options.seeds
    ]
    files = {} if options.looks else {"train": options.train, "valid": options.valid}
    texts = {part: read_lines(path) for part, path in files.items()}
    text = Text(
        key=digest(json.dumps(texts).encode()) if texts else None,
        write=lambda: write_text(options.workdir, texts),
    )
    table = Table("validation perplexity", COLUMNS, rows, texts=[text])
    make_table(options, table, train)


def configure(options: LanguageModels, name: str, seed: int) -> Row:
    """The row of one language model.

    Raises:
        UserError: There is no such language model.
    """
    if name not in WIDTHS:
        raise unknown_name("language model", name, WIDTHS)
    width = WIDTHS[name]
    text = {part: options.workdir / f"{part}.txt" for part in ("train", "valid")}
    data = replace(
        BASE.data,
        source=text["train"],
        target=text["train"],
        valid_source=text["valid"],
        valid_target=text["valid"],
    )
    model = replace(BASE.model, encoder=width, state=width)
    base = replace(BASE, model=model, data=data)
    return Row(
        folder=options.workdir / f"{name}-{seed}",
        system=name,
        experiment=with_system(base, name, epochs=options.epochs, seed=seed),
        measure=measure,
    )


def write_text(folder: Path, texts: dict[str, list[str]]) -> None:
    """Writes the sentences of both texts."""
    for part, lines in texts.items():
        write_lines(folder / f"{part}.txt", sentences(lines))


def sentences(lines: list[str]) -> Iterator[str]:
    """Cuts paragraphs after every full stop that stands alone."""
    for line in lines:
        *closed, rest = line.split(" . ")
        yield from (f"{sentence} ." for sentence in closed if sentence.strip())
        if rest.strip():
            yield rest


def measure(trained: Trained) -> Figures:
    """Perplexity of the validation text under the best checkpoint."""
    return {"perplexity": perplexity(-trained.result.best["valid_loss"], 1)}


if __name__ == "__main__":
    launch(LanguageModels, main, __doc__)
