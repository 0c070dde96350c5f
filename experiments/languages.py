# SPDX-License-Identifier: Apache-2.0
"""The default recipe in languages other than those that it was chosen for.

Claim: the defaults of `kvnmt train`, chosen on captions from English to German, also
work for a language without spaces between words, as source or as target. They learn
both, and no table is known to compare the scores with.

Setting: the recipe as it is. Chinese and English are the captions of 3AM (Ma et al.
2024), raw text: its validation text chooses the checkpoint and gives the scores, since
its test text is not used here. English and Japanese are Tanaka's short sentences
(``small_parallel_enja``), tokenised. Every score has sacreBLEU's signature:
``13a`` for raw English, ``zh`` for raw Chinese, ``none`` for tokenised text. Pieces of
Chinese and Japanese targets are made of characters that are not normalised: normalised
as usual, the references themselves would score 94 and 99.
Published figures with a setting like this were not found. Rows took 48 and 76 minutes
on two cores by a former recipe; today's has more epochs.
Results: experiments/findings/languages.md.

Launch::

    python -m experiments.languages --data DATA
    python -m experiments.languages --data DATA --pairs zh-en --systems rnnsearch-star
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from experiments.harness.results import Figures
from experiments.harness.rows import Row, Train, Trained
from experiments.harness.summaries import Summary
from experiments.harness.table import Options, Table, launch, make_table
from experiments.parts.recipes import parallel_text, with_system
from kvnmt.data.outputs import write_lines
from kvnmt.data.text import Parallel, read_parallel
from kvnmt.errors import unknown_name
from kvnmt.evaluation.base import Column
from kvnmt.metrics.bleu import corpus_bleu
from kvnmt.runs import train as training
from kvnmt.runs.recipes import RECIPES

RECIPE = RECIPES["modern"]


class Task(NamedTuple):
    """Text of a pair of languages."""

    folder: str  # has {train,valid}.{source,target}
    measured: tuple[str, ...]  # parts that are told
    tokenize: str  # of sacreBLEU, for the target
    # Of pieces: the recipe's writes "," for the comma of Chinese and Japanese, which a
    # reference is not scored with.
    normalization: Literal["nmt_nfkc", "identity"] = "nmt_nfkc"


TASKS: Mapping[str, Task] = {
    "zh-en": Task("3am-enzh", ("valid",), "13a"),
    "en-zh": Task("3am-enzh", ("valid",), "zh", "identity"),
    "en-ja": Task("tanaka-enja", ("valid", "test"), "none", "identity"),
    "ja-en": Task("tanaka-enja", ("valid", "test"), "none"),
}
COLUMNS = (
    Column("data", "languages"),
    Column("system", "system"),
    Column("parameters", "parameters", "{:,}"),
    Column("valid_bleu", "BLEU valid", "{:.2f}"),
    Column("test_bleu", "BLEU test", "{:.2f}"),
    Column("signature", "sacreBLEU"),
    Column("minutes", "minutes", "{:.1f}"),
    Column("best_epoch", "best epoch", "{:.3g}"),
    Column("seed", "seed"),
)
TABLES = (Summary(name="languages", columns=COLUMNS[2:-1], by=("system",)),)


@dataclass(frozen=True, kw_only=True)
class Languages(Options):
    """Options of the experiment."""

    data: Path  # has the folders 3am-enzh and tanaka-enja
    workdir: Path = Path("runs/languages")  # where the runs are written
    pairs: tuple[str, ...] = ("zh-en", "en-ja")
    systems: tuple[str, ...] = ("rnnsearch-star", "self-attentive-residual")


def main(options: Languages, train: Train = training.run) -> None:
    """Trains what is not yet trained and prints the table.

    Raises:
        UserError: There is no such pair or system, or a row failed.
    """
    rows = [
        configure(options, pair, name, seed)
        for pair in options.pairs
        for name in options.systems
        for seed in options.seeds
    ]
    title = "The default recipe in other languages"
    make_table(options, Table(title, COLUMNS, rows), train)


def configure(options: Languages, pair: str, name: str, seed: int) -> Row:
    """The row of a system in a pair of languages.

    Raises:
        UserError: There is no such pair or system, or text cannot be read.
    """
    if pair not in TASKS:
        raise unknown_name("pair of languages", pair, TASKS)
    task, (source, target) = TASKS[pair], pair.split("-")
    folder = options.data / task.folder
    files = {
        part: (folder / f"{part}.{source}", folder / f"{part}.{target}")
        for part in task.measured
    }
    texts = {} if options.looks else {p: read_parallel(*f) for p, f in files.items()}
    base = replace(
        RECIPE,
        data=replace(
            parallel_text(RECIPE.data, folder, source, target),
            normalization=task.normalization,
        ),
        training=replace(RECIPE.training, bleu_tokenize=task.tokenize),
    )
    epochs = base.training.epochs
    return Row(
        folder=options.workdir / f"{pair}-{name}-{seed}",
        system=name,
        experiment=with_system(base, name, epochs=epochs, seed=seed),
        measure=partial(measure, task, texts, target),
        data=pair,
        tests=tuple(path for pair in files.values() for path in pair),
    )


def measure(
    task: Task, texts: Mapping[str, Parallel], target: str, trained: Trained
) -> Figures:
    """BLEU of every part; the translations stay in the folder."""
    figures: Figures = {}
    for part, text in texts.items():
        hypotheses = trained.run.translate(text.source)
        write_lines(trained.folder / f"{part}.{target}", hypotheses)
        score = corpus_bleu(hypotheses, text.target, tokenize=task.tokenize)
        figures[f"{part}_bleu"] = score.score
        figures["signature"] = score.signature
    return figures


if __name__ == "__main__":
    launch(Languages, main, __doc__)
