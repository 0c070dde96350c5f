# SPDX-License-Identifier: Apache-2.0
"""Alignment error of attention on text that people aligned, beside a word aligner's.

Claim (Meng et al. 2018, table 4, 900 Chinese-English pairs): RNNsearch* 39.97, R1
37.70, R1 + ATTEOS 36.89, R2 35.70, R2 + ATTEOS 35.39% AER. Here the systems are
trained on small free text and read hand-aligned text of another domain: French to
English on Tatoeba, read on Hansards of the Canadian parliament; Japanese to English on
Tanaka, read on Wikipedia articles on Kyoto. Results: experiments/README.md.

The text is not shipped. Get, below one folder, ``tatoeba-fren/{train,valid}.{fr,en}``,
``tanaka-enja/{train,valid}.{ja,en}``, and the hand alignments as
``align/hansards-enfr/dev.{en,fr,align}`` and ``align/kftt-jaen/dev.{ja,en,align}``
(Pharaoh format, ``i?j`` for possible links).

Launch::

    python -m experiments.alignment --data DATA
    python -m experiments.alignment --data DATA --pairs ja-en

Training text is lower-cased and tokenised as the hand-aligned text is; half of its
lines are two to four sentences in a row, since the hand-aligned ones are longer than
any sentence of the training text. Runs that are already finished are only read.
"""

import random
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import tyro
from rich.console import Console

from kvnmt.console import print_table
from kvnmt.data.config import DataConfig
from kvnmt.data.text import read_lines, read_parallel
from kvnmt.data.words import split_words
from kvnmt.errors import run_program
from kvnmt.evaluation import MEASURES, Report, System, Test, table
from kvnmt.files import write_lines
from kvnmt.metrics.links import Gold, check_links, read_gold, symmetrize
from kvnmt.model_config import Dropout, ModelConfig
from kvnmt.runs import train as experiment
from kvnmt.runs.config import Experiment
from kvnmt.runs.directory import load_run
from kvnmt.systems.named import system
from kvnmt.training.config import TrainingConfig
from kvnmt.training.optimizer import OptimizerConfig

BASELINE = "rnnsearch-star"
SYSTEMS = (
    "rnnsearch-star",
    "kvmematt-r2-atteos",
    "kvmematt-r1-atteos",
    "kvmematt-r2",
    "kvmematt-r1",
)
LEFT_OUT = (", intersection", ", union", ", grow-diag", ", grow-diag-final")


class Task(NamedTuple):
    """A language pair: where its text is, and how that is tokenised."""

    text: str  # folder of the training text
    gold: str  # folder of the hand-aligned text; its name ends with the languages
    tokenize: dict[str, Callable[[str], str]]


@dataclass(frozen=True)
class Alignment:
    """Options of the experiment."""

    data: Path  # folder of the text
    folder: Path = Path("runs/alignment")  # where text and runs are written
    pairs: tuple[str, ...] = ("fr-en", "ja-en")
    systems: tuple[str, ...] = SYSTEMS
    epochs: int = 4  # of the baselines, from scratch
    warm_epochs: int = 1  # of all systems, from the trained baseline
    seed: int = 1


def main(options: Alignment) -> None:
    """Trains what is not yet trained, then prints a table for each pair."""
    console = Console()
    for pair in options.pairs:
        _write_text(options, pair)
        _write_gold(options, pair)
        for name, start in _rows(options):
            _train(options, pair, name, start, console)
        _train(options, _turned(pair), BASELINE, "scratch", console)
        for report in _measured(options, pair):
            print_table(table(report), report.notes)


def configure(options: Alignment, pair: str, name: str, start: str) -> Experiment:
    """The experiment of one run."""
    source, target = pair.split("-")
    folder = _text_folder(options, pair)
    sizes = ModelConfig(
        embedding=192,
        encoder=192,
        state=192,
        merge="sum",
        initializer="unit",
        dropout=Dropout(embedding=0.1, output=0.3),
    )
    warm = start == "warm"
    base = _run_folder(options, pair, BASELINE, "scratch")
    return Experiment(
        model=system(name).model(sizes),
        objective=system(name).objective(),
        data=DataConfig(
            source=folder / f"train.{source}",
            target=folder / f"train.{target}",
            valid_source=folder / f"valid.{source}",
            valid_target=folder / f"valid.{target}",
            vocabulary="bpe",
            joint=True,
            subwords=8000,
        ),
        optimizer=OptimizerConfig(learning_rate=5e-4 if warm else 1e-3, decay=0.6),
        training=TrainingConfig(
            epochs=options.warm_epochs if warm else options.epochs,
            batch_tokens=1200,
            seed=options.seed,
            bleu_tokenize="none",
            warm_start=base if warm else None,
        ),
    )


def tokenize_french(line: str) -> str:
    """Words as in the Hansards: lower-cased, elisions written out (d' is de)."""
    tokens = re.findall(r"\w+['’]|\w+|[^\w\s]", line.lower())
    return " ".join(map(_written_out, tokens))


def _written_out(token: str) -> str:
    return token if token == "aujourd'" else re.sub(r"(\w)['’]$", r"\1e", token)


def tokenize_english(line: str) -> str:
    """Words as in the Hansards and in Tanaka's text: lower-cased, ``n't`` apart."""
    pattern = r"\w+(?=n['’]t\b)|n['’]t\b|['’]\w+|\w+|[^\w\s]"
    return " ".join(re.findall(pattern, line.lower()))


def _as_it_is(line: str) -> str:
    return line


TASKS = {
    "fr-en": Task(
        "tatoeba-fren",
        "hansards-enfr",
        {"fr": tokenize_french, "en": tokenize_english},
    ),
    "ja-en": Task("tanaka-enja", "kftt-jaen", {"ja": _as_it_is, "en": _as_it_is}),
}


def _rows(options: Alignment) -> Iterator[tuple[str, str]]:
    yield BASELINE, "scratch"
    for name in options.systems:
        yield name, "warm"


def _text_folder(options: Alignment, pair: str) -> Path:
    return options.folder / "text" / "-".join(sorted(pair.split("-")))


def _run_folder(options: Alignment, pair: str, name: str, start: str) -> Path:
    return options.folder / f"{pair}-{name}-{start}-{options.seed}"


def _turned(pair: str) -> str:
    return "-".join(reversed(pair.split("-")))


def _train(
    options: Alignment, pair: str, name: str, start: str, console: Console
) -> None:
    folder = _run_folder(options, pair, name, start)
    if (folder / "learning-curve.png").exists():
        return
    console.rule(folder.name)
    resume = (folder / "config.json").exists()
    config = configure(options, pair, name, start)
    experiment.run(config, folder, resume=resume, console=console)


def _write_text(options: Alignment, pair: str) -> None:
    """Writes the tokenised text that both directions train on, unless it is there."""
    task, sides = TASKS[pair], pair.split("-")
    folder = _text_folder(options, pair)
    if (folder / "train.en").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    for part in ("valid", "train"):
        read = read_parallel(*(options.data / task.text / f"{part}.{s}" for s in sides))
        pairs = [
            tuple(task.tokenize[side](line) for side, line in zip(sides, both))
            for both in zip(read.source, read.target)
        ]
        if part == "train":
            pairs = list(_in_rows(pairs, random.Random(options.seed)))
        for side, lines in zip(sides, zip(*pairs)):
            write_lines(folder / f"{part}.{side}", lines)


def _write_gold(options: Alignment, pair: str) -> None:
    """Writes the hand-aligned text, lower-cased, links in the direction of the pair."""
    task, sides, folder = TASKS[pair], pair.split("-"), _text_folder(options, pair)
    given = options.data / "align" / task.gold
    lengths: list[list[int]] = []
    for side in sides:
        lines = [line.lower() for line in read_lines(given / f"dev.{side}")]
        write_lines(folder / f"gold.{side}", lines)
        lengths.append([len(split_words(line)) for line in lines])
    gold = read_gold(given / "dev.align", len(lengths[0]))
    if not task.gold.endswith("".join(sides)):
        gold = [one.inverted() for one in gold]
    check_links(gold, lengths[0], lengths[1], given / "dev.align")
    write_lines(folder / "gold.align", map(_pharaoh, gold))


def _pharaoh(gold: Gold) -> str:
    links = sorted(gold.possible)
    return " ".join(f"{i}{'-' if (i, j) in gold.sure else '?'}{j}" for i, j in links)


def _measured(options: Alignment, pair: str) -> list[Report]:
    """Alignment error of every run and aligner, and BLEU on the validation text."""
    folder = _text_folder(options, pair)
    source, reference = (read_lines(folder / f"gold.{s}") for s in pair.split("-"))
    gold = read_gold(folder / "gold.align", len(source))
    turned = _run_folder(options, _turned(pair), BASELINE, "scratch")
    test = Test(reference, source, gold=gold, reverse=load_run(turned))
    test.aligners = _eflomal(options, pair)
    systems = []
    for name, start in _rows(options):
        run = load_run(_run_folder(options, pair, name, start))
        systems.append(System(f"{name}, {start}", list, run))
    found = MEASURES["alignment"](test, systems)
    assert isinstance(found, Report)
    rows = [row for row in found.rows if not row["system"].endswith(LEFT_OUT)]
    return [found._replace(rows=rows)]


def _eflomal(options: Alignment, pair: str) -> dict[str, list[Gold]]:
    """Alignments by eflomal, both ways and joined; none where it is not installed.

    It learns from the training text and from the hand-aligned sentences themselves,
    without their links, as such aligners are used.
    """
    if not shutil.which("eflomal-align"):
        return {}
    folder, sides = _text_folder(options, pair), pair.split("-")
    command = ["eflomal-align", "--overwrite", "--model", "3"]
    for flag, side in zip(("-s", "-t"), sides):
        texts = (read_lines(folder / f"{part}.{side}") for part in ("train", "gold"))
        write_lines(folder / f"eflomal.{side}", chain(*texts))
        command += [flag, str(folder / f"eflomal.{side}")]
    outputs = folder / "eflomal.forward", folder / "eflomal.reverse"
    subprocess.run([*command, "-f", outputs[0], "-r", outputs[1]], check=True)
    count = len(read_lines(folder / "gold.align"))
    both = [[one.sure for one in read_gold(path)[-count:]] for path in outputs]
    joined = [symmetrize(a, b, "grow-diag-final-and") for a, b in zip(*both)]
    names = "eflomal", "eflomal, the other direction", "eflomal, grow-diag-final-and"
    return {
        name: [Gold(links, links) for links in own]
        for name, own in zip(names, (*both, joined))
    }


def _in_rows(
    pairs: Iterable[tuple[str, ...]], draw: random.Random
) -> Iterator[tuple[str, ...]]:
    """Half of the lines as they are, the others two to four in a row."""
    pairs = iter(pairs)
    for pair in pairs:
        count = draw.choice([1, 1, 1, 2, 3, 4])
        some = [pair, *(other for _, other in zip(range(count - 1), pairs))]
        yield tuple(" ".join(side) for side in zip(*some))


if __name__ == "__main__":
    run_program("alignment", lambda: main(tyro.cli(Alignment, description=__doc__)))
