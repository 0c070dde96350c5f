# SPDX-License-Identifier: Apache-2.0
"""RNNsearch* under JoeyNMT's recipe: how much of a difference goes with it.

Claim: that RNNsearch* of `experiments.multi30k` is 7.7 BLEU above JoeyNMT's model of
the same sizes, vocabulary, beam and epochs (39.23 and 31.53) comes from the recipe.
Most of it goes with the recipe: 33.10 under JoeyNMT's, of one seed, 1.6 above its own.

Setting: RNNsearch* is trained as JoeyNMT 2.3.0 was: batches of 80, no label smoothing,
dropout 0.2 on embeddings and 0.5 on the readout, none on annotations, which are
concatenated; Glorot's matrices and embeddings N(0, 0.1²); the rate times 0.85 after
each epoch; pairs of up to 60 words. A row takes 20 minutes on two cores.

What still differs: JoeyNMT feeds the attentional vector back into the decoder, and its
state is not refined after the context is read (one GRU for a word, not two). JoeyNMT
under the recipe of `experiments.multi30k` was not run. Results: experiments/README.md.

Launch::

    python -m experiments.even_match --data DATA/multi30k/tok
"""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from experiments import captions
from experiments.multi30k import BASELINE, Multi30k, configure, pair_of
from experiments.results import Figures
from experiments.rows import Row, Train, Trained
from experiments.summaries import Summary
from experiments.table import Options, Table, launch, make_table
from kvnmt.data.text import Parallel
from kvnmt.evaluation.base import Column
from kvnmt.model_config import Dropout
from kvnmt.runs import train as training
from kvnmt.runs.config import Experiment
from kvnmt.training.losses import Objective

RECIPE = "JoeyNMT's"
COLUMNS = (
    Column("system", "system"),
    Column("recipe", "recipe"),
    Column("parameters", "parameters", "{:,}"),
    Column("valid_bleu", "BLEU valid", "{:.2f}"),
    Column("test2016_bleu", "BLEU test2016", "{:.2f}"),
    Column("minutes", "minutes", "{:.1f}"),
    Column("best_epoch", "best epoch", "{:g}"),
    Column("seed", "seed"),
)
TABLES = (
    Summary(
        name="even_match",
        data="de-en",
        by=("system", "recipe"),
        columns=COLUMNS[2:-1],
        differences={f"{BASELINE}, {RECIPE}": "no input feeding, two GRUs for a word"},
    ),
)


@dataclass(frozen=True, kw_only=True)
class EvenMatch(Options):
    """Options of the experiment."""

    data: Path  # folder of the tokenised text
    workdir: Path = Path("runs/even_match")  # where the runs are written
    source: str = "de"
    target: str = "en"
    epochs: int = 12  # at most


def main(options: EvenMatch, train: Train = training.run) -> None:
    """Trains what is not yet trained and prints the table."""
    base = Multi30k(
        data=options.data,
        workdir=options.workdir,
        source=options.source,
        target=options.target,
        epochs=options.epochs,
    )
    texts = {}
    if not options.looks:
        texts = captions.read(options.data, options.source, options.target)
    rows = [row_of(base, seed, texts) for seed in options.seeds]
    title = f"Multi30k {pair_of(base)}, under the recipe of another program"
    make_table(options, Table(title, COLUMNS, rows, [captions.NOTE]), train)


def row_of(base: Multi30k, seed: int, texts: dict[str, Parallel]) -> Row:
    """RNNsearch* from scratch, with another recipe."""
    row = configure(base, BASELINE, "scratch", seed, texts)
    return replace(
        row,
        folder=base.workdir / f"{pair_of(base)}-joeynmt-{seed}",
        experiment=under_its_recipe(row.experiment),
        measure=partial(measure, row),
    )


def under_its_recipe(experiment: Experiment) -> Experiment:
    """As JoeyNMT was trained, where there are such options."""
    return replace(
        experiment,
        model=replace(
            experiment.model,
            merge="concat",
            initializer="glorot",
            dropout=Dropout(embedding=0.2, output=0.5),
        ),
        objective=Objective(),
        data=replace(experiment.data, max_length=60),
        optimizer=replace(experiment.optimizer, decay=0.85),
        training=replace(experiment.training, batch_size=80),
    )


def measure(row: Row, trained: Trained) -> Figures:
    """What is measured of every row of the captions, and the name of the recipe."""
    return row.measure(trained) | {"recipe": RECIPE}


if __name__ == "__main__":
    launch(EvenMatch, main, __doc__)
