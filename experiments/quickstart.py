# SPDX-License-Identifier: Apache-2.0
"""The main job in a few minutes, with no files and no network.

It makes a bilingual corpus with gold word alignments from a small grammar, and trains
RNNsearch* on it. From there it trains KVMemAtt-R2 + ATTEOS, as its paper does. It
prints what the papers print: BLEU, alignment error rate, parameters, speed. It writes
run directories and a picture of the attention of both rounds, and tells how to
translate a sentence of your own. What is already trained is shown at once.

Launch::

    python -m experiments.quickstart [--workdir runs/quickstart] [--epochs 5]
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

from rich.console import Console

from experiments.harness.results import Figures
from experiments.harness.rows import Row, Train, Trained
from experiments.harness.summaries import Summary
from experiments.harness.table import Options, Table, launch, make_table
from experiments.harness.texts import Text
from experiments.parts import made_up
from experiments.parts.recipes import parallel_text, small_model, with_system
from kvnmt.console import people_console, say
from kvnmt.data import synthetic
from kvnmt.data.config import DataConfig
from kvnmt.data.outputs import write_lines
from kvnmt.data.synthetic import Corpus, Pair
from kvnmt.data.text import read_lines
from kvnmt.evaluation.base import Column
from kvnmt.fields import at_least
from kvnmt.inference.program import SearchConfig
from kvnmt.metrics.bleu import corpus_bleu
from kvnmt.model.config import Dropout
from kvnmt.pictures.heatmaps import attention_heatmap
from kvnmt.runs import train as training
from kvnmt.runs.config import Experiment
from kvnmt.runs.directory import load_run
from kvnmt.training.config import TrainingConfig
from kvnmt.training.optimizer import OptimizerConfig

BASELINE, EXTENDED = SYSTEMS = ("rnnsearch-star", "kvmematt-r2-atteos")
BASE = Experiment(
    model=small_model(64, 128, Dropout(output=0.2), "unit"),
    data=DataConfig(min_count=1),
    training=TrainingConfig(batch_size=40, shapes=4, bleu_tokenize="none"),
    search=SearchConfig(beam=5),
)
COLUMNS = (
    Column("system", "system"),
    Column("parameters", "parameters", "{:,}"),
    Column("bleu", "BLEU", "{:.2f}"),
    Column("aer", "AER", "{:.1%}"),
    Column("dropped", "dropped", "{:.2%}"),
    Column("repeated", "repeated", "{:.2%}"),
    Column("target_tokens_per_second", "tokens/s", "{:,.0f}"),
)
SEED = Column("seed", "seed")  # where there are several
TRANSLATIONS = "translations.txt"  # of the test set, in a run directory
TABLES = (
    Summary(
        name="quickstart",
        columns=[*COLUMNS[1:-1], Column("epochs", "epochs", "{:g}")],
    ),
)


@dataclass(frozen=True, kw_only=True)
class Quickstart(Options):
    """Options of the quickstart."""

    workdir: Path = Path("runs/quickstart")  # where everything is written
    epochs: Annotated[int, at_least(1)] = 5  # of the baseline
    # of the memory model, which starts from the baseline
    warm_epochs: Annotated[int, at_least(1)] = 2
    pairs: Annotated[int, at_least(1)] = 8000  # training pairs
    # pairs to validate on, and as many to test on
    held_out: Annotated[int, at_least(1)] = 400
    corpus_seed: int = 1  # seed of the corpus


def main(
    options: Quickstart, train: Train = training.run, base: Experiment = BASE
) -> None:
    """Makes the corpus, trains both systems, and shows what came out."""
    console = people_console(stderr=False)
    held_out = options.held_out
    corpus = synthetic.make_corpus(
        options.corpus_seed, options.pairs, held_out, held_out
    )
    rows = [
        configure(options, name, seed, base, corpus)
        for seed in options.seeds
        for name in SYSTEMS
    ]
    _, references = made_up.lines_of(corpus.test)
    signature = corpus_bleu(references, references, tokenize="none").signature
    table = Table(
        title="on sentences never seen",
        columns=COLUMNS if len(options.seeds) == 1 else (*COLUMNS, SEED),
        rows=rows,
        notes=["dropped, repeated: share of source words", f"BLEU: {signature}"],
        texts=[
            Text(
                key=f"{options.corpus_seed} {options.pairs} {held_out}",
                write=lambda: synthetic.write_corpus(
                    corpus, options.workdir / "corpus"
                ),
            )
        ],
    )
    done = make_table(options, table, train)
    if len(done) == len(rows) and not options.looks:
        show_translations(console, options, corpus.test)
        show_next(console, options, corpus.test)


def run_folder(options: Quickstart, name: str, seed: int) -> Path:
    """The run directory of a row; of seed 1 it says none."""
    return options.workdir / (name if seed == 1 else f"{name}-{seed}")


def configure(
    options: Quickstart, name: str, seed: int, base: Experiment, corpus: Corpus
) -> Row:
    """The row of one system; the second starts from the first."""
    warm = name != BASELINE
    experiment = with_system(
        replace(
            base,
            data=parallel_text(base.data, options.workdir / "corpus", "src", "trg"),
            optimizer=OptimizerConfig(
                learning_rate=1e-3 if warm else 2e-3,
                decay=0.5,
                decay_after=1 if warm else 3,
            ),
        ),
        name,
        epochs=options.warm_epochs if warm else options.epochs,
        seed=seed,
        warm_start=run_folder(options, BASELINE, seed) if warm else None,
    )
    return Row(
        folder=run_folder(options, name, seed),
        system=name,
        experiment=experiment,
        measure=partial(measure, corpus.test),
        tests=made_up.test_files(options.workdir / "corpus"),
    )


def measure(pairs: Sequence[Pair], trained: Trained) -> Figures:
    """BLEU, AER and adequacy; the translations stay in the run directory."""
    source, _ = made_up.lines_of(pairs)
    hypotheses = trained.run.translate(source)
    write_lines(trained.folder / TRANSLATIONS, hypotheses)
    return made_up.measure(trained.run, hypotheses, pairs)


def show_translations(
    console: Console, options: Quickstart, pairs: Sequence[Pair]
) -> None:
    """Prints three test sentences, those where the systems differ first."""
    folders = {name: run_folder(options, name, options.seeds[0]) for name in SYSTEMS}
    hypotheses = {n: read_lines(f / TRANSLATIONS) for n, f in folders.items()}
    source, references = made_up.lines_of(pairs)
    texts = {"source": source, "reference": references, **hypotheses}
    baseline, extended = hypotheses[BASELINE], hypotheses[EXTENDED]
    differ = sorted(range(len(pairs)), key=lambda i: baseline[i] == extended[i])
    width = max(map(len, texts))
    for i in differ[:3]:
        console.print()
        for name, lines in texts.items():
            console.print(f"  {name:{width}}  {lines[i]}", highlight=False)


def show_next(console: Console, options: Quickstart, pairs: Sequence[Pair]) -> None:
    """Draws the attention of a sentence and says what to do next."""
    folders = {name: run_folder(options, name, options.seeds[0]) for name in SYSTEMS}
    run = load_run(folders[EXTENDED])
    pair = max(pairs, key=lambda pair: (len(pair.source) <= 14, len(pair.source)))
    source, target = made_up.lines_of([pair])
    rounds = run.align(source, target)[0]
    tokens = [
        words.pieces(words.encode(line))
        for words, [line] in zip(run.vocabularies, (source, target))
    ]
    whole = tokens == [[*pair.source], [*pair.target]]  # and no words in pieces
    picture = options.workdir / "attention.png"
    attention_heatmap(
        rounds,
        [*tokens[0], "</s>"],
        [*tokens[1], "</s>"],
        picture,
        gold=pair.links if whole else None,
    )
    runs = " ".join(map(str, folders.values()))
    text = options.workdir / "corpus"
    for line in (
        f"\nThe attention of both rounds: {picture}",
        "Translate a sentence with what was just trained:",
        f'  echo "{source[0]}" | kvnmt translate {folders[EXTENDED]}',
        "Look at both, word by word, in a page that a browser opens:",
        f"  kvnmt explore {runs} --source {text / 'test.src'} "
        f"--reference {text / 'test.trg'}",
    ):
        say(line, console)


if __name__ == "__main__":
    launch(Quickstart, main, __doc__)
