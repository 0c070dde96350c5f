# SPDX-License-Identifier: Apache-2.0
"""Systems, or attention functions, side by side on text of your own, over seeds.

Claim: none. All rows have the same text, recipe and budget and differ only in what is
named. The table has the mean and the standard deviation over the seeds for each system,
and tests against the first system: the paired bootstrap over the sentences of each
seed, and, if there are at least three seeds, Welch's test over them and a test over
seeds and sentences together, also corrected for how many rows are tested (Holm 1979).

Setting: the recipe of `kvnmt train`. The same flags give the training text and the
tokenizer of BLEU. Each of ``--attentions`` replaces the attention of the first system;
its options follow a colon, as in ``delta_memory:update=kda,write=decoder``. An
attention function of your own is named like any other, after ``--import FILE.py``. With
``--gold``, links that people drew in the test text, the table also has the alignment
error and what is dropped, repeated and invented. ``--latex`` and ``--json`` print the
table for a paper and for a program.

Launch::

    python -m experiments.compare --seeds 1 2 3 --attentions kv_memory slots \
        --data.source train.ja --data.target train.en \
        --data.valid-source valid.ja --data.valid-target valid.en \
        --test-source test.ja --test-target test.en
    python -m experiments.compare ... --systems rnnsearch-star self-attentive-residual
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path

from experiments.harness.results import Figures
from experiments.harness.row_flags import read_flags
from experiments.harness.rows import Row, Train, Trained
from experiments.harness.significance import (
    Against,
    holm,
    p_over_both,
    p_over_seeds,
    p_over_sentences,
    packed_counts,
)
from experiments.harness.summaries import mean_and_spread
from experiments.harness.table import Options, Table, launch, make_table
from experiments.parts.recipes import with_system
from kvnmt import attention
from kvnmt.data.outputs import in_file, write_lines
from kvnmt.errors import UserError, flag, unknown_name
from kvnmt.evaluation import System, Test, adequacy, alignment
from kvnmt.evaluation.base import Column, counted_otherwise, unlinked
from kvnmt.evaluation.inputs import TestFiles, read_test
from kvnmt.metrics.bleu import Settings, corpus_bleu, corpus_chrf
from kvnmt.runs import train as training
from kvnmt.runs.config import Experiment, changed_fields
from kvnmt.runs.idle import check_rounds
from kvnmt.runs.recipes import RECIPES
from kvnmt.systems.named import system

RECIPE = RECIPES["modern"]
COUNTS = "test_counts"
BY_GOLD = Column("aer", "AER", "{:.1%}"), *adequacy.BY_GOLD
# What is shown of the seeds together.
FIGURES = (
    Column("bleu", "BLEU", "{:.2f}"),
    Column("chrf", "chrF2", "{:.2f}"),
    Column("valid_loss", "valid loss", "{:.3f}"),
    *BY_GOLD,
    *adequacy.BY_ATTENTION,
    Column("repeated_2", "repeated 2-grams", "{:+.2%}"),
    Column("minutes", "minutes", "{:.1f}"),
    Column("target_tokens_per_second", "target tokens/s", "{:,.0f}"),
)
COLUMNS = (
    Column("system", "system"),
    Column("parameters", "parameters", "{:,}"),
    *(figure._replace(form="{}") for figure in FIGURES),
    Column("seeds", "seeds"),
    Column("p_seeds", "p over seeds", "{:.3f}"),
    Column("p_sentences", "p over sentences, seed by seed"),
    Column("p_both", "p over both", "{:.3f}"),
    Column("p_holm", "corrected for so many rows", "{:.3f}"),
)


@dataclass(frozen=True, kw_only=True)
class Compare(Options):
    """Options of the experiment."""

    test_source: Path  # test text to measure on
    test_target: Path
    gold: Path | None = None  # links of the test text by people: Pharaoh or NAACL
    swap: bool = False  # the gold links are target-source
    from_one: bool = False  # the gold links count words from 1 (as in NAACL format)
    workdir: Path = Path("runs/compare")  # where the runs are written
    systems: tuple[str, ...] = ("rnnsearch-star",)  # names of kvnmt systems
    # instead of the first system's attention: NAME or NAME:OPTION=VALUE,...
    attentions: tuple[str, ...] = ()

    @property
    def tests(self) -> tuple[Path, ...]:
        """The files that are measured on."""
        gold = (self.gold,) if self.gold else ()
        return (self.test_source, self.test_target, *gold)


def main(options: Compare, train: Train = training.run) -> None:
    """Trains what is not yet trained and prints the table.

    Raises:
        UserError: There is no such system or attention, text cannot be read, there is
            nothing to compare, or a row failed.
    """
    test = None if options.looks else read(options)
    names = [(name, "") for name in options.systems]
    names += [(options.systems[0], name) for name in options.attentions]
    if len(names) < 2 and len(options.seeds) < 2:
        raise UserError(
            "there is nothing to compare; name --attentions, two --systems or --seeds."
        )
    rows = [
        configure(options, name, other, seed, test)
        for name, other in names
        for seed in options.seeds
    ]
    baseline = rows[0].system
    title = f"{options.test_target.name}, p against {baseline}"
    notes = [
        "BLEU as the tokenizer of training has it; mean ± standard deviation of three "
        "seeds or more"
    ]
    notes += [adequacy.ATTENTION_NOTE, adequacy.TEXT_NOTE]
    left_out = [] if options.gold else [figure.key for figure in BY_GOLD]
    columns = [column for column in COLUMNS if column.key not in left_out]
    if options.gold:
        notes += [alignment.NOTE, adequacy.GOLD_NOTE]
    if test and test.gold:
        notes += counted_otherwise(test)
        notes += unlinked(test, "whatever is linked there counts as wrong")
    notes += test.unsegmented if test else []
    lines = partial(summarised, baseline)
    make_table(options, Table(title, columns, rows, notes, lines=lines), train)


def read(options: Compare) -> Test:
    """The text that is measured on, and its links.

    Raises:
        UserError: It cannot be read.
    """
    files = TestFiles(
        reference=options.test_target,
        source=options.test_source,
        gold=options.gold,
        swap=options.swap,
        from_one=options.from_one,
    )
    return read_test(files)


def configure(
    options: Compare, name: str, other: str, seed: int, test: Test | None
) -> Row:
    """The row of a system, perhaps with another attention.

    Raises:
        UserError: There is no such system, attention or option of it, it is a language
            model, or its rounds would be for nothing.
    """
    if system(name).is_language_model:
        raise UserError(f"{name} is a language model, which translates nothing.")
    plain = with_system(RECIPE, name, epochs=RECIPE.training.epochs, seed=seed)
    experiment = plain
    if other:
        experiment = with_attention(plain, other)
        check_rounds(experiment.model)
    called = f"{name} with {other}" if other else name
    return Row(
        folder=options.workdir / f"{in_file(called.replace(' ', '-'))}-{seed}",
        system=called,
        experiment=experiment,
        named_for=changed_fields(plain, experiment),
        measure=partial(measure, test),
        tests=options.tests,
        reading=" ".join(
            name for name in ("swap", "from_one") if getattr(options, name)
        ),
    )


def with_attention(experiment: Experiment, named: str) -> Experiment:
    """The experiment with another attention.

    Args:
        experiment: Of a system.
        named: ``NAME`` or ``NAME:OPTION=VALUE,OPTION=VALUE``.

    Raises:
        UserError: There is no such attention or option, or it has no value.
    """
    name, _, values = named.partition(":")
    chosen = attention.CATALOGUE[name].Options()
    known, flags = [field.name for field in fields(chosen)], list[str]()
    for pair in filter(None, values.split(",")):
        option, _, value = pair.partition("=")
        if option not in known:
            raise unknown_name(f"option of {name}", option, known)
        if not value:
            raise UserError(f"'{named}' gives {option} no value; write {option}=VALUE.")
        flags += _flags(option, value)
    model = replace(experiment.model, attention=chosen)
    return read_flags(replace(experiment, model=model), flags)


def _flags(option: str, value: str) -> list[str]:
    """An option of an attention as flags of `kvnmt train`."""
    if value.lower() in ("true", "false"):
        negation = "" if value.lower() == "true" else "no_"
        return [flag(f"model.attention.{negation}{option}")]
    return [flag(f"model.attention.{option}"), value]


def measure(test: Test | None, trained: Trained) -> Figures:
    """What the columns are made of; the translations stay in the folder."""
    assert test is not None  # rows that are only looked at are not measured
    assert test.source is not None
    hypotheses = trained.run.translate(test.source)
    write_lines(trained.folder / "test.txt", hypotheses)
    settings = Settings(trained.run.experiment.training.bleu_tokenize)
    bleu = corpus_bleu(hypotheses, test.reference, tokenize=settings.tokenize)
    limits = trained.run.experiment.search.limits
    system = System("system", lambda: hypotheses, trained.run, limits)
    figures = adequacy.measure(test, [system]).rows[0]
    del figures["system"]
    if test.gold and system.rounds:
        figures["aer"] = alignment.error_of(system, test)
    return figures | {
        "bleu": bleu.score,
        "signature": bleu.signature,
        "chrf": corpus_chrf(hypotheses, test.reference).score,
        COUNTS: packed_counts(hypotheses, test.reference, settings),
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
        line["figures"] = {}
        for figure in FIGURES:
            key = str(figure.key)
            values = [result[key] for result in group if key in result]
            if values:
                line[key] = mean_and_spread(values, figure.form)
                line["figures"][key] = values  # of the seeds, for programs
            if 0 < len(values) < len(group):  # others were measured without it
                line[key] += f" ({len(values)})"
        line["seeds"] = " ".join(str(result["seed"]) for result in group)
        if base and name != baseline:
            line["p_seeds"] = p_over_seeds(group, base, against)
            each = p_over_sentences(group, base, against)
            line["p_sentences"] = ", ".join(f"{p:.3f}" for p in each)
            if 0 < len(each) < len(group):
                line["p_sentences"] += f" ({len(each)} of {len(group)} seeds)"
            line["p_both"] = p_over_both(group, base, against)
        lines.append(line)
    tested = [line for line in lines if line.get("p_both") is not None]
    if len(tested) > 1:
        for line, p in zip(tested, holm([line["p_both"] for line in tested])):
            line["p_holm"] = p
    return lines


if __name__ == "__main__":
    launch(Compare, main, __doc__)
