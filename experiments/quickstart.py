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
from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console
from rich.table import Table

from kvnmt.data import synthetic
from kvnmt.data.config import DataConfig
from kvnmt.data.synthetic import Pair
from kvnmt.errors import run_program
from kvnmt.inference.program import SearchConfig
from kvnmt.inference.score import align_lines
from kvnmt.inference.translate import translate_lines
from kvnmt.metrics.adequacy import Coverage, coverage_by_gold
from kvnmt.metrics.alignment import alignment_error_rate, hard_links
from kvnmt.metrics.bleu import corpus_bleu
from kvnmt.metrics.links import Gold
from kvnmt.model_config import Dropout, ModelConfig
from kvnmt.models import count_parameters
from kvnmt.pictures.heatmaps import attention_heatmap
from kvnmt.runs import directory
from kvnmt.runs import train as experiment
from kvnmt.runs.config import Experiment
from kvnmt.runs.directory import Run
from kvnmt.systems.named import system
from kvnmt.training.config import TrainingConfig
from kvnmt.training.optimizer import OptimizerConfig

SYSTEMS = ("rnnsearch-star", "kvmematt-r2-atteos")
STEM = 4  # letters that tell target words of the language apart; endings follow


@dataclass(frozen=True)
class Quickstart:
    """Options of the quickstart."""

    folder: Path = Path("runs/quickstart")  # where everything is written
    epochs: int = 7  # of the baseline
    warm_epochs: int = 4  # of the memory model, which starts from the baseline
    pairs: int = 8000  # training pairs
    seed: int = 1


def main(options: Quickstart, console: Console | None = None) -> dict[str, Run]:
    """Makes the corpus, trains both systems, and shows what came out."""
    console = console or Console()
    start = time.monotonic()
    corpus = synthetic.make_corpus(options.seed, train=options.pairs)
    synthetic.write_corpus(corpus, options.folder / "corpus")
    console.rule("a language of our own")
    for pair in corpus.test[:2]:
        console.print("  " + " ".join(pair.source), highlight=False)
        console.print("  " + " ".join(pair.target) + "\n", style="bold")
    runs, speeds = {}, {}
    for name in SYSTEMS:
        console.rule(name)
        folder = options.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        result = experiment.run(configure(name, options), folder, console=console)
        runs[name] = directory.load_run(folder)
        speeds[name] = result.tokens_per_second
    console.rule("on sentences never seen")
    outputs = {name: _translate(run, corpus.test) for name, run in runs.items()}
    console.print(_table(runs, speeds, outputs, corpus.test))
    _show_translations(console, outputs, corpus.test)
    _show_next(console, options, runs[SYSTEMS[-1]], corpus.test)
    console.print(f"{time.monotonic() - start:.0f} seconds in all", highlight=False)
    return runs


def configure(name: str, options: Quickstart) -> Experiment:
    """The experiment of one system: small sizes, everything else as usual."""
    text = options.folder / "corpus"
    base = None if name == SYSTEMS[0] else options.folder / SYSTEMS[0]
    sizes = ModelConfig(
        embedding=64,
        encoder=128,
        state=128,
        merge="sum",
        initializer="glorot",
        dropout=Dropout(output=0.2),
    )
    return Experiment(
        model=system(name).model(sizes),
        objective=system(name).objective(),
        data=DataConfig(
            source=text / "train.src",
            target=text / "train.trg",
            valid_source=text / "valid.src",
            valid_target=text / "valid.trg",
            min_count=1,
        ),
        optimizer=OptimizerConfig(
            learning_rate=1e-3 if base else 2e-3,
            decay=0.7,
            decay_after=1 if base else 4,
        ),
        training=TrainingConfig(
            epochs=options.warm_epochs if base else options.epochs,
            batch_size=40,
            shapes=4,
            seed=options.seed,
            bleu_tokenize="none",
            warm_start=base,
        ),
        search=SearchConfig(beam=5),
    )


def alignment_error(run: Run, pairs: tuple[Pair, ...]) -> float:
    """AER of the reading alignment under forced decoding of the references."""
    source, target = _lines(pairs)
    matrices = align_lines(run, source, target)
    links = [
        hard_links(rounds[-1], len(pair.source), len(pair.target))
        for rounds, pair in zip(matrices, pairs)
    ]
    gold = [Gold(sure=pair.links, possible=pair.links) for pair in pairs]
    return alignment_error_rate(links, gold).aer


def adequacy(outputs: list[str], pairs: tuple[Pair, ...]) -> Coverage:
    """What of the sources was dropped or said twice, exactly, since gold is known."""
    total = Coverage()
    for output, pair in zip(outputs, pairs, strict=True):
        given = pair.source, pair.target, pair.links, output.split()
        total += coverage_by_gold(*given, stem=lambda word: word[:STEM])
    return total


def _translate(run: Run, pairs: tuple[Pair, ...]) -> list[str]:
    source, _ = _lines(pairs)
    search = run.experiment.search
    return translate_lines(run, source, search)


def _lines(pairs: tuple[Pair, ...]) -> tuple[list[str], list[str]]:
    source = [" ".join(pair.source) for pair in pairs]
    return source, [" ".join(pair.target) for pair in pairs]


def _table(
    runs: dict[str, Run],
    speeds: dict[str, float],
    outputs: dict[str, list[str]],
    pairs: tuple[Pair, ...],
) -> Table:
    _, references = _lines(pairs)
    table = Table(
        *("system", "parameters", "BLEU", "AER %", "dropped %", "repeated %"),
        "tokens/s",
        box=None,
    )
    table.columns[0].no_wrap = True  # names are told whole
    for name, run in runs.items():
        bleu = corpus_bleu(outputs[name], references, tokenize="none")
        table.add_row(
            name,
            f"{count_parameters(run.params):,}",
            f"{bleu.score:.2f}",
            f"{100 * alignment_error(run, pairs):.1f}",
            f"{100 * adequacy(outputs[name], pairs).under:.2f}",
            f"{100 * adequacy(outputs[name], pairs).over:.2f}",
            f"{speeds[name]:,.0f}",
        )
        table.caption = f"dropped, repeated: source words; BLEU: {bleu.signature}"
    return table


def _show_translations(
    console: Console, outputs: dict[str, list[str]], pairs: tuple[Pair, ...]
) -> None:
    """Prints three test sentences, those where the systems differ first."""
    source, references = _lines(pairs)
    differ = sorted(
        range(len(pairs)),
        key=lambda i: outputs[SYSTEMS[0]][i] == outputs[SYSTEMS[1]][i],
    )
    width = max(len(name) for name in (*SYSTEMS, "reference"))
    for i in differ[:3]:
        console.print(f"\n  {'source':{width}}  {source[i]}", highlight=False)
        console.print(f"  {'reference':{width}}  {references[i]}", highlight=False)
        for name, lines in outputs.items():
            console.print(f"  {name:{width}}  {lines[i]}", highlight=False)


def _show_next(
    console: Console, options: Quickstart, run: Run, pairs: tuple[Pair, ...]
) -> None:
    """Draws the attention of a sentence and says what to do next."""
    pair = max(pairs, key=lambda pair: (len(pair.source) <= 14, len(pair.source)))
    source, target = _lines((pair,))
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
    console.print(f"\nThe attention of both rounds: {picture}", highlight=False)
    console.print("Translate a sentence with what was just trained:", highlight=False)
    console.print(
        f'  echo "{source[0]}" | kvnmt translate {options.folder / SYSTEMS[-1]}',
        highlight=False,
        soft_wrap=True,
    )
    runs = " ".join(str(options.folder / name) for name in SYSTEMS)
    text = options.folder / "corpus"
    console.print(
        "Look at both, word by word, in a page that a browser opens:\n"
        f"  kvnmt explore {runs} --source {text / 'test.src'} "
        f"--reference {text / 'test.trg'}",
        highlight=False,
        soft_wrap=True,
    )


if __name__ == "__main__":
    run_program("quickstart", lambda: main(tyro.cli(Quickstart, description=__doc__)))
