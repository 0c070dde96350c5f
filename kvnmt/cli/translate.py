# SPDX-License-Identifier: Apache-2.0
"""The command that translates standard input."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

import tyro

from kvnmt.console import counting, error_console
from kvnmt.data.text import decode, read_lines
from kvnmt.data.words import cut
from kvnmt.devices import use_cores
from kvnmt.errors import UserError, check_ranges
from kvnmt.inference.describe import describe, join
from kvnmt.inference.program import RANGES, SearchConfig
from kvnmt.inference.translate import translate_lines
from kvnmt.inference.unknown_words import read_dictionary
from kvnmt.runs.directory import Run, load_translator

SEARCH = {f"search.{name}": bounds for name, bounds in RANGES.items()}
WINDOW = 20  # batches that are read, sorted by length and written together


@dataclass(frozen=True)
class Translate:
    """Translate standard input to standard output, one line out per line in.

    Lines are read and written in windows of twenty batches; with --search.batch-size 1
    every line is answered as soon as it is there.
    """

    run: tyro.conf.Positional[Path]  # run directory of a trained model
    search: SearchConfig
    ensemble: tuple[Path, ...] = ()  # further runs that translate with it as one
    prefix: Path | None = None  # what each translation begins with, a line for a line
    json: bool = False  # JSON lines: scores, tokens, alignment, n-best
    replace_unknown: bool = False  # by the source word attended to, or its translation
    dictionary: Path | None = None  # for that: lines of word, tab, translation
    max_input: int = 200  # most tokens of a line
    too_long: Literal["split", "truncate"] = "split"  # what to do with a longer one

    def __call__(self) -> None:
        """Translates."""
        check_ranges(self, SEARCH | {"max_input": (1, None)})
        if self.json and (self.replace_unknown or self.dictionary):
            raise UserError(
                "--json tells what the model wrote; leave out either it or "
                "--replace-unknown and --dictionary."
            )
        use_cores()
        run = load_translator(self.run, self.ensemble)
        work = _Work(self, run)
        size = self.search.batch_size
        windows = read_windows(sys.stdin.buffer, size * WINDOW if size > 1 else 1)
        try:
            with counting("translating", _count_lines(sys.stdin.buffer)) as advance:
                for lines in windows:
                    for line in work.answer(lines, advance):
                        sys.stdout.buffer.write(line.encode() + b"\n")
                    sys.stdout.buffer.flush()
        finally:
            work.warn()


class _Work:
    """One run of the command: what was read for it and how far it is."""

    def __init__(self, options: Translate, run: Run):
        self.options, self.run = options, run
        path = options.dictionary
        self.dictionary = read_dictionary(path) if path else {}
        self.prefixes = read_lines(options.prefix) if options.prefix else None
        self.seen = self.parts = self.long = 0  # lines, parts of lines, long lines
        self.expected: int | None = None

    def answer(
        self, lines: Sequence[str], advance: Callable[[int], None]
    ) -> Iterator[str]:
        """Translates the next lines."""
        cuts = [self._cut(line) for line in lines]
        flat = [part for parts in cuts for part in parts]
        self.expected = self.expected or len(flat)
        where: dict[str, Any] = {"first": self.parts, "expected": self.expected}
        where["prefixes"] = self._prefixes(cuts)
        given = self.run, flat, self.options.search
        if self.options.json:
            told = iter(describe(*given, advance, **where))
            records = ([next(told) for _ in parts] for parts in cuts)
            found = [json.dumps(join(some), ensure_ascii=False) for some in records]
        else:
            wanted = self.options.replace_unknown or self.options.dictionary
            known = self.dictionary if wanted else None
            written = iter(translate_lines(*given, advance, dictionary=known, **where))
            pieces = ([next(written) for _ in parts] for parts in cuts)
            found = [" ".join(filter(None, some)) for some in pieces]
        self.seen, self.parts = self.seen + len(lines), self.parts + len(flat)
        yield from found

    def warn(self) -> None:
        """Says how many lines were too long, if any."""
        if self.long:
            how = {"split": "split", "truncate": "truncated"}[self.options.too_long]
            error_console().print(
                f"warning: {self.long} lines had more than {self.options.max_input} "
                f"tokens and were {how}; see --max-input and --too-long.",
                highlight=False,
                soft_wrap=True,
            )

    def _cut(self, line: str) -> list[str]:
        parts = cut(self.run.vocabularies.source, line, self.options.max_input)
        self.long += len(parts) > 1
        return parts if self.options.too_long == "split" else parts[:1]

    def _prefixes(self, cuts: Sequence[Sequence[str]]) -> list[list[int]] | None:
        """What the first part of every line begins with."""
        if self.prefixes is None:
            return None
        mine = self.prefixes[self.seen : self.seen + len(cuts)]
        if len(mine) < len(cuts):
            raise UserError(
                f"'{self.options.prefix}' has {len(self.prefixes)} lines but the input "
                "has more; it needs one, perhaps empty, for every line of input."
            )
        encode = self.run.vocabularies.target.encode
        rest = ([[]] * (len(parts) - 1) for parts in cuts)
        return [ids for one, more in zip(mine, rest) for ids in [encode(one), *more]]


def read_windows(stream: BinaryIO, size: int) -> Iterator[list[str]]:
    """Yields lines of standard input, ``size`` at a time, as soon as they are there.

    Raises:
        UserError: A line is not UTF-8; the lines before it were yielded.
    """
    window: list[str] = []
    for number, line in enumerate(stream, 1):  # bytes: the line feed alone splits
        try:
            line = line.removesuffix(b"\n").removesuffix(b"\r")
            window.append(decode(line, "standard input, line", number))
        except UserError:
            if window:
                yield window
            raise
        if len(window) == size:
            yield window
            window = []
    if window:
        yield window


def _count_lines(stream: BinaryIO) -> int | None:
    """How many lines there will be, where that can be known."""
    if not (sys.stderr.isatty() and stream.seekable()):
        return None
    here = stream.tell()
    count = sum(1 for _ in stream)
    stream.seek(here)
    return count
