# SPDX-License-Identifier: Apache-2.0
"""What was asked: JSON to tasks and their items, refused in one sentence.

A question knows nothing of HTTP; a `UserError` is a question that is not understood.
Strings are lines of text as ``kvnmt translate`` reads them.
"""

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from kvnmt.data.words import cut, first_filled
from kvnmt.errors import unknown_name
from kvnmt.inference.config import (
    SearchConfig,
    check_asked,
    check_search,
    shape_of,
)
from kvnmt.inference.ids import begun_ids, check_counts, part_number
from kvnmt.runs.directory import Run, longest_input
from kvnmt.serve.limits import (
    Limits,
    Refusal,
    check_aligned,
    check_count,
    check_parts,
    check_shown,
    check_tokens,
    clean_line,
)
from kvnmt.serve.works import Line, Pair, Task, matrices

# What a request may say of the search: nothing that changes how long arrays are.
OPTIONS = (
    "beam",
    "nbest",
    "mbr",
    "sample",
    "temperature",
    "top_p",
    "seed",
    "normalization",
    "alpha",
    "coverage",
    "diversity",
    "min_length",
    "unknown",
)
NAME = 60  # characters of a name that are told again
_number = itertools.count(1)


class Question(NamedTuple):
    """A task, and the items of every line."""

    task: Task
    items: list[list[Any]]  # of a line that was split more than one


class Asker:
    """Reads questions about some runs."""

    def __init__(self, runs: dict[str, Run], search: SearchConfig, limits: Limits):
        """Takes the runs by name, the first of them for who names none."""
        self.runs, self.search, self.limits = runs, search, limits
        self._matrices = {name: matrices(run) for name, run in runs.items()}

    def translation(self, plain: Mapping[str, Any]) -> Question:
        """Lines to translate."""
        known = ("lines", "system", "search", "alignments", "prefixes")
        _check_fields(plain, known)
        name, run = self._system(plain)
        search = self._search(plain.get("search", {}))
        lines = self._lines(plain, "lines")
        begun = "prefixes" in plain
        prefixes = self._prefixes(run, plain, lines) if begun else [()] * len(lines)
        aligned = plain.get("alignments", False)
        if not isinstance(aligned, bool):
            raise Refusal(400, "'alignments' is neither true nor false.")
        if aligned:  # before all lines are cut, and after
            check_aligned([1] * len(lines), search.nbest, self.limits)
        items: list[list[Any]] = []
        words, count = run.vocabularies.source, 0
        for n, (line, prefix) in enumerate(zip(lines, prefixes)):
            parts = cut(words, line, self._most(run))
            count += len(parts)
            check_parts(count, self.limits)
            first = first_filled(words, parts)
            items.append(
                [
                    Line(text, prefix if part == first else (), part_number(n, part))
                    for part, text in enumerate(parts)
                ]
            )
        if aligned:
            texts = (line.text for parts in items for line in parts)
            tokens = [len(words.encode(text)) for text in texts]
            check_aligned(tokens, search.nbest, self.limits)
        kind = "describe" if aligned else "translate"
        return Question(Task(kind, name, search, begun, _alone(search)), items)

    def score(self, plain: Mapping[str, Any]) -> Question:
        """Pairs to score."""
        _check_fields(plain, ("source", "target", "system"))
        name, run = self._system(plain)
        source, target = self._lines(plain, "source"), self._lines(plain, "target")
        check_counts(len(source), "source lines", len(target), "target lines")
        sides = (("source", source), ("target", target))
        for (side, lines), words in zip(sides, run.vocabularies):
            for n, line in enumerate(lines, 1):
                place = f"line {n} of '{side}'"
                check_tokens(len(words.encode(line)), place, self._most(run))
        items = [[Pair(*pair)] for pair in zip(source, target)]
        return Question(Task("score", name, self.search), items)

    def exploration(self, plain: Mapping[str, Any]) -> tuple[str, list[Question]]:
        """A line to look at, with a question for every run."""
        _check_fields(plain, ("line", "prefixes"))
        line = clean_line(plain.get("line"), "'line'", self.limits)
        prefixes = plain.get("prefixes", [""] * len(self.runs))
        if not isinstance(prefixes, list) or len(prefixes) != len(self.runs):
            raise Refusal(400, "'prefixes' is no list with a string for every system.")
        questions, shown, alone = [], [], _alone(self.search)
        for (name, run), text in zip(self.runs.items(), prefixes):
            count = len(run.vocabularies.source.encode(line))
            check_tokens(count, "'line'", self._most(run))
            prefix = self._prefix(run, text, f"the prefix of '{name}'")
            shown.append((self._matrices[name], max(count, len(prefix))))
            task = Task("explore", name, self.search, bool(prefix), alone)
            questions.append(Question(task, [[Line(line, prefix)]]))
        check_shown(shown, self.limits)
        return line, questions

    def _system(self, plain: Mapping[str, Any]) -> tuple[str, Run]:
        name = plain.get("system", next(iter(self.runs)))
        if not isinstance(name, str) or name not in self.runs:
            raise unknown_name("system", str(name)[:NAME], self.runs)
        return name, self.runs[name]

    def _most(self, run: Run) -> int:
        """Most tokens of a line of a run."""
        return self.limits.tokens or longest_input(run)

    def _lines(self, plain: Mapping[str, Any], field: str) -> list[str]:
        lines = plain.get(field)
        if not isinstance(lines, list):
            raise Refusal(400, f"'{field}' is missing, or no list of strings.")
        check_count(lines, self.limits)
        return [
            clean_line(line, f"line {n} of '{field}'", self.limits)
            for n, line in enumerate(lines, 1)
        ]

    def _prefixes(
        self, run: Run, plain: Mapping[str, Any], lines: Sequence[str]
    ) -> list[tuple[int, ...]]:
        texts = self._lines(plain, "prefixes")
        check_counts(len(lines), "lines", len(texts), "prefixes")
        return [
            self._prefix(run, text, f"line {n} of 'prefixes'")
            for n, text in enumerate(texts, 1)
        ]

    def _prefix(self, run: Run, text: object, place: str) -> tuple[int, ...]:
        line = clean_line(text, place, self.limits)
        ids = begun_ids(run.vocabularies.target, line)
        check_tokens(len(ids), place, self._most(run))
        return tuple(ids)

    def _search(self, plain: object) -> SearchConfig:
        if not isinstance(plain, dict):
            raise Refusal(400, "'search' is no object of options.")
        for name in plain:
            if name not in OPTIONS and name in SearchConfig.__dataclass_fields__:
                text = f"'{name}' is set where the service is started, for all."
                raise Refusal(400, text)
            if name not in OPTIONS:
                raise unknown_name("option", name[:NAME], OPTIONS)
        search = replace(self.search, **plain)
        check_search(search)
        check_asked(search, self.search)
        if shape_of(search).width > self.limits.beam:
            raise Refusal(
                400,
                f"'beam' and 'nbest' may be {self.limits.beam} at most; lower them.",
            )
        return search


def _alone(search: SearchConfig) -> int | None:
    """A number for a request that draws words: it shares no batch.

    What else is in a batch changes last bits, and these a draw now and then.
    """
    return next(_number) if search.sample else None


def read_json(body: bytes) -> dict[str, Any]:
    """The object that a body holds; a field that is null is not there.

    Raises:
        Refusal: It holds none.
    """
    try:
        plain = json.loads(body.decode(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deep" if isinstance(error, RecursionError) else error
        raise Refusal(400, f"the body is no JSON in UTF-8: {reason}.") from None
    if not isinstance(plain, dict):
        raise Refusal(400, "the body is no JSON object.")
    return {name: value for name, value in plain.items() if value is not None}


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _check_fields(plain: Mapping[str, Any], known: Iterable[str]) -> None:
    for name in plain:
        if name in OPTIONS and "search" in known:
            raise Refusal(400, f"'{name}' is an option; put it into 'search'.")
        if name not in known:
            raise unknown_name("field", name[:NAME], known)
