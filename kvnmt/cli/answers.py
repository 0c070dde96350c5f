# SPDX-License-Identifier: Apache-2.0
"""What `kvnmt translate` writes: lines, JSON or n-best lists, of lines that come in."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Unpack

from kvnmt.cli.beside import read_beside
from kvnmt.data.words import beginning, cut, first_filled, word_places
from kvnmt.fields import at_least
from kvnmt.inference.config import SearchConfig
from kvnmt.inference.describe import alignment_sizes, grouped, join, linked, read_back
from kvnmt.inference.ids import begun_ids, part_number
from kvnmt.inference.moses import Part, entries
from kvnmt.inference.nearest import Nearest
from kvnmt.inference.score import in_parts
from kvnmt.inference.shortlist_file import read_shortlist
from kvnmt.inference.translate import (
    Request,
    for_the_best,
    translate_lines,
    translate_nbest,
)
from kvnmt.inference.unknown_words import check_replaceable, read_dictionary
from kvnmt.metrics.bleu import Settings, bleu_metric
from kvnmt.runs.directory import Run, longest_input

WINDOW = 20  # batches that are read, sorted by length and written together


@dataclass(frozen=True, kw_only=True)
class Answering:
    """How lines are translated, and what is written of them."""

    search: SearchConfig
    prefix: Path | None = None  # beginning of each translation, one per input line
    nearest: Path | None = None  # references; the nearest of --search.nbest is written
    shortlist: Path | None = None  # table of kvnmt shortlist: target words to use
    json: bool = False  # JSON lines: scores, tokens, alignment, n-best
    moses: bool = False  # n-best lists in Moses' format, of --search.nbest entries
    # add links between words after each translation: ||| 0-0 1-2
    alignment: bool = False
    # instead of an unknown word, write the source word that it attends to most, or that
    # source word's entry in --dictionary
    replace_unknown: bool = False
    dictionary: Path | None = None  # lines of word, tab, translation
    # most tokens of a line; default: 199, or what the run was trained on if more
    max_input: Annotated[int | None, at_least(1)] = None
    too_long: Literal["split", "truncate"] = "split"  # what to do with a longer one


class Answer(NamedTuple):
    """What is written for a window of lines."""

    # one for every line of the window, or more in n-best lists; take them before the
    # next answer
    lines: Iterable[str]
    long: int  # how many of them had too many tokens


def answers(
    run: Run,
    windows: Iterable[Sequence[str]],
    options: Answering,
    advance: Callable[[int], None] = lambda sentences: None,
    *,
    count: int | None = None,
    first: int = 0,
) -> Iterator[Answer]:
    """Translates windows of lines, each before the next is read.

    Args:
        run: The trained model.
        windows: The lines of the whole input, in order.
        options: How to translate, and what to do with long lines.
        advance: Told of every batch how many sentences it held.
        count: How many lines the whole input has, if that is known.
        first: Number of the first line of the windows, from 0.

    Raises:
        UserError: The dictionary, the prefixes, the references or the shortlist cannot
            be read, or there are fewer or more prefixes or references than lines.
            Without a count, more are noticed only once all lines are translated.
    """
    dictionary = None
    if options.dictionary or options.replace_unknown:
        check_replaceable(run)
        path = options.dictionary
        dictionary = read_dictionary(path) if path else {}
    prefixes, references = read_beside(options.prefix), read_beside(options.nearest)
    for beside in filter(None, (prefixes, references)):
        if count is not None:
            beside.window(0, count)
            beside.check_end(count)
    if references:
        bleu_metric(_settings(run))  # complains before anything is translated
    shortlist = None
    if options.shortlist:
        shortlist = read_shortlist(options.shortlist, run.vocabularies)
    most = options.max_input or longest_input(run)
    lines = first  # before the window
    expected = None  # parts in all windows, as far as the first one tells
    full = options.search.batch_size * WINDOW
    for window in windows:
        cuts = [cut(run.vocabularies.source, one, most) for one in window]
        long = sum(len(pieces) > 1 for pieces in cuts)
        if options.too_long == "truncate":
            words = run.vocabularies.source
            cuts = [
                pieces if len(pieces) == 1 else [beginning(words, line, most)]
                for line, pieces in zip(window, cuts)
            ]
        if expected is None:
            whole = len(window) * (1 if len(window) < full else WINDOW)
            whole = whole if count is None else count - first
            expected = math.ceil(sum(map(len, cuts)) * whole / len(window))
        begun = near = None
        if prefixes:
            begun = _begun(run, prefixes.window(lines, len(window)), cuts)
        if references:
            near = _near(run, references.window(lines, len(window)), cuts)
        written = _written(
            run,
            window,
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
            advance=_in_lines(advance, cuts),
        )
        lines += len(window)
        yield Answer(written, long)
    for file in filter(None, (prefixes, references)):
        file.check_end(lines)


def _in_lines(
    advance: Callable[[int], None], cuts: Sequence[Sequence[str]]
) -> Callable[[int], None]:
    """Turns progress in parts of a window into progress in lines."""
    parts = sum(bool(part.strip()) for pieces in cuts for part in pieces)
    done = told = 0
    if not parts:
        advance(len(cuts))

    def tell(more: int) -> None:
        nonlocal done, told
        done += more
        lines = min(len(cuts) * done // max(parts, 1), len(cuts))
        advance(lines - told)
        told = lines

    return tell


def _written(
    run: Run,
    lines: Sequence[str],
    cuts: Sequence[Sequence[str]],
    options: Answering,
    *,
    dictionary: Mapping[str, str] | None,
    nearest: Nearest | None,
    begun: Sequence[str] | None,
    line: int,
    advance: Callable[[int], None],
    **request: Unpack[Request],
) -> Iterable[str]:
    """Translates the parts of lines; ``line`` is the number of the first line.

    One line comes out for each line, or for every entry of n-best lists.
    """
    flat = [part for pieces in cuts for part in pieces]
    search = options.search
    if begun is not None:
        target = run.vocabularies.target
        request["prefixes"] = [begun_ids(target, text) for text in begun]
    if options.json or options.moses or options.alignment:
        if not (options.json or options.moses):
            search = for_the_best(search)
        ids = [run.vocabularies.source.encode(part) for part in flat]
        ways = translate_nbest(run.model, run.params, ids, search, advance, **request)
        if not (options.json or options.moses):
            ways = [several[:1] for several in ways]
        parts = in_parts(alignment_sizes(ids, ways))
        read = ((run, flat[part], ways[part]) for part in parts)
        if options.json:
            tell = partial(read_back, nbest=search.nbest > 1, limits=search.limits)
            records = (one for part in read for one in tell(*part))
            joined = (join(pieces) for pieces in grouped(records, cuts))
            return (json.dumps(record, ensure_ascii=False) for record in joined)
        words = [one for of_line in map(word_places, lines, cuts) for one in of_line]
        told = map(Part, words, ways)
        if options.alignment:
            links = (one for part in read for one in linked(*part, search.limits))
            told = map(Part, words, ways, links)
        return _listed(run, grouped(told, cuts), line, options)
    texts = translate_lines(
        run,
        flat,
        search,
        advance,
        dictionary=dictionary,
        begun=begun,
        nearest=nearest,
        **request,
    )
    return [" ".join(filter(None, pieces)) for pieces in grouped(texts, cuts)]


def _listed(
    run: Run, lines: Iterable[Sequence[Part]], first: int, options: Answering
) -> Iterator[str]:
    """The n-best lists of lines, or their best translations with links behind them.

    Args:
        run: The trained model.
        lines: The parts of every line.
        first: The number of the first of them.
        options: Which of the two is asked for.
    """
    for number, parts in enumerate(lines, first):
        every = entries(run, parts)
        if options.moses:
            yield from (f"{number} ||| {entry}" for entry in every)
        else:
            yield f"{every[0].text} ||| {every[0].links}"


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
