# SPDX-License-Identifier: Apache-2.0
r"""RNNsearch* and JoeyNMT with each other's recipe: how much the recipe explains.

Claim: that RNNsearch* of `experiments.multi30k` is 8.2 BLEU above JoeyNMT's model of
the same sizes, vocabulary, beam and epochs (39.69 and 31.53) comes from the recipe.
Most of it does: JoeyNMT reaches 38.20 with our recipe. RNNsearch* reaches 33.10 with
JoeyNMT's, and 40.35 (one seed) with batches of 40 and not of 80: the whole difference.

Setting: RNNsearch* is trained as JoeyNMT 2.3.0 was, and with one ingredient of our
recipe instead: the size of batches, label smoothing, or dropout of annotations.
JoeyNMT's recipe is batches of 80, no label smoothing, dropout 0.2 on embeddings, 0.5 on
the readout, none on annotations, which are concatenated; Glorot's matrices and
embeddings N(0, 0.1²); the rate times 0.85 after each epoch; pairs of up to 60 words.
With ``--peer-python`` JoeyNMT itself is trained, too: as it was, and with what it can
take of the recipe of `experiments.multi30k`: batches of 40 and label smoothing 0.1. Our
row with batches of 80 took 20 minutes on two cores. With batches of 40 it took 74 on
two slower cores that also did other work. JoeyNMT's rows took 130 on one core that did
other work, too; they start again from the beginning if they are interrupted.

What still differs: JoeyNMT feeds the attentional vector back into the decoder, and its
state is not refined after the context is read (one GRU for a word, not two). It has no
dropout of annotations, and concatenates them. It divides the loss by sentences, by its
default, and ours by tokens: its gradients are longer, and clipped more often. Results:
experiments/findings/captions.md.

Launch::

    python -m experiments.even_match --data DATA/multi30k/tok
    python -m experiments.even_match --data DATA/multi30k/tok \
        --peer-python peer/bin/python    # an environment in which JoeyNMT is installed
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

from experiments.harness.results import Figures
from experiments.harness.rows import AnyRow, OtherRow, Row, Train, Trained
from experiments.harness.summaries import Summary
from experiments.harness.table import Table, launch, make_table
from experiments.multi30k import BASE, BASELINE, Multi30k, configure
from experiments.parts import captions
from experiments.parts.ingredients import Change, with_part
from kvnmt.benchmark.peers import joeynmt
from kvnmt.benchmark.peers.base import Search, Task
from kvnmt.benchmark.processes import Installed, run, version
from kvnmt.console import say
from kvnmt.data.outputs import write_lines
from kvnmt.data.text import Parallel
from kvnmt.errors import Idle, check_given
from kvnmt.evaluation.base import Column
from kvnmt.fields import at_least
from kvnmt.files import make_folder
from kvnmt.machine import cores
from kvnmt.model.config import Dropout
from kvnmt.runs import train as training
from kvnmt.runs.config import Experiment, changed_fields
from kvnmt.training.losses import Objective

RECIPE = "JoeyNMT's"
LONGEST = 60  # words of a sentence
FALL = 0.85  # of the rate after each epoch, in both recipes
# JoeyNMT's recipes, by how a table calls them: pairs in a batch, label smoothing.
PEER_RECIPES: Mapping[str, tuple[int, float]] = {
    RECIPE: (80, 0.0),
    "that of experiments.multi30k": (
        BASE.training.batch_size,
        BASE.objective.label_smoothing,
    ),
}
# What our rows take of our recipe instead, each by itself.
OURS: Mapping[str, Change] = {
    RECIPE: lambda plain: plain,
    f"{RECIPE} with batches of {BASE.training.batch_size}": partial(
        with_part, "training", {"batch_size": BASE.training.batch_size}
    ),
    f"{RECIPE} with label smoothing": lambda plain: replace(
        plain, objective=BASE.objective
    ),
    f"{RECIPE} with dropout of annotations": partial(
        with_part, "model", {"dropout": BASE.model.dropout}
    ),
}
COLUMNS = (
    Column("system", "system"),
    Column("recipe", "recipe"),
    Column("parameters", "parameters", "{:,}"),
    Column("valid_bleu", "BLEU valid", "{:.2f}"),
    Column("test2016_bleu", "BLEU test2016", "{:.2f}"),
    Column("minutes", "minutes", "{:.1f}"),
    Column("best_epoch", "best epoch", "{:.3g}"),
    Column("seed", "seed"),
)
TABLES = (
    Summary(
        name="even_match",
        data="de-en",
        by=("system", "recipe"),
        columns=COLUMNS[2:-1],
        differences={
            f"{BASELINE}, {RECIPE}": "no input feeding, two GRUs for a word",
            "JoeyNMT, that of experiments.multi30k": "no dropout of annotations, which "
            "are concatenated",
        },
    ),
)


@dataclass(frozen=True, kw_only=True)
class EvenMatch(captions.CaptionOptions):
    """Options of the experiment."""

    workdir: Path = Path("runs/even_match")  # where the runs are written
    epochs: Annotated[int, at_least(1)] = 12  # at most
    peer_python: Path | None = None  # Python that has JoeyNMT: adds its rows
    threads: Annotated[int, at_least(1)] = cores()  # of JoeyNMT


def main(options: EvenMatch, train: Train = training.run) -> None:
    """Trains what is not yet trained and prints the table."""
    if not options.peer_python:
        why = "{0} is of JoeyNMT; give {1} too, or leave it out."
        check_given(options, [Idle(("threads",), why, ("peer_python",))], EvenMatch)
    base = Multi30k(
        data=options.data,
        workdir=options.workdir,
        source=options.source,
        target=options.target,
        epochs=options.epochs,
    )
    texts = options.read()
    rows: list[AnyRow] = [
        row_of(base, recipe, seed, texts) for recipe in OURS for seed in options.seeds
    ]
    if options.peer_python:
        peer = Installed(joeynmt.PROGRAM, options.peer_python)
        rows += [
            peer_row(options, peer, recipe, seed, texts)
            for recipe in PEER_RECIPES
            for seed in options.seeds
        ]
    title = f"Multi30k {options.captions.pair}, under the recipe of another program"
    make_table(options, Table(title, COLUMNS, rows, [captions.NOTE]), train)


def row_of(base: Multi30k, recipe: str, seed: int, texts: dict[str, Parallel]) -> Row:
    """RNNsearch* from scratch, with another recipe."""
    row = configure(base, BASELINE, "scratch", seed, texts)
    parts = base.captions.pair, "joeynmt", *recipe.split()[1:], str(seed)
    plain = under_its_recipe(row.experiment)
    return replace(
        row,
        folder=base.workdir / "-".join(parts),
        experiment=(changed := OURS[recipe](plain)),
        named_for=changed_fields(plain, changed),
        measure=partial(measure, row, recipe),
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
        data=replace(experiment.data, max_length=LONGEST),
        optimizer=replace(experiment.optimizer, decay=FALL),
        training=replace(experiment.training, batch_size=80),
    )


def peer_row(
    options: EvenMatch,
    peer: Installed,
    recipe: str,
    seed: int,
    texts: dict[str, Parallel],
) -> OtherRow:
    """JoeyNMT, trained by its own program."""
    text, splits = options.captions, ("train", *captions.MEASURED)
    name = "its" if recipe == RECIPE else "ours"
    folder = options.workdir / f"{text.pair}-joeynmt-itself-{name}-{seed}"
    if not options.looks:
        version(peer)  # complains before anything is done
    return OtherRow(
        folder=folder,
        system=peer.program.name,
        data=text.pair,
        tests=tuple(path for split in splits for path in text.files(split)),
        work=partial(train_peer, options, peer, recipe, seed, texts, folder),
        config=f"{recipe}, {options.epochs} epochs",
    )


def train_peer(
    options: EvenMatch,
    peer: Installed,
    recipe: str,
    seed: int,
    texts: dict[str, Parallel],
    folder: Path,
) -> Figures:
    """Trains it, translates with it, and gives BLEU on every text."""
    make_folder(folder)
    text = options.captions.linked(folder / "text")
    model, task = folder / "model", task_of(options, text, recipe, seed)
    changes = {"decrease_factor": FALL, "label_smoothing": PEER_RECIPES[recipe][1]}
    commands = joeynmt.train(task, model, changes)
    log = folder / "train.log"
    say(f"{peer.program.name} trains; it tells how far it is in '{log}'")
    trained = run(peer, commands, threads=task.threads, log=log)
    told = re.search(r"Total params: ([\d,]+)", trained.log)  # if its version does

    def translate(lines: Sequence[str]) -> Sequence[str]:
        path = folder / "lines"
        write_lines(path, lines)
        command = joeynmt.translate(model, Search(BASE.search.beam, 50, LONGEST))
        log = folder / "translate.log"
        return run(peer, [command], threads=task.threads, log=log, lines=path).lines

    hypotheses = captions.translated(texts, translate, folder, options.target)
    return captions.scores(texts, hypotheses) | {
        "recipe": recipe,
        "joeynmt": version(peer),
        "seed": seed,
        "start": "scratch",
        "parameters": int(told[1].replace(",", "")) if told else None,
        "minutes": trained.seconds / 60,
    }


def task_of(options: EvenMatch, text: Path, recipe: str, seed: int) -> Task:
    """What JoeyNMT is asked to train: the text, and the sizes of our row."""
    lines = (text / f"train.{options.target}").read_bytes()
    return Task(
        text=text,
        source=options.source,
        target=options.target,
        pairs=lines.count(b"\n"),
        longest=LONGEST,
        system=BASELINE,
        embedding=BASE.model.embedding,
        encoder=BASE.model.encoder,
        state=BASE.model.state,
        embedding_dropout=BASE.model.dropout.embedding,
        output_dropout=BASE.model.dropout.output,
        batch_size=PEER_RECIPES[recipe][0],
        epochs=options.epochs,
        threads=options.threads,
        seed=seed,
    )


def measure(row: Row, recipe: str, trained: Trained) -> Figures:
    """What is measured of every row of the captions, and the name of the recipe."""
    return row.measure(trained) | {"recipe": recipe}


if __name__ == "__main__":
    launch(EvenMatch, main, __doc__)
