# SPDX-License-Identifier: Apache-2.0
"""The commands for text before training: validate and prepare."""

import dataclasses
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rich.table import Table
from rich.text import Text

from kvnmt.cli.flags import FLAT
from kvnmt.console import print_json, print_table, say
from kvnmt.data import plan
from kvnmt.data.config import OF_COUNTED, DataConfig, longest
from kvnmt.data.corpus import Prepared, prepare_train
from kvnmt.data.inspection.validate import FileFigures, Report, ValidateConfig, validate
from kvnmt.data.prepare import described
from kvnmt.data.text import read_parallel
from kvnmt.data.vocabularies import digest
from kvnmt.errors import Idle, UserError, check_given, counted
from kvnmt.fields import check_fields
from kvnmt.runs.directory import load_settings
from kvnmt.runs.recipes import DEFAULT, RECIPES, Recipe
from kvnmt.training.config import TrainingConfig

COLOURS = {"error": "bold red", "warning": "yellow", "note": "dim"}


@dataclass(frozen=True)
class Validate:
    """Look parallel text over before training; status 1 if anything is serious.

    It reports lines that are missing, shifted, empty, not UTF-8 or hold odd characters;
    pairs that are uneven, too long, identical or repeated; overlap between the parts;
    and unknown words.
    """

    config: Annotated[ValidateConfig, FLAT]
    run: Path | None = None  # count tokens and unknown ones as this run does
    json: bool = False  # print a JSON object instead of tables

    def __call__(self) -> None:
        """Looks."""
        trained, ratio, config = None, None, self.config
        if self.run:
            sentence = "{0} is of words, and --run brings its own vocabularies; leave "
            idle = Idle(OF_COUNTED, f"{sentence}one of them out.")
            check_given(config, [idle], ValidateConfig)  # whose fields have defaults
            experiment, trained = load_settings(self.run)
            data, ratio = experiment.data, experiment.data.max_ratio
            if config.faulty is None:
                config = dataclasses.replace(config, faulty=data.faulty)
            most = config.max_length or longest(data, trained.kinds)
            config = dataclasses.replace(config, max_length=most)
        report = validate(config, trained, ratio)
        if self.json:
            print_json(report.as_plain())
        else:
            _print(report, trained is not None)
        if report.serious:
            raise SystemExit(1)


@dataclass(frozen=True)
class Prepare:
    """Prepare training text once, for every run with the same flags.

    Builds the vocabularies and the ids, and keeps them in the folder --data.cache.
    """

    data: DataConfig
    recipe: Recipe | None = None  # recipe of the runs to be trained; default: modern

    def __call__(self) -> None:
        """Prepares."""
        check_fields(self)
        if not self.data.cache:
            raise UserError("name the folder that keeps the ids with --data.cache.")
        training = RECIPES[self.recipe or DEFAULT].training
        _print_prepared(prepare_train(self.data), self.data, training)


def _print_prepared(
    prepared: Prepared, config: DataConfig, training: TrainingConfig
) -> None:
    table = Table(box=None, show_header=False)
    lengths = prepared.train.lengths
    table.add_row("training pairs", f"{len(lengths):,}")
    left_out = described(prepared.dropped, config, prepared.vocabularies.kinds)
    table.add_row("left out", left_out)
    sides = ("source", "target")
    for side, words, tokens in zip(sides, prepared.vocabularies, lengths.T):
        size = f"{len(words):,} ({digest(words)})"
        table.add_row(side, f"{tokens.sum():,} tokens, vocabulary of {size}")
    plans = {
        f"{training.batch_size} pairs": plan.by_pairs(
            lengths, training.batch_size, training.shapes
        ).with_all_shapes(),
        "4,096 tokens": plan.by_tokens(lengths, 4096, training.shapes),
    }
    for name, made in plans.items():
        share = (
            f"{made.real(made.epoch(training.seed, 0)):.1%} of positions hold a token"
        )
        table.add_row(f"batches of {name}", f"{share}, {len(made.shapes)} shapes")
    table.add_row("kept in", _text(prepared.folder))
    print_table(table)


def _print(report: Report, by_run: bool) -> None:
    names = ("part", "side", "lines", "empty", "tokens", "unknown", "file")
    files = Table(
        *names, box=None, caption=_kept(report, by_run), caption_justify="left"
    )
    for file in report.files:
        files.add_row(*_row(file))
    print_table(files)
    if not report.findings:
        return
    findings = Table("", "found", "count", "where", box=None)
    for finding in report.findings:
        findings.add_row(
            Text(finding.severity, COLOURS[finding.severity]),
            finding.name,
            f"{finding.count:,}",
            _text(finding.message),
        )
    print_table(findings)


def _kept(report: Report, by_run: bool) -> str:
    if report.pairs is None:
        source, target = report.files[:2]
        differ = source.lines != target.lines
        return f"no pairs{', as long as the numbers of lines differ' * differ}"
    counts = report.dropped
    dropped = f"{counts.too_long:,} too long, {counts.empty:,} empty"
    dropped += f", {counts.undecodable:,} not UTF-8" * bool(counts.undecodable)
    dropped += f", {counts.uneven:,} uneven" * bool(counts.uneven)
    words = "in words; in subwords lines are longer"
    how = "in tokens of the run" if by_run else words
    return f"{counted(report.pairs, 'training pair')} ({dropped}), counted {how}"


def _row(file: FileFigures) -> tuple[str | Text, ...]:
    share = f"{file.unknown / max(file.tokens, 1):.2%}"
    numbers = (f"{n:,}" for n in (file.lines, file.empty, file.tokens))
    return file.part, file.side, *numbers, share, _text(file.file)


def _text(said: object) -> Text:
    """What may hold the name of a file: no markup, and perhaps no UTF-8."""
    return Text(str(said).encode(errors="backslashreplace").decode())


@dataclass(frozen=True)
class PrepareTfds:
    """Prepare a TFDS dataset from parallel text, and print how to train from it.

    Every pair is kept, in its order. TensorFlow is not needed.
    """

    name: str  # of the dataset: small letters, digits, underscores
    folder: Path  # where datasets are prepared
    source: Path  # training text
    target: Path
    valid_source: Path
    valid_target: Path
    test_source: Path | None = None
    test_target: Path | None = None
    languages: tuple[str, str] = ("source", "target")  # what the sides are called

    def __call__(self) -> None:
        """Prepares."""
        paths = {
            "train": (self.source, self.target),
            "validation": (self.valid_source, self.valid_target),
        }
        if self.test_source or self.test_target:
            if not (self.test_source and self.test_target):
                raise UserError("give both --test-source and --test-target.")
            paths["test"] = self.test_source, self.test_target
        from kvnmt.data import tfds_builder  # here, since it is slow to import

        tfds_builder.place_of(self.name, self.folder, self.languages)  # before reading
        splits = {
            split: read_parallel(*sides, faulty="keep")
            for split, sides in paths.items()
        }
        made = tfds_builder.prepare(self.name, splits, self.folder, self.languages)
        counts = ", ".join(f"{len(text.source)} {s}" for s, text in splits.items())
        say(f"{counts} pairs in {made}; train with:")
        flags = {"tfds": self.name, "tfds-folder": self.folder}
        words = [word for k, v in flags.items() for word in (f"--data.{k}", str(v))]
        print(shlex.join(["kvnmt", "train", f"runs/{self.name}", *words]))
