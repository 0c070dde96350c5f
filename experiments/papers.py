# SPDX-License-Identifier: Apache-2.0
"""What the modules of the papers share: their flags, their text, their rows.

A module names the rows of its paper's tables and two settings: the paper's, for text of
your own, and a small one that takes minutes on two cores. Where the flags name no text,
the small one takes the made-up language.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from experiments import made_up
from experiments.paper_tables import SETTINGS
from experiments.recipes import greedy_bleu, parallel_text, with_system
from experiments.results import Figures
from experiments.rows import Row, Train, Trained
from experiments.table import Options, Table, Text, make_table
from kvnmt.data import synthetic
from kvnmt.data.config import DataConfig
from kvnmt.data.synthetic import Corpus, Pair
from kvnmt.errors import UserError, unknown_name
from kvnmt.evaluation import System, Test
from kvnmt.evaluation.base import Column
from kvnmt.evaluation.inputs import read_test
from kvnmt.files import write_lines
from kvnmt.metrics.bleu import Settings, corpus_bleu
from kvnmt.runs.config import Experiment

TEXT = ("source", "target", "valid_source", "valid_target")
TRANSLATIONS = "translations.txt"  # of the test text, in a run directory
HELD_OUT = 400  # made-up sentences to validate on
BLEU = Column("bleu", "BLEU", "{:.2f}")
FIRST_COLUMNS = Column("system", "system"), Column("start", "start")
LAST_COLUMNS = (
    Column("parameters", "parameters", "{:,}"),
    Column("minutes", "minutes", "{:.1f}"),
    Column("seed", "seed"),
)
# What is measured on the made-up language alone.
BY_GOLD = (
    Column("aer", "AER", "{:.1%}"),
    Column("dropped", "dropped", "{:.2%}"),
    Column("repeated", "repeated", "{:.2%}"),
    Column("invented", "invented", "{:.2%}"),
)


@dataclass(frozen=True, kw_only=True)
class PaperOptions(Options):
    """What the experiment of every paper takes."""

    setting: Literal["paper", "small"] = "paper"  # sizes, optimiser and search
    source: Path | None = None  # training text, tokenised
    target: Path | None = None
    valid_source: Path | None = None  # text that chooses the best checkpoint
    valid_target: Path | None = None
    test_source: Path | None = None  # text that is translated in the end
    test_target: Path | None = None
    systems: tuple[str, ...] = ()  # default: all of the paper
    epochs: int | None = None  # at most; default: those of the setting
    warm_epochs: int | None = None  # of what starts from a trained model
    pairs: int = 8000  # of the made-up language

    @property
    def data(self) -> str:
        """What the results say of setting and text."""
        is_own = self.source or self.setting == "paper"
        return self.setting if is_own else SETTINGS[-1]

    @property
    def more_tests(self) -> tuple[Path, ...]:
        """Files that a paper reads beside its test text."""
        return ()


@dataclass(frozen=True)
class Variant:
    """A row of a paper's table."""

    system: str
    start: Literal["scratch", "warm"] = "scratch"  # warm: from the first variant
    # What tells it from others of its system; stands in its result.
    marks: Mapping[str, Any] = field(default_factory=dict)
    change: Callable[[Experiment], Experiment] | None = None


# Measures a trained system beside BLEU; the test text may be missing.
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
    in_a_row: int = 1  # most made-up sentences in a line
    test: int = 400  # made-up sentences to test on
    measure: Measure = nothing


class Material(NamedTuple):
    """The text of an experiment."""

    data: DataConfig
    test: Test | None
    tests: tuple[Path, ...] = ()  # files of the test
    pairs: Sequence[Pair] = ()  # of the test, if it is made up
    text: Text | None = None  # how it is written


def make_paper(options: PaperOptions, paper: Paper, train: Train) -> list[Figures]:
    """Trains what is not yet trained, and prints the table; gives the results.

    Raises:
        UserError: A system or text is missing, or a row failed.
    """
    chosen = choose(paper.variants, options.systems)
    material = material_of(options, paper)
    rows = [
        configure(options, paper, variant, seed, material)
        for variant in chosen
        for seed in options.seeds
    ]
    table = Table(
        title=f"{paper.title}; {options.data}",
        columns=[*FIRST_COLUMNS, *paper.columns, *LAST_COLUMNS],
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
    return Row(
        folder=folder_of(options, variant, seed),
        system=variant.system,
        experiment=variant.change(experiment) if variant.change else experiment,
        measure=partial(measure, material, paper.measure, variant.marks),
        data=options.data,
        tests=(*material.tests, *options.more_tests),
    )


def folder_of(options: PaperOptions, variant: Variant, seed: int) -> Path:
    """The run directory of a row."""
    parts = (variant.system, *variant.marks.values(), variant.start, seed)
    return options.workdir / "-".join(map(str, (options.data, *parts)))


def material_of(options: PaperOptions, paper: Paper) -> Material:
    """The text that the flags name, or the made-up language.

    Raises:
        UserError: Some of it is not named, or cannot be read.
    """
    base = paper.settings[options.setting].data
    files = {name: getattr(options, name) for name in TEXT}
    tests = options.test_source, options.test_target
    missing = [_flag(name) for name, path in files.items() if path is None]
    if options.looks:
        return _to_look_at(options, base, files, tests)
    if missing and (options.setting == "paper" or any(files.values()) or any(tests)):
        raise UserError(
            f"{', '.join(missing)} not named; name the text that is trained and "
            "validated on, or none of it with --setting small, which makes its own."
        )
    if missing:
        return _made_up(options, paper, base)
    if not all(tests) and any(tests):
        raise UserError("--test-source and --test-target go together; name both.")
    test = read_test(tests[1], tests[0]) if tests[1] else None
    if test:
        test.settings = Settings(tokenize="none")
    return Material(replace(base, **files), test, tuple(filter(None, tests)))


def _to_look_at(
    options: PaperOptions,
    base: DataConfig,
    files: Mapping[str, Path | None],
    tests: Sequence[Path | None],
) -> Material:
    """What results are compared with; no text is read or made."""
    folder = options.workdir / "corpus"
    if options.data == SETTINGS[-1]:
        data = parallel_text(base, folder, "src", "trg")
        return Material(data, None, made_up.test_files(folder))
    if None in files.values():
        return Material(base, None)
    return Material(replace(base, **files), None, tuple(filter(None, tests)))


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _made_up(options: PaperOptions, paper: Paper, base: DataConfig) -> Material:
    corpus = synthetic.make_corpus(1, options.pairs, HELD_OUT, paper.test)
    if paper.in_a_row > 1:
        corpus = Corpus(
            train=made_up.in_rows(corpus.train, paper.in_a_row),
            valid=made_up.in_rows(corpus.valid, paper.in_a_row),
            test=made_up.in_rows(corpus.test, paper.in_a_row),
        )
    folder = options.workdir / "corpus"
    source, reference = made_up.lines_of(corpus.test)
    text = Text(
        key=f"{options.pairs} {paper.in_a_row}",
        write=lambda: synthetic.write_corpus(corpus, folder),
    )
    test = Test(reference, source, settings=Settings(tokenize="none"))
    data = parallel_text(base, folder, "src", "trg")
    return Material(data, test, made_up.test_files(folder), corpus.test, text)


def measure(
    material: Material, more: Measure, marks: Mapping[str, Any], trained: Trained
) -> Figures:
    """BLEU on the test text, and whatever more the paper has.

    The translations stay in the run directory.
    """
    folder, run, _ = trained
    figures, test = {**marks, **greedy_bleu(trained)}, material.test
    lines = test.source or [] if test else []
    system = System("system", partial(run.translate, lines), run)
    if test:
        bleu = corpus_bleu(system.hypotheses, test.reference, tokenize="none")
        figures["bleu"] = bleu.score
        write_lines(folder / TRANSLATIONS, system.hypotheses)
    if material.pairs:
        figures |= made_up.measure(run, system.hypotheses, material.pairs)
    return figures | more(test, system)
