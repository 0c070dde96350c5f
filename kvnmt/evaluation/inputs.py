# SPDX-License-Identifier: Apache-2.0
"""Reading what is evaluated: the test set, and the systems that translated it."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from kvnmt.console import counting
from kvnmt.data.text import read_lines, read_parallel
from kvnmt.data.words import split_words
from kvnmt.errors import UserError, counted
from kvnmt.evaluation.base import System, Test
from kvnmt.evaluation.sentence_scores import read_scores
from kvnmt.files import check_once, claim, in_file, make_folder, write_lines
from kvnmt.inference.config import SearchConfig
from kvnmt.inference.ensemble import Joined
from kvnmt.inference.translate import translate_lines
from kvnmt.metrics.brackets import read_brackets
from kvnmt.metrics.links import Gold, check_links, read_gold
from kvnmt.metrics.trees import Tree
from kvnmt.runs.directory import Run, load_aligner, load_translator


def read_test(
    reference: Path,
    source: Path | None = None,
    *,
    gold: Path | None = None,
    links: Sequence[Path] = (),
    swap: bool = False,
    from_one: bool = False,
    swap_links: bool = False,
    reverse: Path | None = None,
    brackets: Path | None = None,
    more_references: Sequence[Path] = (),
    sentence_scores: Sequence[Path] = (),
) -> Test:
    """Reads a test set.

    Args:
        reference: Translations by people.
        source: What they translate.
        gold: Alignments of both by people.
        links: Alignments by other programs.
        swap: Whether the links of gold are target-source.
        from_one: Whether they count words from 1.
        swap_links: Whether those of the other programs are.
        reverse: A run of the other direction.
        brackets: Trees of the references.
        more_references: Translations by other people.
        sentence_scores: What another program gave the sentences of each system.

    Raises:
        UserError: A file cannot be read, does not go with the others, or is of no use
            without one that is not there; the flag is named.
    """
    test = Test(*_read_text(reference, source))
    test.more_references = tuple(
        _read_translations(path, test) for path in more_references
    )
    if (gold or links) and test.source is None:
        raise UserError("--gold and --links need --source.")
    for flag, value in (("--links", links), ("--reverse", reverse)):
        if value and not gold:
            raise UserError(f"{flag} is for alignment error, which needs --gold.")
    for flag, asked, other, path in (
        ("--swap", swap, "--gold", gold),
        ("--from-one", from_one, "--gold", gold),
        ("--swap-links", swap_links, "--links", links),
    ):
        if asked and not path:
            raise UserError(f"{flag} is of the links of {other}; give that, too.")
    if gold:
        other = "" if from_one else ", or say --from-one if the file counts from 1"
        test.gold = _read_links(gold, test, swap, from_one, other)
    check_once(links)
    test.aligners = {
        str(path).encode(errors="backslashreplace").decode(): _read_links(
            path, test, swap_links
        )
        for path in links
    }
    if reverse:
        test.reverse, _ = load_aligner(reverse)
    if brackets:
        test.brackets = _read_trees(brackets, test)
    count = len(test.reference)
    test.sentence_scores = [read_scores(path, count) for path in sentence_scores]
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
