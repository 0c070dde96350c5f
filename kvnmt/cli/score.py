# SPDX-License-Identifier: Apache-2.0
"""The command that scores given translations, and n-best lists of them."""

import math
import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass, replace
from itertools import groupby, islice, repeat
from pathlib import Path
from typing import Any, Literal

import tyro

from kvnmt.cli.ensembling import Ensembling
from kvnmt.cli.pairs import Batched, check_source, parts, read_pairs
from kvnmt.console import counting, print_json, say
from kvnmt.data.text import Parallel, read_lines
from kvnmt.errors import UserError, counted
from kvnmt.fields import check_fields
from kvnmt.inference.config import SearchConfig, numbers_of
from kvnmt.inference.describe import scored_record
from kvnmt.inference.moses import Listed, read_lists
from kvnmt.inference.score import Scored, score_lines
from kvnmt.metrics.perplexity import perplexity
from kvnmt.runs.directory import Run, load_ensemble
from kvnmt.search.base import length_divisor


@dataclass(frozen=True, kw_only=True)
class Score(Batched, Ensembling):
    """Print the log-probability of given translations, one number per pair.

    The logarithms are natural and include the end of sentence; their sum and the
    perplexity go to standard error. A language model scores only the target. With
    --nbest, each entry of n-best lists is printed with its log-probability as one more
    feature, or with that of its source line, by a run of the other direction
    (--backward; Yee et al. 2019).
    """

    run: tyro.conf.Positional[Path]  # run directory of a trained model
    target: Path | None = None  # translations
    # n-best lists in Moses' format, instead of --target
    nbest: Path | None = None
    source: Path | None = None  # source text; a language model needs none
    # score the source line of each entry of the lists, given the entry: the run
    # translates the other way
    backward: bool = False
    json: bool = False  # print JSON lines with the tokens and their log-probabilities
    # name of the log-probability in the lists; default: Score
    feature: str | None = None
    # add this weight times the log-probability, normalised for length as in the run's
    # search, to the scores of the lists, and sort the lists
    weight: float | None = None
    best: bool = False  # write only the first translation of each list, line by line
    # length normalisation, if not the run's; none: for lists whose scores have none
    normalization: Literal["gnmt", "length", "none"] | None = None

    def __call__(self) -> None:
        """Scores.

        Raises:
            UserError: What is given cannot be read or does not go together.
        """
        check_fields(self)
        check_together(self)
        run = load_ensemble([self.run, *self.ensemble], self.joined)
        pairs, texts, listed = self._read(run)
        sums, count, empty = array("d"), 0, 0

        def scored() -> Iterator[tuple[str, Scored]]:
            nonlocal count, empty
            for source, target in parts(texts, self.batch_size):
                scores = score_lines(
                    run, source, target, advance, aligned=False, limits=self.limits
                )
                for read, line, score in zip(source, target, scores, strict=True):
                    sums.append(score.log_prob)
                    count += len(score.token_log_probs)
                    empty += not (read.strip() and line.strip())
                    yield line, score

        with counting("scoring", pairs, [sys.stdout]) as advance:
            if listed and not self.json:
                self._print_lists(run, listed, (score for _, score in scored()))
            else:
                numbers = [{"number": entry.number} for entry in listed]
                for about, (line, score) in zip(numbers or repeat({}), scored()):
                    self._print(run, line, score, about)
        total = math.fsum(sums)
        say(
            f"{counted(pairs, 'pair')}, {counted(count, 'token')}, "
            f"log-probability {total:.2f}, perplexity {perplexity(total, count):.3f}"
        )
        if empty:
            say(
                f"warning: {counted(empty, 'pair')} with an empty side; what is scored "
                "there is no translation."
            )

    @property
    def column(self) -> str:
        """What the log-probability is called in the lists."""
        return "Score" if self.feature is None else self.feature

    def _read(self, run: Run) -> tuple[int, Iterable[Parallel], list[Listed]]:
        """How many pairs, the pairs, and the entries of lists that they are from."""
        if self.target:
            count, texts = read_pairs(run, self.source, self.target, self.batch_size)
            return count, texts, []
        assert self.nbest
        check_source(run, self.source)
        if self.backward and not self.source:
            raise UserError(
                "--backward is for a run that translates the other way, and a language "
                "model does not; leave it out."
            )
        lines = read_lines(self.source) if self.source else None
        if lines == []:
            raise UserError(f"'{self.source}' is empty; it needs what was translated.")
        listed = [*read_lists(self.nbest, None if lines is None else len(lines))]
        if self.weight is not None:  # those of one line may be of several searches
            listed.sort(key=lambda entry: entry.number)
        name = f" {self.column}= "
        if not self.best and any(name in f" {entry.features} " for entry in listed):
            raise UserError(
                f"'{self.nbest}' has a feature {self.column} already; call this one "
                "otherwise with --feature."
            )
        if self.best:
            count = max(entry.number for entry in listed) + 1
            count = count if lines is None else len(lines)
            _check_whole([entry.number for entry in listed], count, self.nbest)
        targets = [entry.text for entry in listed]
        sources = [lines[entry.number] for entry in listed] if lines else targets
        pairs = (targets, sources) if self.backward else (sources, targets)
        return len(listed), [Parallel(*pairs)], listed

    def _print_lists(
        self, run: Run, listed: list[Listed], scored: Iterable[Scored]
    ) -> None:
        search = run.experiment.search
        search = replace(
            search, normalization=self.normalization or search.normalization
        )

        def more(pair: Scored) -> float | None:
            if self.weight is None:
                return None
            return self.weight * pair.log_prob / divisor(search, pair.token_log_probs)

        entries = (
            entry.also(self.column, pair.log_prob, more(pair))
            for entry, pair in zip(listed, scored, strict=True)
        )
        for _, several in groupby(entries, key=lambda entry: entry.number):
            if self.weight is not None:
                several = sorted(several, key=lambda entry: -entry.score)
            lines = map(str, several)
            if self.best:
                lines = (entry.text for entry in islice(several, 1))
            for line in lines:  # in UTF-8, as kvnmt translate writes
                sys.stdout.buffer.write(f"{line}\n".encode())
        sys.stdout.buffer.flush()

    def _print(
        self, run: Run, line: str, pair: Scored, about: Mapping[str, Any]
    ) -> None:
        if not self.json:
            print(f"{pair.log_prob:.6f}")
            return
        target = run.vocabularies.target
        print_json({**about, **scored_record(target, target.encode(line), pair)})


def check_together(options: Score) -> None:
    """Refuses flags that do not go together, or would do nothing.

    Raises:
        UserError: There is one.
    """
    if (options.target is None) == (options.nbest is None):
        raise UserError(
            "give either --target, a file of translations, or --nbest, n-best "
            "lists of them."
        )
    asked = [
        f"--{name}"
        for name in ("feature", "weight", "normalization", "best")
        if getattr(options, name) not in (None, False)
    ]
    if asked and (options.nbest is None or options.json):
        raise UserError(
            f"{asked[0]} is for the n-best lists that --nbest without --json "
            "writes; leave it out."
        )
    if options.backward and options.nbest is None:
        raise UserError(
            "--backward is for n-best lists; of --source and --target, name each file "
            "as the other."
        )
    if options.best and options.feature is not None:
        raise UserError("--feature is of lists, and --best writes none; drop one.")
    if options.best and options.weight is None:
        raise UserError("--best chooses by what --weight adds; give that, too.")
    if options.normalization and options.weight is None:
        raise UserError("--normalization is of what --weight adds; give that, too.")
    name = options.column
    if len(name.split()) != 1 or "|||" in name or "=" in name:
        raise UserError(f"--feature {name!r} must be one word, without '='.")


def _check_whole(numbers: list[int], count: int, path: Path) -> None:
    """Refuses lists of which not every line has one, in the order of the lines.

    Raises:
        UserError: It is so; the first line without its list is named.
    """
    lists = [number for number, _ in groupby(numbers)]
    for line in range(max(count, len(lists))):
        if line >= count or lists[line : line + 1] != [line]:
            raise UserError(
                f"'{path}' has not one list for every line, in their order: that of "
                f"number {line} is not in its place; leave out --best."
            )


def divisor(search: SearchConfig, tokens: Sized) -> float:
    """By what a search divides the log-probability of so many tokens, EOS included."""
    numbers = numbers_of(search)
    return float(length_divisor(len(tokens), numbers.alpha, numbers.offset))
