# SPDX-License-Identifier: Apache-2.0
"""The command that translates standard input."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, TypeVar, Unpack

import tyro

from kvnmt.cli.beside import read_beside
from kvnmt.cli.windows import count_lines, read_windows
from kvnmt.console import counting, say
from kvnmt.data.words import beginning, cut, first_filled
from kvnmt.devices import own_mesh, replicate, use_cores
from kvnmt.errors import UserError, counted
from kvnmt.fields import at_least, check_fields
from kvnmt.inference.config import SearchConfig, check_search
from kvnmt.inference.describe import describe, join
from kvnmt.inference.ids import part_number
from kvnmt.inference.moses import nbest_list
from kvnmt.inference.nearest import Nearest
from kvnmt.inference.shortlist_file import read_shortlist
from kvnmt.inference.translate import Request, translate_lines, translate_nbest
from kvnmt.inference.unknown_words import check_replaceable, read_dictionary
from kvnmt.metrics.bleu import Settings, bleu_metric
from kvnmt.runs.directory import Run, load_translator

T = TypeVar("T")

WINDOW = 20  # batches that are read, sorted by length and written together


@dataclass(frozen=True)
class Translate:
    """Translate standard input to standard output, one line out per line in.

    Lines are read and written in windows of twenty batches; in a terminal, or with
    --search.batch-size 1, every line is answered as soon as it is there.
    """

    run: tyro.conf.Positional[Path]  # run directory of a trained model
    search: SearchConfig
    ensemble: tuple[Path, ...] = ()  # further runs that translate with it as one
    prefix: Path | None = None  # what each translation begins with, a line for a line
    nearest: Path | None = None  # references; of --search.nbest the nearest is written
    shortlist: Path | None = None  # table of what may be written: kvnmt shortlist
    json: bool = False  # JSON lines: scores, tokens, alignment, n-best
    moses: bool = False  # n-best lists in Moses' format, of --search.nbest entries
    replace_unknown: bool = False  # by the source word attended to, or its translation
    dictionary: Path | None = None  # for that: lines of word, tab, translation
    max_input: Annotated[int, at_least(1)] = 200  # most tokens of a line
    too_long: Literal["split", "truncate"] = "split"  # what to do with a longer one

    def __call__(self) -> None:
        """Translates."""
        check_fields(self)
        check_search(self.search)
        check_together(self)
        use_cores()
        run = load_translator(self.run, self.ensemble)
        # Once, not anew in every window.
        run = run._replace(params=replicate(run.params, own_mesh()))
        check_nbest(self, run)
        # Whoever types a line waits for its translation.
        size = 1 if sys.stdin.buffer.isatty() else self.search.batch_size
        windows = read_windows(sys.stdin.buffer, size * WINDOW if size > 1 else 1)
        long = 0
        try:
            with counting("translating", count_lines(sys.stdin.buffer)) as advance:
                for answer in answers(run, windows, self, advance):
                    long += answer.long
                    for line in answer.lines:
                        sys.stdout.buffer.write(line.encode() + b"\n")
                    sys.stdout.buffer.flush()
        finally:
            if long:
                how = {"split": "split", "truncate": "truncated"}[self.too_long]
                say(
                    f"warning: {counted(long, 'line')} had more than "
                    f"{self.max_input} tokens and {'was' if long == 1 else 'were'} "
                    f"{how}; see --max-input and --too-long."
                )


def check_together(options: Translate) -> None:
    """Refuses flags that are not of the same output.

    Raises:
        UserError: One would do nothing.
    """
    if (options.json or options.moses) and (
        options.replace_unknown or options.dictionary
    ):
        raise UserError(
            f"{'--json' if options.json else '--moses'} tells what the model wrote; "
            "leave out either it or --replace-unknown and --dictionary."
        )
    if options.replace_unknown or options.dictionary:
        if options.nearest:
            raise UserError(
                "--nearest chooses before unknown words are replaced; leave out either "
                "it or --replace-unknown and --dictionary."
            )
        if not options.search.unknown:
            raise UserError(
                "with --search.no-unknown there is nothing to replace; leave out "
                "either it or --replace-unknown and --dictionary."
            )
    all_told = {"--json": options.json, "--moses": options.moses}
    told = [name for name, asked in all_told.items() if asked]
    if len(told) == 2:
        raise UserError("--json and --moses are two formats; leave one out.")
    if told and options.nearest:
        raise UserError(f"{told[0]} tells all translations; leave it or --nearest out.")


def check_nbest(options: Translate, run: Run) -> None:
    """Refuses to search for translations of a line that nobody will see.

    Raises:
        UserError: There is nothing to choose among, or nothing that chooses.
    """
    count, mbr = options.search.nbest, options.search.mbr
    if options.nearest and mbr not in (None, run.experiment.search.mbr):
        raise UserError(
            "--nearest and --search.mbr each choose one of several translations; leave "
            "one of them out."
        )
    if options.nearest and count == 1:
        raise UserError(
            "--nearest chooses among several translations of a line; say how many with "
            "--search.nbest, at most as many as --search.beam."
        )
    chosen = options.nearest or mbr is not None
    several = options.json or options.moses or chosen
    if count not in (1, run.experiment.search.nbest) and not several:
        raise UserError(
            f"--search.nbest asks for {count} translations of a line, but one is "
            "written; give --json or --moses, which have them all, or --nearest or "
            "--search.mbr, which choose."
        )


class Answer(NamedTuple):
    """What is written for a window of lines."""

    lines: list[str]  # one for every line of the window, or more in n-best lists
    long: int  # how many of them had too many tokens


def answers(
    run: Run,
    windows: Iterable[Sequence[str]],
    options: Translate,
    advance: Callable[[int], None] = lambda sentences: None,
) -> Iterator[Answer]:
    """Translates windows of lines, each before the next is read.

    Args:
        run: The trained model.
        windows: The lines of the whole input, in order.
        options: How to translate, and what to do with long lines.
        advance: Told of every batch how many sentences it held.

    Raises:
        UserError: The dictionary, the prefixes, the references or the shortlist cannot
            be read, or there are fewer prefixes or references than lines; or, once all
            lines are translated, more.
    """
    dictionary = None
    if options.dictionary or options.replace_unknown:
        check_replaceable(run)
        path = options.dictionary
        dictionary = read_dictionary(path) if path else {}
    prefixes, references = read_beside(options.prefix), read_beside(options.nearest)
    if references:
        bleu_metric(_settings(run))  # complains before anything is translated
    shortlist = None
    if options.shortlist:
        shortlist = read_shortlist(options.shortlist, run.vocabularies)
    lines = 0  # before the window
    expected = None  # parts in all windows, as far as the first one tells
    full = options.search.batch_size * WINDOW
    for window in windows:
        cuts = [cut(run.vocabularies.source, one, options.max_input) for one in window]
        long = sum(len(pieces) > 1 for pieces in cuts)
        if options.too_long == "truncate":
            words, most = run.vocabularies.source, options.max_input
            cuts = [
                pieces if len(pieces) == 1 else [beginning(words, line, most)]
                for line, pieces in zip(window, cuts)
            ]
        count = sum(map(len, cuts))
        if expected is None:
            expected = count * (1 if len(window) < full else WINDOW)
        begun = near = None
        if prefixes:
            begun = _begun(run, prefixes.window(lines, len(window)), cuts)
        if references:
            near = _near(run, references.window(lines, len(window)), cuts)
        written = _written(
            run,
            cuts,
            options,
            dictionary=dictionary,
            nearest=near,
            begun=begun,
            line=lines,
            shortlist=shortlist,
            numbers=[
                part_number(lines + n, part)
                for n, pieces in enumerate(cuts)
                for part in range(len(pieces))
            ],
            expected=expected,
            advance=advance,
        )
        lines += len(window)
        yield Answer(written, long)
    for file in filter(None, (prefixes, references)):
        file.check_end(lines)


def _written(
    run: Run,
    cuts: Sequence[Sequence[str]],
    options: Translate,
    *,
    dictionary: Mapping[str, str] | None,
    nearest: Nearest | None,
    begun: Sequence[str] | None,
    line: int,
    advance: Callable[[int], None],
    **request: Unpack[Request],
) -> list[str]:
    """Translates the parts of lines, the first of that number.

    A line comes out for each, or for every entry of n-best lists.
    """
    flat = [part for pieces in cuts for part in pieces]
    if begun is not None:
        request["prefixes"] = [run.vocabularies.target.encode(text) for text in begun]
    if options.json:
        records = describe(run, flat, options.search, advance, **request)
        joined = (join(pieces) for pieces in _grouped(records, cuts))
        return [json.dumps(record, ensure_ascii=False) for record in joined]
    if options.moses:
        ids = [run.vocabularies.source.encode(part) for part in flat]
        ways = translate_nbest(
            run.model, run.params, ids, options.search, advance, **request
        )
        lists = enumerate(_grouped(ways, cuts), line)
        return [entry for n, parts in lists for entry in nbest_list(run, n, parts)]
    texts = translate_lines(
        run,
        flat,
        options.search,
        advance,
        dictionary=dictionary,
        begun=begun,
        nearest=nearest,
        **request,
    )
    return [" ".join(filter(None, pieces)) for pieces in _grouped(texts, cuts)]


def _grouped(flat: Sequence[T], cuts: Sequence[Sequence[str]]) -> Iterator[list[T]]:
    """Results of parts, by the line that each belongs to."""
    results = iter(flat)
    return (list(islice(results, len(pieces))) for pieces in cuts)


def _begun(
    run: Run, prefixes: Sequence[str], cuts: Sequence[Sequence[str]]
) -> list[str]:
    """What the translation of every part begins with: nothing but the first's."""
    begun: list[str] = []
    for prefix, pieces in zip(prefixes, cuts):
        first = first_filled(run.vocabularies.source, pieces)
        begun += [prefix if n == first else "" for n in range(len(pieces))]
    return begun


def _near(
    run: Run, references: Sequence[str], cuts: Sequence[Sequence[str]]
) -> Nearest:
    """The reference of every part: a line that was split has none for its parts."""
    near: list[str | None] = []
    for reference, pieces in zip(references, cuts):
        near += [reference] if len(pieces) == 1 else [None] * len(pieces)
    return Nearest(near, _settings(run))


def _settings(run: Run) -> Settings:
    return Settings(run.experiment.training.bleu_tokenize)
