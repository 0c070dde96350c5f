# SPDX-License-Identifier: Apache-2.0
"""Systems, or attention functions, side by side on text of your own, over seeds.

Claim: none. All rows have the same text, recipe and budget and differ in what is named
alone; each system stands with the mean and the standard deviation over the seeds, and
with tests against the first one: Welch's over the seeds, of three at least, and the
paired bootstrap over the sentences of each seed.

Setting: the recipe of `kvnmt train`. The text that is trained on is given by the same
flags, and so is the tokenizer of BLEU. ``--attentions`` are put in the place of that of
the first system. An attention function of your own is named like any other, behind
``--import FILE.py``.

Launch::

    python -m experiments.compare --seeds 1 2 3 --attentions kv_memory slots \
        --data.source train.ja --data.target train.en \
        --data.valid-source valid.ja --data.valid-target valid.en \
        --test-source test.ja --test-target test.en
    python -m experiments.compare ... --systems rnnsearch-star self-attentive-residual
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from experiments.harness.results import Figures
from experiments.harness.rows import Row, Train, Trained
from experiments.harness.significance import (
    Against,
    p_over_seeds,
    p_over_sentences,
    packed_counts,
)
from experiments.harness.summaries import mean_and_spread
from experiments.harness.table import Options, Table, launch, make_table
from experiments.parts.recipes import with_system
from kvnmt import attention
from kvnmt.data.text import Parallel, read_parallel
from kvnmt.errors import UserError
from kvnmt.evaluation.base import Column
from kvnmt.files import in_file, write_lines
from kvnmt.metrics.bleu import Settings, corpus_bleu, corpus_chrf
from kvnmt.runs import train as training
from kvnmt.runs.config import changed_fields
from kvnmt.runs.idle import check_rounds
from kvnmt.runs.recipes import RECIPES
from kvnmt.systems.named import system

RECIPE = RECIPES["modern"]
COUNTS = "test_counts"
COLUMNS = (
    Column("system", "system"),
    Column("parameters", "parameters", "{:,}"),
    Column("bleu", "BLEU"),
    Column("chrf", "chrF2"),
    Column("valid_loss", "valid loss"),
    Column("minutes", "minutes"),
    Column("seeds", "seeds"),
    Column("p_seeds", "p over seeds", "{:.3f}"),
    Column("p_sentences", "p over sentences, seed by seed"),
)
SPREAD = {
    "bleu": "{:.2f}",
    "chrf": "{:.2f}",
    "valid_loss": "{:.3f}",
    "minutes": "{:.1f}",
}


@dataclass(frozen=True, kw_only=True)
class Compare(Options):
    """Options of the experiment."""

    test_source: Path  # text that is measured on
    test_target: Path
    workdir: Path = Path("runs/compare")  # where the runs are written
    systems: tuple[str, ...] = ("rnnsearch-star",)  # names of kvnmt systems
    attentions: tuple[str, ...] = ()  # in the place of that of the first system


def main(options: Compare, train: Train = training.run) -> None:
    """Trains what is not yet trained and prints the table.

    Raises:
        UserError: There is no such system or attention, text cannot be read, there is
            nothing to compare, or a row failed.
    """
    files = options.test_source, options.test_target
    text = None if options.looks else read_parallel(*files)
    names = [(name, "") for name in options.systems]
    names += [(options.systems[0], name) for name in options.attentions]
    if len(names) < 2 and len(options.seeds) < 2:
        raise UserError(
            "there is nothing to compare; name --attentions, two --systems or --seeds."
        )
    rows = [
        configure(options, name, other, seed, text)
        for name, other in names
        for seed in options.seeds
    ]
    baseline = rows[0].system
    title = f"{options.test_target.name}, p against {baseline}"
    notes = ["BLEU as the tokenizer of training has it; mean ± standard deviation"]
    lines = partial(summarised, baseline)
    make_table(options, Table(title, COLUMNS, rows, notes, lines=lines), train)


def configure(
    options: Compare, name: str, other: str, seed: int, text: Parallel | None
) -> Row:
    """The row of a system, perhaps with another attention.

    Raises:
        UserError: There is no such system or attention, it is a language model, or its
            rounds would be for nothing.
    """
    if system(name).is_language_model:
        raise UserError(f"{name} is a language model, which translates nothing.")
    plain = with_system(RECIPE, name, epochs=RECIPE.training.epochs, seed=seed)
    experiment = plain
    if other:
        chosen = attention.CATALOGUE[other].Options()
        experiment = replace(plain, model=replace(plain.model, attention=chosen))
        check_rounds(experiment.model)
    called = f"{name} with {other}" if other else name
    return Row(
        folder=options.workdir / f"{in_file(called.replace(' ', '-'))}-{seed}",
        system=called,
        experiment=experiment,
        named_for=changed_fields(plain, experiment),
        measure=partial(measure, text),
        tests=(options.test_source, options.test_target),
    )


def measure(text: Parallel | None, trained: Trained) -> Figures:
    """BLEU and chrF of the test text; the translations stay in the folder."""
    assert text is not None  # rows that are only looked at are not measured
    hypotheses = trained.run.translate(text.source)
    write_lines(trained.folder / "test.txt", hypotheses)
    settings = Settings(trained.run.experiment.training.bleu_tokenize)
    bleu = corpus_bleu(hypotheses, text.target, tokenize=settings.tokenize)
    return {
        "bleu": bleu.score,
        "signature": bleu.signature,
        "chrf": corpus_chrf(hypotheses, text.target).score,
        COUNTS: packed_counts(hypotheses, text.target, settings),
    }


def summarised(baseline: str, results: Sequence[Figures]) -> list[Figures]:
    """A line for every system, with its seeds together.

    Args:
        baseline: The system that others are tested against, where it has results.
        results: Those that are there.
    """
    groups: dict[str, list[Figures]] = {}
    for result in results:
        groups.setdefault(result["system"], []).append(result)
    against, base, lines = Against({}, "bleu", COUNTS), groups.get(baseline), []
    for name, group in groups.items():
        line: Figures = {"system": name, "parameters": group[0]["parameters"]}
        for key, form in SPREAD.items():
            line[key] = mean_and_spread([result[key] for result in group], form)
        line["seeds"] = " ".join(str(result["seed"]) for result in group)
        if base and name != baseline:
            line["p_seeds"] = p_over_seeds(group, base, against)
            each = p_over_sentences(group, base, against)
            line["p_sentences"] = ", ".join(f"{p:.3f}" for p in each)
        lines.append(line)
    return lines


if __name__ == "__main__":
    launch(Compare, main, __doc__)
