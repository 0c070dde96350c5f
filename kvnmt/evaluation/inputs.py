# SPDX-License-Identifier: Apache-2.0
"""Reading what is evaluated: the test set, and the systems that translated it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kvnmt.console import counting
from kvnmt.data.outputs import claim, in_file, write_lines
from kvnmt.data.text import read_lines, read_parallel
from kvnmt.data.words import split_words
from kvnmt.errors import UserError, counted
from kvnmt.evaluation.base import System, Test
from kvnmt.evaluation.sentence_scores import read_scores
from kvnmt.files import check_once, make_folder
from kvnmt.inference.config import SearchConfig
from kvnmt.inference.ensemble import Joined
from kvnmt.inference.translate import translate_lines
from kvnmt.metrics.brackets import read_brackets
from kvnmt.metrics.links import Gold, check_links, read_gold
from kvnmt.metrics.trees import Tree
from kvnmt.runs.directory import Run, load_aligner, load_translator


@dataclass(frozen=True, kw_only=True)
class TestFiles:
    """What a test set is read from."""

    __test__ = False  # not a test of pytest

    reference: Path  # translations by people
    # translations by other people, for BLEU, chrF, their tests and TER; all else uses
    # only --reference.
    more_references: tuple[Path, ...] = ()
    # what another program, such as COMET, gave each sentence: a file for each system
    sentence_scores: tuple[Path, ...] = ()
    source: Path | None = None  # what is translated; runs need it
    gold: Path | None = None  # alignments of source and reference: Pharaoh or NAACL
    swap: bool = False  # the gold links are target-source
    from_one: bool = False  # the gold links count words from 1 (as in NAACL format)
    links: tuple[Path, ...] = ()  # alignments by other programs, for the same table
    swap_links: bool = False  # those of --links are target-source
    reverse: Path | None = None  # run of the other direction, to join alignments with
    brackets: Path | None = None  # trees of the references


def read_test(files: TestFiles) -> Test:
    """Reads a test set.

    Raises:
        UserError: A file cannot be read, does not go with the others, or is of no use
            without one that is not there; the flag is named.
    """
    test = Test(*_read_text(files.reference, files.source))
    test.more_references = tuple(
        _read_translations(path, test) for path in files.more_references
    )
    if (files.gold or files.links) and test.source is None:
        raise UserError("--gold and --links need --source.")
    for flag, value in (("--links", files.links), ("--reverse", files.reverse)):
        if value and not files.gold:
            raise UserError(f"{flag} is for alignment error, which needs --gold.")
    for flag, asked, other, path in (
        ("--swap", files.swap, "--gold", files.gold),
        ("--from-one", files.from_one, "--gold", files.gold),
        ("--swap-links", files.swap_links, "--links", files.links),
    ):
        if asked and not path:
            raise UserError(f"{flag} is of the links of {other}; give that, too.")
    if files.gold:
        remedy = ", or say --from-one if the file counts from 1"
        remedy = "" if files.from_one else remedy
        test.gold = _read_links(files.gold, test, files.swap, files.from_one, remedy)
    check_once(files.links)
    test.aligners = {
        str(path).encode(errors="backslashreplace").decode(): _read_links(
            path, test, files.swap_links
        )
        for path in files.links
    }
    if files.reverse:
        test.reverse, _ = load_aligner(files.reverse)
    if files.brackets:
        test.brackets = _read_trees(files.brackets, test)
    count = len(test.reference)
    test.sentence_scores = [read_scores(path, count) for path in files.sentence_scores]
    return test


def read_systems(
    paths: Mapping[str, Path],
    test: Test,
    search: SearchConfig,
    *,
    ensemble: Sequence[Path] = (),
    joined: Joined = Joined(),
    output: Path | None = None,
    inputs: Sequence[Path] = (),
) -> Iterator[System]:
    """Reads every system; runs translate when they are asked to.

    Args:
        paths: Run directories and files of translations, by the name of the system.
        test: What they are measured on.
        search: How runs translate.
        ensemble: Further runs that translate with a single one.
        joined: How their predictions become one.
        output: Where translations of runs are written: a file, of several a folder.
        inputs: Files that are read too, and must not be written.

    Raises:
        UserError: A system cannot be read or does not go with the test set, or its
            translations cannot be written.
    """
    if ensemble and len(paths) > 1:
        raise UserError("--ensemble goes with one run; name a single system.")
    if all(map(is_text, paths.values())):
        for flag, value in (("--ensemble", ensemble), ("--output", output)):
            if value:
                raise UserError(
                    f"{flag} is for runs, which translate, but only files of "
                    "translations are named; leave it out, or name a run."
                )
    if output and len(paths) > 1:
        make_folder(output)
    for name, path in paths.items():
        if is_text(path):
            yield System(name, partial(list, _read_translations(path, test)))
            continue
        if not path.exists():
            raise UserError(
                f"there is no '{path}'; name a run directory or a file of translations."
            )
        run = load_translator(path, ensemble, joined)
        if test.source is None:
            raise UserError(f"'{path}' is a run, which translates; give --source.")
        file = output
        if output and len(paths) > 1:
            file = output / f"{in_file(name)}.txt"
        if file:
            claim(file, [*paths.values(), *inputs])
        translate = partial(_translate, name, run, test.source, search, file)
        yield System(name, translate, run, search.limits)


def is_text(path: Path) -> bool:
    """Whether a system is a file of translations, and no run."""
    return path.exists() and not path.is_dir()


def _read_text(
    reference: Path, source: Path | None
) -> tuple[list[str], list[str] | None]:
    """References and, if there are any, sources."""
    if source:
        text = read_parallel(source, reference, faulty="keep")
        return text.target, text.source
    lines = read_lines(reference)
    if not lines:
        raise UserError(f"'{reference}' is empty; there is nothing to measure.")
    return lines, None


def _read_links(
    path: Path, test: Test, swap: bool, from_one: bool = False, remedy: str = ""
) -> list[Gold]:
    """Links from source to target of every pair."""
    assert test.source is not None
    links = read_gold(path, len(test.reference), from_one)
    source = [len(split_words(line)) for line in test.source]
    target = [len(split_words(line)) for line in test.reference]
    if swap:
        links = [sentence.inverted() for sentence in links]
    check_links(links, source, target, path, remedy)
    return links


def _read_trees(path: Path, test: Test) -> list[Tree]:
    """A tree of every reference."""
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
            f"'{path}' has {counted(len(lines), 'line')} but there are "
            f"{counted(len(test.reference), 'reference')}; line n of one must "
            "translate what line n of the other does."
        )
    return lines


def _translate(
    name: str, run: Run, source: list[str], search: SearchConfig, output: Path | None
) -> list[str]:
    with counting(f"translating with {name}", len(source)) as advance:
        translations = translate_lines(run, source, search, advance)
    if output:
        write_lines(output, translations)
    return translations
