# SPDX-License-Identifier: Apache-2.0
"""What the modules of the papers share: their settings, their rows, their measures.

A module names the rows of its paper's tables and two settings: the paper's, for text of
your own, and a small one that takes minutes on two cores. Where the flags name no text,
the small one takes the made-up language.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from experiments.harness.results import Figures
from experiments.harness.rows import Row, Train, Trained
from experiments.harness.table import Table, make_table
from experiments.parts import made_up
from experiments.parts.ingredients import Change
from experiments.parts.paper_tables import SETTINGS
from experiments.parts.paper_texts import MadeUp, Material, PaperOptions, material_of
from experiments.parts.recipes import greedy_bleu, with_system
from kvnmt.data.outputs import write_lines
from kvnmt.errors import Idle, check_given, unknown_name
from kvnmt.evaluation import System, Test, adequacy
from kvnmt.evaluation.base import Column
from kvnmt.metrics.bleu import corpus_bleu
from kvnmt.runs.config import Experiment, changed_fields

TRANSLATIONS = "translations.txt"  # of a test text, in a run directory
BLEU = Column("bleu", "BLEU", "{:.2f}")
FIRST_COLUMNS = Column("system", "system"), Column("start", "start")
LAST_COLUMNS = (
    Column("parameters", "parameters", "{:,}"),
    Column("minutes", "minutes", "{:.1f}"),
    Column("seed", "seed"),
)
# What is measured on the made-up language alone.
BY_GOLD = Column("aer", "AER", "{:.1%}"), *adequacy.BY_GOLD


@dataclass(frozen=True)
class Variant:
    """A row of a paper's table."""

    system: str
    start: Literal["scratch", "warm"] = "scratch"  # warm: from the first variant
    # What tells it from others of its system; stands in its result.
    marks: Mapping[str, Any] = field(default_factory=dict)
    change: Change | None = None


# Measures a trained system beside BLEU; there may be no test text.
Measure = Callable[[Test | None, System], Figures]


def nothing(test: Test | None, system: System) -> Figures:
    """Measures nothing more."""
    return {}


@dataclass(frozen=True)
class Paper:
    """What a module says of its paper."""

    title: str
    variants: Sequence[Variant]  # the first is what others start from
    settings: Mapping[str, Experiment]  # by their names
    columns: Sequence[Column]
    made_up: MadeUp = MadeUp()
    measure: Measure = nothing


def make_paper(options: PaperOptions, paper: Paper, train: Train) -> list[Figures]:
    """Trains what is not yet trained, and prints the table; gives the results.

    Raises:
        UserError: A system or text is missing, or a row failed.
    """
    chosen = choose(paper.variants, options.systems)
    check_choices(options, chosen)
    base = paper.settings[options.setting].data
    material = material_of(options, base, paper.made_up)
    rows = [
        configure(options, paper, variant, seed, material)
        for variant in chosen
        for seed in options.seeds
    ]
    table = Table(
        title=f"{paper.title}; {options.data}",
        columns=[*FIRST_COLUMNS, *bleu_columns(paper, options), *LAST_COLUMNS],
        rows=rows,
        texts=[material.text] if material.text else [],
    )
    return make_table(options, table, train)


def choose(variants: Sequence[Variant], systems: Sequence[str]) -> list[Variant]:
    """The variants of some systems, with the first where one starts from it.

    Raises:
        UserError: The paper has no such system.
    """
    known = [variant.system for variant in variants]
    for name in systems:
        if name not in known:
            raise unknown_name("system of this paper", name, known)
    chosen = [v for v in variants if not systems or v.system in systems]
    is_short = variants[0] not in chosen and any(v.start == "warm" for v in chosen)
    return [variants[0], *chosen] if is_short else chosen


def check_choices(options: PaperOptions, variants: Sequence[Variant]) -> None:
    """Refuses flags of rows or of text that the table has not.

    Raises:
        OptionError: One was given that does nothing; the first is named.
    """
    idle = []
    if all(variant.start == "scratch" for variant in variants):
        why = "{0} is of systems that start from a trained one, and here none does."
        idle.append(Idle(("warm_epochs",), why))
    if options.data != SETTINGS[-1]:
        why = "{0} is of the text that --setting small makes where none is named."
        idle.append(Idle(("pairs",), why))
    check_given(options, idle, PaperOptions(workdir=options.workdir))


def configure(
    options: PaperOptions,
    paper: Paper,
    variant: Variant,
    seed: int,
    material: Material,
) -> Row:
    """A row; one that starts from a trained model has half the rate, if any."""
    base = paper.settings[options.setting]
    warm, optimizer = variant.start == "warm", base.optimizer
    epochs = options.epochs or base.training.epochs
    if warm:
        epochs = options.warm_epochs or epochs
        if optimizer.learning_rate is not None:
            optimizer = replace(optimizer, learning_rate=optimizer.learning_rate / 2)
    experiment = with_system(
        replace(base, data=material.data, optimizer=optimizer),
        variant.system,
        epochs=epochs,
        seed=seed,
        warm_start=folder_of(options, paper.variants[0], seed) if warm else None,
    )
    changed = variant.change(experiment) if variant.change else experiment
    return Row(
        folder=folder_of(options, variant, seed),
        system=variant.system,
        experiment=changed,
        named_for=changed_fields(experiment, changed),
        measure=partial(measure, material, paper.measure, variant.marks),
        data=options.data,
        tests=(*material.files, *options.more_tests),
    )


def folder_of(options: PaperOptions, variant: Variant, seed: int) -> Path:
    """The run directory of a row."""
    parts = (variant.system, *variant.marks.values(), variant.start, seed)
    return options.workdir / "-".join(map(str, (options.data, *parts)))


def bleu_columns(paper: Paper, options: PaperOptions) -> list[Column]:
    """The paper's columns; several test texts have one each, before their mean BLEU."""
    names = [*options.tests] if len(options.tests) > 1 else []
    tests = [Column(f"bleu_{name}", f"BLEU {name}", BLEU.form) for name in names]
    mean = [BLEU._replace(heading="mean")] if tests else [BLEU]
    place = list(paper.columns).index(BLEU)
    return [*paper.columns[:place], *tests, *mean, *paper.columns[place + 1 :]]


def measure(
    material: Material, more: Measure, marks: Mapping[str, Any], trained: Trained
) -> Figures:
    """BLEU on each test text and the mean, and on the first whatever more there is.

    The translations stay in the run directory.
    """
    folder, run, _ = trained
    figures = {**marks, **greedy_bleu(trained)}
    systems, scores = [], {}
    for name, test in material.tests.items():
        system = System("system", partial(run.translate, test.source or []), run)
        bleu = corpus_bleu(system.hypotheses, test.reference, tokenize="none")
        scores[f"bleu_{name}"] = bleu.score
        write_lines(folder / f"{name}.{TRANSLATIONS}", system.hypotheses)
        systems.append(system)
    if scores:
        figures["bleu"] = fmean(scores.values())
    if len(scores) > 1:
        figures |= scores
    first = systems[0] if systems else System("system", list, run)
    if material.pairs:
        figures |= made_up.measure(run, first.hypotheses, material.pairs)
    return figures | more(next(iter(material.tests.values()), None), first)
