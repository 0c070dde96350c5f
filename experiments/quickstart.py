# SPDX-License-Identifier: Apache-2.0
"""The main job in a few minutes, with no files and no network.

Makes a bilingual corpus with gold word alignments from a small grammar, trains
RNNsearch* on it and, from there as its paper does, KVMemAtt-R2 + ATTEOS, and prints
what the papers print: BLEU, alignment error rate, parameters, speed. Writes run
directories, a picture of the attention of both rounds, and tells how to translate a
sentence of your own.

Launch::

    python -m experiments.quickstart [--folder runs/quickstart] [--epochs 7]
"""

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console

from experiments import made_up
from experiments.table import parallel_text, small_model, with_system
from kvnmt.console import say
from kvnmt.data import synthetic
from kvnmt.data.config import DataConfig
from kvnmt.data.synthetic import Pair
from kvnmt.errors import run_program
from kvnmt.evaluation.base import Column, Report, table
from kvnmt.inference.program import SearchConfig
from kvnmt.inference.score import align_lines
from kvnmt.inference.translate import translate_lines
from kvnmt.metrics.bleu import corpus_bleu
from kvnmt.model_config import Dropout
from kvnmt.models import count_parameters
from kvnmt.pictures.heatmaps import attention_heatmap
from kvnmt.runs import train as training
from kvnmt.runs.config import Experiment
from kvnmt.runs.directory import Run, load_run
from kvnmt.training.config import TrainingConfig
from kvnmt.training.optimizer import OptimizerConfig

BASELINE, EXTENDED = SYSTEMS = ("rnnsearch-star", "kvmematt-r2-atteos")
BASE = Experiment(
    model=small_model(64, 128, Dropout(output=0.2)),
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
    Column("tokens_per_second", "tokens/s", "{:,.0f}"),
)


@dataclass(frozen=True)
class Quickstart:
    """Options of the quickstart."""

    folder: Path = Path("runs/quickstart")  # where everything is written
    epochs: int = 7  # of the baseline
    warm_epochs: int = 4  # of the memory model, which starts from the baseline
    pairs: int = 8000  # training pairs
    held_out: int = 400  # pairs to validate on, and as many to test on
    seed: int = 1


def main(
    options: Quickstart, console: Console | None = None, base: Experiment = BASE
) -> dict[str, Run]:
    """Makes the corpus, trains both systems, and shows what came out."""
    console = console or Console()
    start = time.monotonic()
    corpus = synthetic.make_corpus(
        options.seed, options.pairs, options.held_out, options.held_out
    )
    synthetic.write_corpus(corpus, options.folder / "corpus")
    console.rule("a language of our own")
    for pair in corpus.test[:2]:
        console.print("  " + " ".join(pair.source), highlight=False)
        console.print("  " + " ".join(pair.target) + "\n", style="bold")
    runs, hypotheses, figures = {}, {}, []
    for name in SYSTEMS:
        console.rule(name)
        folder = options.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        result = training.run(configure(name, options, base), folder, console=console)
        runs[name] = run = load_run(folder)
        source, _ = made_up.lines_of(corpus.test)
        hypotheses[name] = translate_lines(run, source, run.experiment.search)
        figures.append(
            {
                "system": name,
                "parameters": count_parameters(run.params),
                "tokens_per_second": result.tokens_per_second,
                **made_up.measure(run, hypotheses[name], corpus.test),
            }
        )
    show_figures(console, figures, corpus.test)
    show_translations(console, hypotheses, corpus.test)
    show_next(console, options, runs[EXTENDED], corpus.test)
    console.print(f"{time.monotonic() - start:.0f} seconds in all", highlight=False)
    return runs


def configure(name: str, options: Quickstart, base: Experiment) -> Experiment:
    """The experiment of one system; the second starts from the first."""
    warm = name != BASELINE
    return with_system(
        replace(
            base,
            data=parallel_text(base.data, options.folder / "corpus", "src", "trg"),
            optimizer=OptimizerConfig(
                learning_rate=1e-3 if warm else 2e-3,
                decay=0.7,
                decay_after=1 if warm else 4,
            ),
        ),
        name,
        epochs=options.warm_epochs if warm else options.epochs,
        seed=options.seed,
        warm_start=options.folder / BASELINE if warm else None,
    )


def show_figures(
    console: Console, figures: list[dict[str, Any]], pairs: Sequence[Pair]
) -> None:
    """Prints the table; its notes fit a terminal of 80 columns."""
    _, references = made_up.lines_of(pairs)
    signature = corpus_bleu(references, references, tokenize="none").signature
    console.rule("on sentences never seen")
    console.print(table(Report("", COLUMNS, figures)))
    for note in ("dropped, repeated: share of source words", f"BLEU: {signature}"):
        say(note, console)


def show_translations(
    console: Console, hypotheses: Mapping[str, list[str]], pairs: Sequence[Pair]
) -> None:
    """Prints three test sentences, those where the systems differ first."""
    source, references = made_up.lines_of(pairs)
    texts = {"source": source, "reference": references, **hypotheses}
    baseline, extended = hypotheses[BASELINE], hypotheses[EXTENDED]
    differ = sorted(range(len(pairs)), key=lambda i: baseline[i] == extended[i])
    width = max(map(len, texts))
    for i in differ[:3]:
        console.print()
        for name, lines in texts.items():
            console.print(f"  {name:{width}}  {lines[i]}", highlight=False)


def show_next(
    console: Console, options: Quickstart, run: Run, pairs: Sequence[Pair]
) -> None:
    """Draws the attention of a sentence and says what to do next."""
    pair = max(pairs, key=lambda pair: (len(pair.source) <= 14, len(pair.source)))
    source, target = made_up.lines_of([pair])
    rounds = align_lines(run, source, target)[0]
    picture = options.folder / "attention.png"
    attention_heatmap(
        rounds,
        [*pair.source, "</s>"],
        [*pair.target, "</s>"],
        picture,
        titles=[f"round {r + 1}" for r in range(len(rounds))],
        gold=pair.links,
    )
    runs = " ".join(str(options.folder / name) for name in SYSTEMS)
    text = options.folder / "corpus"
    for line in (
        f"\nThe attention of both rounds: {picture}",
        "Translate a sentence with what was just trained:",
        f'  echo "{source[0]}" | kvnmt translate {options.folder / EXTENDED}',
        "Look at both, word by word, in a page that a browser opens:",
        f"  kvnmt explore {runs} --source {text / 'test.src'} "
        f"--reference {text / 'test.trg'}",
    ):
        say(line, console)


if __name__ == "__main__":
    run_program("quickstart", lambda: main(tyro.cli(Quickstart, description=__doc__)))
