# SPDX-License-Identifier: Apache-2.0
"""KVMemAtt at the settings of its paper, on parallel text of your own.

Claim (Meng et al. 2018, table 1, NIST Chinese-English, averages over MT03 to MT06, as
published): RNNsearch* 36.53, KVMemAtt-R1 38.45, R1 + ATTEOS 38.66, R2 38.93,
R2 + ATTEOS 39.33 BLEU; speed 2773, 2263, 1992, 1804, 1676 target words per second on
one Tesla P40. The corpus (LDC, 1.25 million pairs) is not free, so this experiment
was not run on it here.

Sizes 512 everywhere with summed annotations, 30 000 words on each side, at most 80
words, Adadelta, batches of 80, dropout 0.5 on the output layer. The paper trains the
baseline first and starts the memory models from it.

Launch::

    python -m experiments.kvmematt \
        --data.source train.zh --data.target train.en \
        --data.valid-source valid.zh --data.valid-target valid.en
"""

from dataclasses import dataclass
from pathlib import Path

from experiments.recipes import greedy_bleu, with_system
from experiments.rows import Row, Train
from experiments.table import Options, Table, launch, make_table
from kvnmt.data.config import DataConfig
from kvnmt.evaluation.base import Column
from kvnmt.model_config import Dropout, ModelConfig
from kvnmt.runs import train as training
from kvnmt.runs.config import Experiment
from kvnmt.training.config import TrainingConfig
from kvnmt.training.optimizer import OptimizerConfig

BASELINE = "rnnsearch-star"
EXPERIMENT = Experiment(
    model=ModelConfig(
        embedding=512,
        encoder=512,
        state=512,
        merge="sum",
        dropout=Dropout(output=0.5),
    ),
    data=DataConfig(min_count=1, vocabulary_size=30000, max_length=80),
    optimizer=OptimizerConfig(name="adadelta", clip=1.0),
    training=TrainingConfig(batch_size=80, validate_every=5000),
)
COLUMNS = (
    Column("system", "system"),
    Column("parameters", "parameters", "{:,}"),
    Column("valid_bleu", "BLEU valid", "{:.2f}"),
    Column("target_tokens_per_second", "target tokens/s", "{:,.0f}"),
    Column("seed", "seed"),
)


@dataclass(frozen=True, kw_only=True)
class KVMemAtt(Options):
    """Options of the experiment."""

    workdir: Path = Path("runs/kvmematt")  # where the runs are written
    systems: tuple[str, ...] = (
        "kvmematt-r1",
        "kvmematt-r1-atteos",
        "kvmematt-r2",
        "kvmematt-r2-atteos",
    )
    epochs: int = 20  # at most


def main(options: KVMemAtt, train: Train = training.run) -> None:
    """Trains the baseline, then the others from there, and prints the table."""
    rows = [
        configure(options, name, seed)
        for name in (BASELINE, *options.systems)
        for seed in options.seeds
    ]
    make_table(options, Table("KVMemAtt", COLUMNS, rows), train)


def configure(options: KVMemAtt, name: str, seed: int) -> Row:
    """The row of one system; the text comes by flags of the configuration."""
    start = options.workdir / f"{BASELINE}-{seed}"
    experiment = with_system(
        EXPERIMENT,
        name,
        epochs=options.epochs,
        seed=seed,
        warm_start=None if name == BASELINE else start,
    )
    return Row(options.workdir / f"{name}-{seed}", name, experiment, greedy_bleu)


if __name__ == "__main__":
    launch(KVMemAtt, main, __doc__)
