# SPDX-License-Identifier: Apache-2.0
"""The commands over given pairs, by forced decoding: score and align."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

import tyro

from kvnmt.cli.flags import check_direction, check_reverse
from kvnmt.console import counting, print_json, say
from kvnmt.data.links import Links
from kvnmt.data.text import Parallel, read_lines, read_parallel
from kvnmt.data.vocabulary import EOS
from kvnmt.errors import UserError, counted
from kvnmt.inference.describe import finite
from kvnmt.inference.forced import Forced, force_lines
from kvnmt.inference.moses import Listed, read_lists
from kvnmt.inference.score import Scored, score_lines
from kvnmt.metrics.links import Heuristic, format_pharaoh, invert, symmetrize
from kvnmt.metrics.perplexity import perplexity
from kvnmt.runs.directory import Run, load_aligner, load_ensemble

T = TypeVar("T")
JOINED: Heuristic = "grow-diag-final-and"
WINDOW = 4096  # pairs at a time, ...
ROOM = 2**28  # ... whose characters times characters are at most so many


@dataclass(frozen=True)
class Score:
    """Print the log-probability of given translations, one number per pair.

    Natural logarithms, the end of sentence included; the sum and the perplexity go to
    standard error. A language model scores the target alone. Of n-best lists
    (--nbest) each entry comes back with its log-probability as one more feature.
    """

    run: tyro.conf.Positional[Path]  # run directory of a trained model
    target: Path | None = None  # translations
    # n-best lists in Moses' format, in the place of --target
    nbest: Path | None = None
    source: Path | None = None  # what they translate; a language model needs none
    ensemble: tuple[Path, ...] = ()  # further runs that score with it as one
    json: bool = False  # print JSON lines with the tokens and their log-probabilities
    # what the log-probability is called in the lists; default: Score
    feature: str | None = None
    # add so many times the log-probability to the scores of the lists, and sort them
    weight: float | None = None

    def __call__(self) -> None:
        """Scores.

        Raises:
            UserError: What is given cannot be read or does not go together.
        """
        self._check()
        run = load_ensemble([self.run, *self.ensemble])
        text, listed = self._read(run)
        sums, count = [], 0

        def scored() -> Iterator[Scored]:
            nonlocal count
            for pair in _told(partial(score_lines, aligned=False), run, text, advance):
                sums.append(pair.log_prob)
                count += len(pair.token_log_probs)
                yield pair

        with counting("scoring", len(text.target)) as advance:
            if listed and not self.json:
                self._print_lists(listed, scored())
            else:
                for line, pair in zip(text.target, scored(), strict=True):
                    self._print(run, line, pair)
        total = math.fsum(sums)
        say(
            f"{counted(len(sums), 'pair')}, {counted(count, 'token')}, "
            f"log-probability {total:.2f}, perplexity {perplexity(total, count):.3f}"
        )
        pairs = zip(text.source, text.target)
        if empty := sum(not (x.strip() and y.strip()) for x, y in pairs):
            say(
                f"warning: {counted(empty, 'pair')} with an empty side; what is scored "
                "there is no translation."
            )

    @property
    def _feature(self) -> str:
        return "Score" if self.feature is None else self.feature

    def _check(self) -> None:
        """Refuses flags that would do nothing."""
        if (self.target is None) == (self.nbest is None):
            raise UserError(
                "give either --target, a file of translations, or --nbest, n-best "
                "lists of them."
            )
        asked = [
            f"--{name}"
            for name in ("feature", "weight")
            if getattr(self, name) is not None
        ]
        if asked and (self.nbest is None or self.json):
            raise UserError(
                f"{asked[0]} is for the n-best lists that --nbest without --json "
                "writes; leave it out."
            )
        name = self._feature
        if len(name.split()) != 1 or "|||" in name or name.endswith("="):
            raise UserError(f"--feature {name!r} must be one word, without '='.")
        if self.weight is not None and not math.isfinite(self.weight):
            raise UserError(f"--weight is {self.weight} but must be a number.")

    def _read(self, run: Run) -> tuple[Parallel, list[Listed]]:
        """The pairs, and the entries of lists that they are from."""
        if self.target:
            return _read(run, self.source, self.target), []
        assert self.nbest
        _check_source(run, self.source)
        lines = read_lines(self.source) if self.source else None
        listed = [*read_lists(self.nbest, None if lines is None else len(lines))]
        targets = [entry.text for entry in listed]
        sources = [lines[entry.number] for entry in listed] if lines else targets
        return Parallel(sources, targets), listed

    def _print_lists(self, listed: list[Listed], scored: Iterable[Scored]) -> None:
        name, weight = self._feature, self.weight
        told = (
            entry.also(name, pair.log_prob, weight)
            for entry, pair in zip(listed, scored, strict=True)
        )
        for _, several in groupby(told, key=lambda entry: entry.number):
            if weight is not None:
                several = sorted(several, key=lambda entry: -entry.score)
            for entry in several:
                print(entry)

    def _print(self, run: Run, line: str, pair: Scored) -> None:
        if not self.json:
            print(f"{pair.log_prob:.6f}")
            return
        target = run.vocabularies.target
        record = {
            "log_prob": finite(pair.log_prob),
            "tokens": target.pieces([*target.encode(line), EOS]),
            "token_log_probs": [*map(finite, pair.token_log_probs)],
        }
        print_json(record)


@dataclass(frozen=True)
class Align:
    """Print word alignments of given pairs, one line of ``source-target`` links each.

    Words are counted from 0. Each target token is linked to the source token that it
    attends to most, if that is not the end of sentence; words are linked if any of
    their pieces are.
    """

    run: tyro.conf.Positional[Path]  # run directory of a trained model
    source: Path  # what is translated
    target: Path  # its translations
    # of attention, from 1, of the first run; default: the last, which is read
    round: int | None = None
    reverse: Path | None = None  # run of the other direction, to join its links with
    # how they are joined; default: grow-diag-final-and
    heuristic: Heuristic | None = None
    json: bool = False  # print JSON lines with the tokens and the soft alignment

    def __call__(self) -> None:
        """Aligns."""
        if self.heuristic and not self.reverse:
            raise UserError(
                "--heuristic joins the links of two runs; name the other with "
                "--reverse."
            )
        run, rounds = load_aligner(self.run)
        text = _read(run, self.source, self.target)
        number = rounds if self.round is None else self.round
        if not 1 <= number <= rounds:
            last = f"1 to {rounds}" if rounds > 1 else "1, the only one of this system"
            raise UserError(f"--round is {self.round} but must be {last}.")
        chosen = number - 1
        backward = self._reverse(run, text)
        with counting("aligning", len(text.target)) as advance:
            for n, pair in enumerate(_told(force_lines, run, text, advance)):
                links = pair.links(chosen)
                if backward:
                    links = symmetrize(links, backward[n], self.heuristic or JOINED)
                if self.json:
                    lines = text.source[n], text.target[n]
                    print_json(_record(run, *lines, pair, chosen, links))
                else:
                    print(format_pharaoh(links))

    def _reverse(self, forward: Run, text: Parallel) -> list[Links] | None:
        """The links of the other direction, if they are to be joined."""
        if self.reverse is None:
            return None
        check_reverse(self.reverse, self.run)
        run, _ = load_aligner(self.reverse)
        check_direction(self.reverse, run, forward)
        with counting("aligning the other way", len(text.target)) as advance:
            turned = Parallel(text.target, text.source)
            forced = _told(force_lines, run, turned, advance)
            return [invert(pair.links()) for pair in forced]


def _record(
    run: Run, source: str, target: str, pair: Forced, chosen: int, links: Links
) -> dict[str, Any]:
    """The alignment of two lines in one round, as plain data."""
    words = run.vocabularies
    matrix = pair.scored.alignments[chosen]
    return {
        "links": format_pharaoh(links),
        "source": words.source.pieces([*words.source.encode(source), EOS]),
        "target": words.target.pieces([*words.target.encode(target), EOS]),
        "alignment": [[round(float(a), 6) for a in row] for row in matrix],
    }


def _told(
    tell: Callable[..., list[T]],
    run: Run,
    text: Parallel,
    advance: Callable[[int], None],
) -> Iterator[T]:
    """What is told of every pair; that of all of them would fill the memory."""
    for part in windows(text):
        yield from tell(run, text.source[part], text.target[part], advance)


def windows(text: Parallel) -> Iterator[slice]:
    """Parts of the text; an alignment is as large as both sides are long."""
    first, room = 0, ROOM
    for n, (source, target) in enumerate(zip(text.source, text.target)):
        needed = (len(source) + 1) * (len(target) + 1)
        if n > first and (needed > room or n - first == WINDOW):
            yield slice(first, n)
            first, room = n, ROOM
        room -= needed
    if first < len(text.target):
        yield slice(first, len(text.target))


def _read(run: Run, source: Path | None, target: Path) -> Parallel:
    _check_source(run, source)
    return read_parallel(source or target, target, faulty="keep")


def _check_source(run: Run, source: Path | None) -> None:
    if source is None and run.model.reads_source:
        raise UserError("this run's model reads a source; give --source too.")
    if source and not run.model.reads_source:
        raise UserError(
            "this run is a language model, which reads no source; leave --source out."
        )
