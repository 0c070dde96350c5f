# SPDX-License-Identifier: Apache-2.0
"""The command that translates standard input."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import tyro

from kvnmt.cli.answers import WINDOW, Answering, answers
from kvnmt.cli.ensembling import Ensembling
from kvnmt.cli.windows import awaited_lines, read_windows
from kvnmt.console import counting, say
from kvnmt.data.outputs import claim
from kvnmt.data.text import read_lines
from kvnmt.devices import own_mesh, replicate, use_cores
from kvnmt.errors import UserError, counted, reason_of
from kvnmt.fields import check_fields
from kvnmt.inference.config import check_search
from kvnmt.inference.score import rounds_of
from kvnmt.runs.directory import Run, load_translator, longest_input

TOGETHER = 64  # lines that are written at once


@dataclass(frozen=True, kw_only=True)
class Translate(Answering, Ensembling):
    """Translate standard input to standard output, one line out per line in.

    Lines are read and written in windows of twenty batches; in a terminal, or with
    --search.batch-size 1, every line is answered as soon as it is there.
    """

    run: tyro.conf.Positional[Path]  # run directory of a trained model
    input: Path | None = None  # text to translate; default: standard input
    output: Path | None = None  # where translations go; default: standard output
    resume: bool = False  # continue after the lines that --output already has

    def __call__(self) -> None:
        """Translates.

        Raises:
            UserError: What is given cannot be read or does not go together, or a file
                for the translations cannot be written.
        """
        check_fields(self)
        check_search(self.search)
        check_together(self)
        if self.output:
            read = self.input, self.prefix, self.nearest, self.dictionary
            claim(self.output, [*read, self.shortlist])
            _refuse_input(self.output)
        use_cores()
        run = load_translator(self.run, self.ensemble, self.joined)
        # Once, not anew in every window.
        run = run._replace(params=replicate(run.params, own_mesh()))
        check_nbest(self, run)
        check_alignment(self, run)
        done, size = self._done()
        total, windows = self._windows(done)
        typed = None if self.input else sys.stdin
        written = None if self.output else sys.stdout
        count = total if self.input else None
        long = 0
        try:
            with (
                counting("translating", total, (typed, written)) as advance,
                self._written(size) as write,
            ):
                advance(done)
                told = answers(run, windows, self, advance, count=count, first=done)
                for answer in told:
                    long += answer.long
                    lines = iter(answer.lines)  # long alignments are made as they go
                    while some := "".join(f"{x}\n" for x in islice(lines, TOGETHER)):
                        write(some.encode())
        finally:
            if long:
                most = self.max_input or longest_input(run)
                how = {"split": "split", "truncate": "truncated"}[self.too_long]
                say(
                    f"warning: {counted(long, 'line')} had more than "
                    f"{most} tokens and {'was' if long == 1 else 'were'} "
                    f"{how}; see --max-input and --too-long."
                )

    @contextmanager
    def _written(self, size: int = 0) -> Iterator[Callable[[bytes], None]]:
        """Yields a function that writes translations, so that they can be read at once.

        A resumed file goes on after so many bytes, which are whole lines.
        """
        if (path := self.output) is None:
            yield partial(_write, sys.stdout.buffer)
            return
        with ExitStack() as stack:
            file = None

            def write(text: bytes) -> None:
                nonlocal file  # what it held is lost only once there is something else
                if file is None:
                    if size:  # a line that was cut off is no longer there
                        os.truncate(path, size)
                    mode = "ab" if size else "wb"
                    file = stack.enter_context(path.open(mode, buffering=0))
                _write_file(file, path, text)

            yield write
            write(b"")

    def _done(self) -> tuple[int, int]:
        """How many lines of the input a former start has done, and bytes it wrote.

        Of n-best lists the last may not be whole, and is made again.
        """
        if not (self.resume and self.output and self.output.exists()):
            return 0, 0
        # Where what is written for each line of the input ends, or its list begins.
        ends, size = [0], 0
        with self.output.open("rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    break
                size += len(line)
                if not self.moses:
                    ends.append(size)
                elif self._number(line, len(ends)) == len(ends):
                    ends.append(size - len(line))
        return len(ends) - 1, ends[-1]

    def _number(self, line: bytes, after: int) -> int:
        """That of an entry of the n-best list which is read, or of the one after."""
        number = line.partition(b" ||| ")[0]
        if number not in (b"%d" % n for n in (after - 1, after)):
            raise UserError(
                f"'{self.output}' does not hold n-best lists of all lines in order; "
                "leave out --resume or --moses, or name another --output."
            )
        return int(number)

    def _windows(self, done: int = 0) -> tuple[int | None, Iterator[Sequence[str]]]:
        """The lines to translate, and how many there are, if that is known."""
        full = self.search.batch_size * WINDOW
        if self.input:
            lines = read_lines(self.input)
            if done + (self.moses and done > 0) > len(lines):
                raise UserError(
                    f"'{self.output}' is of more lines than '{self.input}' has; "
                    "leave out --resume, or name another --output."
                )
            places = range(done, len(lines), full)
            return len(lines), (lines[n : n + full] for n in places)
        text = sys.stdin.buffer
        if text.isatty() or self.search.batch_size == 1:
            full = 1  # whoever types a line waits for its translation
        return awaited_lines(text), read_windows(text, full)


def check_together(options: Translate) -> None:
    """Refuses flags that are not of the same output.

    Raises:
        UserError: One would do nothing.
    """
    if options.resume and not (options.input and options.output):
        raise UserError("--resume goes on with a file; give --input and --output.")
    shapes = {
        "--json": options.json,
        "--moses": options.moses,
        "--alignment": options.alignment,
    }
    told = [name for name, asked in shapes.items() if asked]
    if told and (options.replace_unknown or options.dictionary):
        raise UserError(
            f"{told[0]} tells what the model wrote; leave out either it or "
            "--replace-unknown and --dictionary."
        )
    if options.replace_unknown or options.dictionary:
        if options.nearest:
            raise UserError(
                "--nearest chooses before unknown words are replaced; leave out either "
                "it or --replace-unknown and --dictionary."
            )
        if not options.search.unknown:
            raise UserError(
                "a search that writes no unknown word leaves nothing to replace; give "
                "--search.unknown, or leave out --replace-unknown and --dictionary."
            )
    if options.json and options.moses:
        raise UserError("--json and --moses are two formats; leave one out.")
    if options.json and options.alignment:
        raise UserError("--json has links already; leave --alignment out.")
    if told and options.nearest:
        raise UserError(
            f"--nearest chooses among lines of text; leave out either it or {told[0]}."
        )


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


def check_alignment(options: Translate, run: Run) -> None:
    """Refuses to tell links of a model that has none.

    Raises:
        UserError: It has no attention.
    """
    if options.alignment and not rounds_of(run.model, run.params):
        raise UserError(
            f"the system of '{options.run}' has no attention, so nothing is aligned; "
            "leave --alignment out."
        )


def _refuse_input(output: Path) -> None:
    """Refuses the file that standard input comes from.

    Raises:
        UserError: It is that.
    """
    with suppress(OSError, ValueError):  # closed, or of a test
        here = os.fstat(sys.stdin.fileno())
        if output.is_file() and os.path.samestat(here, output.stat()):
            raise UserError(f"'{output}' is read too; write to another file.")


def _write_file(file: BinaryIO, path: Path, text: bytes) -> None:
    try:
        _write(file, text)
    except OSError as error:
        raise UserError(f"'{path}' cannot be written: {reason_of(error)}.") from None


def _write(file: BinaryIO, text: bytes) -> None:
    """Writes all of it, in parts where a file without a buffer takes no more."""
    while text:
        text = text[file.write(text) :]
    file.flush()
