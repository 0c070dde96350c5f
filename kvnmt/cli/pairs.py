# SPDX-License-Identifier: Apache-2.0
"""The commands over given pairs, by forced decoding: score and align."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from kvnmt.console import counting, error_console
from kvnmt.data.text import Parallel, read_parallel
from kvnmt.data.vocabulary import EOS
from kvnmt.data.words import word_numbers
from kvnmt.errors import UserError
from kvnmt.inference.score import Scored, score_lines
from kvnmt.metrics.alignment import hard_links, word_links
from kvnmt.metrics.links import Heuristic, Links, format_pharaoh, invert, symmetrize
from kvnmt.runs.directory import Run, load_aligner, load_ensemble


@dataclass(frozen=True)
class Score:
    """Print the log-probability of given translations, one number per pair.

    Natural logarithms, the end of sentence included; the sum and the perplexity go to
    standard error. A language model scores the target alone.
    """

    run: tyro.conf.Positional[Path]  # run directory of a trained model
    target: Path  # translations
    source: Path | None = None  # what they translate; a language model needs none
    ensemble: tuple[Path, ...] = ()  # further runs that score with it as one
    json: bool = False  # print JSON lines with the tokens and their log-probabilities

    def __call__(self) -> None:
        """Scores."""
        run = load_ensemble([self.run, *self.ensemble])
        text = _read(run, self.source, self.target)
        scored = _forced(run, text, "scoring")
        target = run.vocabularies.target
        for line, one in zip(text.target, scored):
            if not self.json:
                print(f"{one.log_prob:.6f}")
                continue
            tokens = target.pieces([*target.encode(line), EOS])
            found = {"log_prob": one.log_prob, "tokens": tokens}
            print(json.dumps(found | {"token_log_probs": one.token_log_probs}))
        count = sum(len(one.token_log_probs) for one in scored)
        total = math.fsum(one.log_prob for one in scored)
        perplexity = math.exp(min(-total / max(count, 1), 700))
        said = f"{len(scored)} pairs, {count} tokens, log-probability {total:.2f}"
        error_console().print(f"{said}, perplexity {perplexity:.3f}", highlight=False)


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
    round: int | None = None  # of attention, from 1; default: the last, which is read
    reverse: Path | None = None  # run of the other direction, to join its links with
    heuristic: Heuristic = "grow-diag-final-and"  # how they are joined
    json: bool = False  # print JSON lines with the tokens and the soft alignment

    def __call__(self) -> None:
        """Aligns."""
        run, rounds = load_aligner(self.run)
        text = _read(run, self.source, self.target)
        if not 1 <= (self.round or rounds) <= rounds:
            raise UserError(f"--round is {self.round} but must be 1 to {rounds}.")
        chosen = (self.round or rounds) - 1
        backward = self._reverse(text)
        scored = _forced(run, text, "aligning")
        for n, pair in enumerate(zip(text.source, text.target)):
            matrix = scored[n].alignments[chosen]
            links = _links(run, *pair, matrix)
            if backward:
                links = symmetrize(links, backward[n], self.heuristic)
            print(self._line(run, *pair, matrix, format_pharaoh(links)))

    def _reverse(self, text: Parallel) -> list[Links] | None:
        """The links of the other direction, if they are to be joined."""
        if self.reverse is None:
            return None
        run, _ = load_aligner(self.reverse)
        turned = Parallel(text.target, text.source)
        scored = _forced(run, turned, "aligning the other way")
        given = zip(turned.source, turned.target, scored)
        return [invert(_links(run, x, y, one.alignments[-1])) for x, y, one in given]

    def _line(self, run: Run, source: str, target: str, matrix: Any, links: str) -> str:
        if not self.json:
            return links
        words = run.vocabularies
        x, y = words.source.encode(source), words.target.encode(target)
        found = {
            "links": links,
            "source": words.source.pieces([*x, EOS]),
            "target": words.target.pieces([*y, EOS]),
            "alignment": [[round(float(a), 6) for a in row] for row in matrix],
        }
        return json.dumps(found)


def _links(run: Run, source: str, target: str, matrix: Any) -> Links:
    """Links between the words of two lines."""
    words = run.vocabularies
    x, y = word_numbers(words.source, source), word_numbers(words.target, target)
    return word_links(hard_links(matrix, len(x), len(y)), x, y)


def _read(run: Run, source: Path | None, target: Path) -> Parallel:
    if source is None and run.model.reads_source:
        raise UserError("this run's model reads a source; give --source too.")
    return read_parallel(source or target, target, faulty="keep")


def _forced(run: Run, text: Parallel, what: str) -> list[Scored]:
    """Scores and aligns under a progress bar."""
    with counting(what, len(text.target)) as advance:
        return score_lines(run, text.source, text.target, advance)
