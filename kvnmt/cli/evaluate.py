# SPDX-License-Identifier: Apache-2.0
"""The command that measures systems on a test set, beside each other."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated

import tyro

from kvnmt.cli.flags import names
from kvnmt.cli.translate import SEARCH
from kvnmt.console import counting, error_console, print_table
from kvnmt.data.text import read_lines, read_parallel
from kvnmt.data.words import split_words
from kvnmt.devices import use_cores
from kvnmt.errors import UserError, check_ranges, unknown_name
from kvnmt.evaluation import MEASURES, LackingError, Report, System, Test, table
from kvnmt.evaluation.base import need, with_attention
from kvnmt.files import claim, make_folder, write_lines
from kvnmt.inference.describe import write
from kvnmt.inference.program import SearchConfig
from kvnmt.metrics.bleu import Settings, check_tokenizer
from kvnmt.metrics.brackets import read_brackets
from kvnmt.metrics.links import Gold, check_links, read_gold
from kvnmt.metrics.trees import Tree
from kvnmt.runs.directory import Run, load_aligner, load_translator

ALL = "all"
MEASURE_HELP = (
    f"{', '.join(MEASURES)} or {ALL}; by default score, significance if there are "
    "several systems, and what --gold and --brackets are for"
)


@dataclass(frozen=True)
class Evaluate:
    """Measure systems on a test set: scores, significance, alignment, adequacy.

    A system is a run directory, which translates the source, or a file of
    translations, a line for each reference. The first system is the baseline.
    """

    systems: tyro.conf.Positional[tuple[Path, ...]]  # runs or files of translations
    reference: Path  # translations by people
    search: SearchConfig
    source: Path | None = None  # what is translated; runs need it
    measures: Annotated[
        tuple[str, ...], tyro.conf.arg(metavar="MEASURE", help=MEASURE_HELP)
    ] = ()
    gold: Path | None = None  # alignments of source and reference: Pharaoh or NAACL
    swap: bool = False  # the gold links and those of --links are target-source
    links: tuple[Path, ...] = ()  # alignments by other programs, for the same table
    reverse: Path | None = None  # run of the other direction, to join alignments with
    stem: int | None = None  # adequacy: letters that tell a word from its inflection
    brackets: Path | None = None  # trees of the references
    ensemble: tuple[Path, ...] = ()  # further runs that translate with a single one
    tokenize: str | None = None  # sacreBLEU's tokenizer; default: that of the training
    lowercase: bool = False  # ignore case
    output: Path | None = None  # write translations too: a file, of several a folder
    pictures: Path | None = None  # folder to draw in: attention, BLEU by length
    draw: tuple[int, ...] = (1, 2, 3)  # lines whose attention is drawn, from 1
    json: bool = False  # print a JSON object instead of tables

    def __call__(self) -> None:
        """Evaluates."""
        check_ranges(self, SEARCH | {"stem": (1, None)})
        if self.tokenize:
            check_tokenizer(self.tokenize)
        if any(number < 1 for number in self.draw):
            raise UserError("--draw takes numbers of lines, from 1.")
        for name in self.measures:
            if name not in (*MEASURES, ALL):
                raise unknown_name("measure", name, [*MEASURES, ALL])
        use_cores()
        test = self._test()
        systems = list(self._systems(test))
        self._check(systems)
        tokenize = self.tokenize or next(
            (s.run.experiment.training.bleu_tokenize for s in systems if s.run), "13a"
        )
        test.settings = Settings(tokenize, self.lowercase)
        if self.output:  # also if no measure asks for translations
            for system in systems:
                _ = system.hypotheses
        if self.pictures:
            self._draw(test, systems, self.pictures)
        found = {name: self._measure(name, test, systems) for name in self._wanted()}
        if self.json:
            plain = {
                name: [
                    {"title": one.title, "rows": one.rows, "notes": list(one.notes)}
                    for one in reports
                ]
                for name, reports in found.items()
            }
            print(json.dumps(plain, ensure_ascii=False))
            return
        for number, report in enumerate(chain(*found.values())):
            if number:
                print()
            print_table(table(report), report.notes)

    def _check(self, systems: Sequence[System]) -> None:
        """Finds out before the work whether there is anything to align."""
        if "alignment" in self._wanted() and ALL not in self.measures:
            try:
                need(self.gold, "--gold")
                if not self.links:
                    with_attention(systems)
            except LackingError as lacking:
                raise UserError(f"alignment cannot be measured: {lacking}.") from None

    def _inputs(self) -> Iterator[Path | None]:
        yield from (self.source, self.reference, self.gold, self.brackets, *self.links)

    def _wanted(self) -> Sequence[str]:
        if ALL in self.measures:
            return list(MEASURES)
        if self.measures:
            return self.measures
        given = {
            "score": True,
            "significance": len(self.systems) > 1,
            "alignment": self.gold is not None,
            "self-attention": self.brackets is not None,
        }
        return [name for name, wanted in given.items() if wanted]

    def _measure(
        self, name: str, test: Test, systems: Sequence[System]
    ) -> list[Report]:
        try:
            found = MEASURES[name](test, systems)
        except LackingError as lacking:
            if name in self.measures or ALL not in self.measures:
                raise UserError(f"{name} cannot be measured: {lacking}.") from None
            error_console().print(f"left out {name}: {lacking}.", highlight=False)
            return []
        return [found] if isinstance(found, Report) else found

    def _draw(self, test: Test, systems: Sequence[System], folder: Path) -> None:
        from kvnmt.evaluation.pictures import draw  # slow to import

        make_folder(folder)
        lines = [n for n in self.draw if n <= len(test.reference)]
        lacking = draw(test, systems, lines, folder)
        said = [f"the pictures are in {folder}", *([lacking] if lacking else [])]
        for sentence in said:
            error_console().print(sentence, highlight=False, soft_wrap=True)

    def _test(self) -> Test:
        if not self.systems:
            raise UserError("name at least one run directory or file of translations.")
        source, reference = None, read_lines(self.reference)
        if self.source:
            text = read_parallel(self.source, self.reference, faulty="keep")
            source, reference = text.source, text.target
        if not reference:
            raise UserError(
                f"'{self.reference}' is empty; there is nothing to measure."
            )
        test = Test(reference, source, stem=self.stem)
        if (self.gold or self.links) and source is None:
            raise UserError("--gold and --links need --source.")
        for flag, given in (("--links", self.links), ("--reverse", self.reverse)):
            if given and not self.gold:
                raise UserError(f"{flag} is for alignment error, which needs --gold.")
        if self.gold:
            test.gold = self._read_links(self.gold, test)
        test.aligners = {str(path): self._read_links(path, test) for path in self.links}
        test.reverse = load_aligner(self.reverse)[0] if self.reverse else None
        if self.brackets:
            test.brackets = read_trees(self.brackets, test)
        return test

    def _read_links(self, path: Path, test: Test) -> list[Gold]:
        assert test.source is not None
        found = read_gold(path, len(test.reference))
        source, target = (
            [len(split_words(line)) for line in side]
            for side in (test.source, test.reference)
        )
        if self.swap:
            check_links(found, target, source, path)
            return [one.inverted() for one in found]
        check_links(found, source, target, path)
        return found

    def _systems(self, test: Test) -> Iterator[System]:
        """Reads every system; runs translate when they are asked to."""
        if self.ensemble and len(self.systems) > 1:
            raise UserError("--ensemble goes with one run; name a single system.")
        folder = self.output if len(self.systems) > 1 else None
        if folder:
            make_folder(folder)
        for path, name in zip(self.systems, names(self.systems)):
            written = self.output
            if folder:
                written = folder / f"{name.replace('/', '-')}.txt"
            if path.is_file():
                yield System(name, partial(list, _read_translations(path, test)))
                continue
            run = load_translator(path, self.ensemble)
            if test.source is None:
                raise UserError(f"'{path}' is a run, which translates; give --source.")
            if written:
                claim(written, [*self.systems, *self._inputs()])
            given = name, run, test.source, self.search, written
            yield System(name, partial(_translate, *given), run)


def read_trees(path: Path, test: Test) -> list[Tree]:
    """Reads a tree of every reference.

    Raises:
        UserError: It cannot be read, or does not go with the references.
    """
    trees = read_brackets(path)
    if len(trees) != len(test.reference):
        raise UserError(
            f"'{path}' has {len(trees)} trees but there are {len(test.reference)} "
            "references; line n must be the tree of reference n."
        )
    for number, (tree, line) in enumerate(zip(trees, test.reference), start=1):
        words = len(split_words(line))
        if len(tree.words) != words:
            raise UserError(
                f"{path}, line {number}: the tree has {len(tree.words)} words but the "
                f"reference {words}; both must have the same tokens."
            )
    return trees


def _read_translations(path: Path, test: Test) -> list[str]:
    lines = read_lines(path)
    if len(lines) != len(test.reference):
        raise UserError(
            f"'{path}' has {len(lines)} lines but there are {len(test.reference)} "
            "references; line n of one must translate what line n of the other does."
        )
    return lines


def _translate(
    name: str, run: Run, source: list[str], search: SearchConfig, output: Path | None
) -> list[str]:
    with counting(f"translating with {name}", len(source)) as advance:
        found = write(run, source, search, None, advance)
    if output:
        write_lines(output, found)
    return found
