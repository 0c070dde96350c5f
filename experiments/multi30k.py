# SPDX-License-Identifier: Apache-2.0
r"""Memory attention against its baseline on Multi30k image captions.

Claim (Meng et al. 2018, table 1, there on 1.25 million Chinese-English pairs):
KVMemAtt-R1 improves on RNNsearch*, R2 on R1, ATTEOS on each; the memory models start
from the trained baseline. Here the same systems are trained on 29 000 short captions,
from scratch and from the trained baseline; the baseline that is trained further is the
control. Results and published figures: experiments/findings/captions.md.

The corpus is not shipped: get the tokenised text of "task 1" of Multi30k (Elliott et
al. 2016), github.com/multi30k/dataset, folder ``data/task1/tok``. Its names
(``train.lc.norm.tok.de``, ``val.lc.norm.tok.de``, ``test_2016_flickr.lc.norm.tok.de``)
may be ``train.de``, ``valid.de`` and ``test2016.de`` too. On two cores the
baseline took 29 to 117 minutes, a row that starts from it 4 to 50.

Launch::

    python -m experiments.multi30k --data DATA/multi30k/tok
    python -m experiments.multi30k --data DATA/multi30k/tok --source en --target fr
    python -m experiments.multi30k --data DATA/multi30k/tok --seeds 1 2 3 \
        --aligned DATA/align/bicici-deen     # and alignment error on other text
    python -m experiments.multi30k --data DATA/multi30k/tok --systems kvmematt-r2 \
        --starts warm        # needs the baseline's result in the same folder
"""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from experiments.harness.results import Figures
from experiments.harness.rows import Row, Train, Trained
from experiments.harness.significance import Against, with_p
from experiments.harness.summaries import Summary
from experiments.harness.table import Table, launch, make_table
from experiments.parts import aligned_rows, captions
from experiments.parts.aligned_rows import Aligned, aligned_row, joined
from experiments.parts.recipes import small_model, with_system
from kvnmt.data.config import DataConfig
from kvnmt.data.text import Parallel
from kvnmt.errors import Idle, check_given
from kvnmt.evaluation import System, Test, adequacy
from kvnmt.evaluation.base import Column
from kvnmt.fields import at_least
from kvnmt.model.config import Dropout
from kvnmt.runs import train as training
from kvnmt.runs.config import Experiment
from kvnmt.training.config import TrainingConfig
from kvnmt.training.losses import Objective
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
BASE = Experiment(
    model=small_model(256, 256, Dropout(embedding=0.2, annotations=0.2, output=0.5)),
    objective=Objective(label_smoothing=0.1),
    data=DataConfig(min_count=2),
    training=TrainingConfig(batch_size=40, bleu_tokenize="none"),
)
BY = "system", "start"
AGAINST = Against({"system": BASELINE}, f"{captions.TEST}_bleu", captions.COUNTS)
COLUMNS = (
    Column("system", "system"),
    Column("start", "start"),
    Column("parameters", "parameters", "{:,}"),
    Column("valid_bleu", "BLEU valid", "{:.2f}"),
    Column("test2016_bleu", "BLEU test2016", "{:.2f}"),
    Column("p", f"p against {BASELINE}, sentences", "{:.3f}"),
    *adequacy.BY_ATTENTION,
    *adequacy.BY_TEXT[:2],
    *aligned_rows.COLUMNS,
    Column("target_tokens_per_second", "target tokens/s", "{:,.0f}"),
    Column("minutes", "minutes", "{:.1f}"),
    Column("epochs", "epochs", "{:g}"),
    Column("best_epoch", "best epoch", "{:.3g}"),
    Column("seed", "seed"),
)
# What is kept of kvnmt.evaluation.adequacy; it needs no gold alignment.
ADEQUACY = "unread", "overread", "repeated_1", "repeated_2", "repeated_3", "repeated_4"
# Meng et al. (2018), table 1.
PUBLISHED = {
    "rnnsearch-star, scratch": "36.53",
    "kvmematt-r1, warm": "38.45",
    "kvmematt-r1-atteos, warm": "38.66",
    "kvmematt-r2, warm": "38.93",
    "kvmematt-r2-atteos, warm": "39.33",
}
TABLES = (
    Summary(
        name="multi30k",
        data="de-en",
        by=BY,
        columns=COLUMNS[2:-1],
        published=PUBLISHED,
        against=AGAINST,
        published_as="published, NIST zh-en",
        published_with="1.25 million pairs, 30 000 words, 512 units, Adadelta; the "
        "mean of MT03 to MT06",
        differences={
            "rnnsearch-star, scratch": "beside other work",
            "rnnsearch-star, scratch before": "seed 1, by an earlier version",
            "rnnsearch-star, warm": "the control: trained on",
            "rnnsearch-star, warm before": "the control, from that run of seed 1",
            "kvmematt-r1, warm before": "from that run of seed 1",
            "kvmematt-r2-atteos, warm before": "from that run of seed 1",
            "phrase-based (Thot), scratch": "one weight chosen on 100 lines of valid",
        },
    ),
    Summary(
        name="multi30k-5",
        by=BY,
        columns=COLUMNS[2:-1],
        data="de-en",
        against=AGAINST,
    ),
)


@dataclass(frozen=True, kw_only=True)
class Multi30k(captions.CaptionOptions):
    """Options of the experiment."""

    workdir: Path = Path("runs/multi30k")  # where the runs are written
    systems: tuple[str, ...] = SYSTEMS
    starts: tuple[Literal["scratch", "warm"], ...] = ("scratch", "warm")
    epochs: Annotated[int, at_least(1)] = 12  # at most, from scratch
    warm_epochs: Annotated[int, at_least(1)] = 2  # at most, from the trained baseline
    aligned: Path | None = None  # folder of text that people aligned


def main(options: Multi30k, train: Train = training.run) -> None:
    """Trains what is not yet trained and prints the table."""
    for name, start in (("epochs", "scratch"), ("warm_epochs", "warm")):
        if start not in options.starts:
            why = f"{{0}} is of {start} rows, which {{1}} leaves out; leave out {{0}}."
            check_given(options, [Idle((name,), why, ("starts",))], Multi30k)
    texts = options.read()
    rows = [
        configure(options, name, start, seed, texts)
        for start in options.starts
        for name in options.systems
        for seed in options.seeds
    ]
    read = []
    if options.aligned:
        aligned = Aligned(options.aligned, options.source, options.target)
        if not options.looks:
            aligned.read()  # what is wrong with it is told before any work
        read = [aligned_row(row, aligned) for row in rows]
    table = Table(
        title=f"Multi30k {options.captions.pair}",
        columns=COLUMNS,
        rows=[*rows, *read],
        notes=[captions.NOTE],
        lines=lambda results: with_p(AGAINST, BY, joined(results)),
    )
    make_table(options, table, train)


def configure(
    options: Multi30k,
    name: str,
    start: Literal["scratch", "warm"],
    seed: int,
    texts: dict[str, Parallel],
) -> Row:
    """The row of one system, started in one way."""
    warm = start == "warm"
    epochs = options.warm_epochs if warm else options.epochs
    # The factor per epoch that leaves a sixth of the rate for the last epoch.
    decay = round((1 / 6) ** (1 / max(epochs - 1, 1)), 2)
    rate = 5e-4 if warm else 1e-3
    base = replace(
        BASE,
        data=options.captions.trained_on(BASE.data),
        optimizer=OptimizerConfig(learning_rate=rate, decay=decay),
    )
    return Row(
        folder=run_folder(options, name, start, seed),
        system=name,
        experiment=with_system(
            base,
            name,
            epochs=epochs,
            seed=seed,
            warm_start=run_folder(options, BASELINE, "scratch", seed) if warm else None,
        ),
        measure=partial(measure, texts, options.target),
        data=options.captions.pair,
        tests=options.captions.files(captions.TEST),
    )


def run_folder(options: Multi30k, name: str, start: str, seed: int) -> Path:
    """The run directory of a row."""
    return options.workdir / f"{options.captions.pair}-{name}-{start}-{seed}"


def measure(texts: dict[str, Parallel], target: str, trained: Trained) -> Figures:
    """BLEU on every text, over- and under-translation on the test set.

    Args:
        texts: By the names of their files.
        target: The language of the translations, which stay in the run directory.
        trained: The run.
    """
    folder, run, _ = trained
    hypotheses = captions.translated(texts, run.translate, folder, target)
    test = Test(texts[captions.TEST].target, texts[captions.TEST].source)
    system = System("system", partial(list, hypotheses[captions.TEST]), run)
    (row,) = adequacy.measure(test, [system]).rows
    return captions.scores(texts, hypotheses) | {
        key: row[key] for key in ADEQUACY if key in row
    }


if __name__ == "__main__":
    launch(Multi30k, main, __doc__)
