# SPDX-License-Identifier: Apache-2.0
"""The flags of the modules of the papers, and the text that they name or make up."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, TypeAlias

from experiments.harness.table import Options
from experiments.harness.texts import Text
from experiments.parts import made_up
from experiments.parts.paper_tables import SETTINGS
from experiments.parts.recipes import parallel_text
from kvnmt.data import synthetic
from kvnmt.data.config import DataConfig
from kvnmt.data.synthetic import Corpus, Pair
from kvnmt.errors import UserError, flag
from kvnmt.evaluation import Test
from kvnmt.evaluation.inputs import TestFiles, read_test
from kvnmt.fields import at_least
from kvnmt.metrics.bleu import Settings

TEXT = ("source", "target", "valid_source", "valid_target")
HELD_OUT = 400  # made-up sentences to validate on
TOKENISED = Settings(tokenize="none")
Epochs: TypeAlias = Annotated[int | None, at_least(1)]


@dataclass(frozen=True, kw_only=True)
class PaperOptions(Options):
    """What the experiment of every paper takes."""

    setting: Literal["paper", "small"] = "paper"  # sizes, optimiser and search
    source: Path | None = None  # training text, tokenised
    target: Path | None = None
    valid_source: Path | None = None  # text that chooses the best checkpoint
    valid_target: Path | None = None
    test_source: tuple[Path, ...] = ()  # texts that are translated in the end
    test_target: tuple[Path, ...] = ()  # in the same order
    systems: tuple[str, ...] = ()  # default: all of the paper
    epochs: Epochs = None  # at most; default: those of the setting
    warm_epochs: Epochs = None  # of what starts from a trained model
    pairs: Annotated[int, at_least(1)] = 8000  # of the made-up language

    @property
    def data(self) -> str:
        """What the results say of setting and text."""
        is_own = self.source or self.setting == "paper"
        return self.setting if is_own else SETTINGS[-1]

    @property
    def more_tests(self) -> tuple[Path, ...]:
        """Files that a paper reads beside its test texts."""
        return ()

    @property
    def tests(self) -> dict[str, tuple[Path, Path]]:
        """The files of the test texts, by the source's name in lower case, no ending.

        Raises:
            UserError: They do not go together, or two have one name.
        """
        sources, targets = self.test_source, self.test_target
        if len(sources) != len(targets):
            raise UserError(
                "--test-source and --test-target go together; name as many files in "
                "both, in the same order."
            )
        names = [path.stem.lower() for path in sources]
        if twice := [name for name in names if names.count(name) > 1]:
            raise UserError(
                f"--test-source has two texts named '{twice[0]}'; columns are named "
                "after the files, so give them names of their own."
            )
        return dict(zip(names, zip(sources, targets)))


class Material(NamedTuple):
    """The text of an experiment."""

    data: DataConfig
    tests: Mapping[str, Test] = {}  # by their names
    files: tuple[Path, ...] = ()  # of the tests
    pairs: Sequence[Pair] = ()  # of the test, if it is made up
    text: Text | None = None  # how it is written


@dataclass(frozen=True)
class MadeUp:
    """Text of the made-up language."""

    in_a_row: int = 1  # most sentences in a line
    test: int = 400  # sentences to test on


def material_of(options: PaperOptions, base: DataConfig, text: MadeUp) -> Material:
    """The text that the flags name, or the made-up language.

    Args:
        options: The flags.
        base: How text becomes ids.
        text: What is made up where the flags name none.

    Raises:
        UserError: Some of it is not named, or cannot be read.
    """
    files = {name: getattr(options, name) for name in TEXT}
    missing = [flag(name) for name, path in files.items() if path is None]
    named = any(files.values()) or options.test_source or options.test_target
    if options.looks:
        return _to_look_at(options, base, files, text)
    if missing and (options.setting == "paper" or named):
        raise UserError(
            f"{', '.join(missing)} not named; name the text that is trained and "
            "validated on, or none of it with --setting small, which makes its own."
        )
    if missing:
        return _made_up(options, base, text)
    tests = {
        name: replace(read_test(TestFiles(reference=y, source=x)), settings=TOKENISED)
        for name, (x, y) in options.tests.items()
    }
    return Material(replace(base, **files), tests, _files(options))


def _to_look_at(
    options: PaperOptions,
    base: DataConfig,
    files: Mapping[str, Path | None],
    made: MadeUp,
) -> Material:
    """What results are compared with; no text is read or made."""
    folder = options.workdir / "corpus"
    if options.data == SETTINGS[-1]:
        data = parallel_text(base, folder, "src", "trg")
        text = Text(key=_key(options, made), write=lambda: None)
        return Material(data, files=made_up.test_files(folder), text=text)
    if None in files.values():
        return Material(base)
    return Material(replace(base, **files), files=_files(options))


def _files(options: PaperOptions) -> tuple[Path, ...]:
    return tuple(path for pair in options.tests.values() for path in pair)


def _key(options: PaperOptions, made: MadeUp) -> str:
    return f"{options.pairs} {made.in_a_row}"


def _made_up(options: PaperOptions, base: DataConfig, made: MadeUp) -> Material:
    corpus = synthetic.make_corpus(1, options.pairs, HELD_OUT, made.test)
    if made.in_a_row > 1:
        corpus = Corpus(
            train=made_up.in_rows(corpus.train, made.in_a_row),
            valid=made_up.in_rows(corpus.valid, made.in_a_row),
            test=made_up.in_rows(corpus.test, made.in_a_row),
        )
    folder = options.workdir / "corpus"
    source, reference = made_up.lines_of(corpus.test)
    text = Text(
        key=_key(options, made),
        write=lambda: synthetic.write_corpus(corpus, folder),
    )
    tests = {"test": Test(reference, source, settings=TOKENISED)}
    data = parallel_text(base, folder, "src", "trg")
    return Material(data, tests, made_up.test_files(folder), corpus.test, text)
