# SPDX-License-Identifier: Apache-2.0
"""Rows of a table: a run directory each, and what leads to its figures."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

import jax
from rich.console import Console

from experiments.harness.results import (
    Figures,
    read_result,
    told_apart,
    write_result,
)
from experiments.harness.settings import (
    check_begun_alike,
    check_same_config,
    check_same_rows,
    check_same_text,
    check_same_vocabularies,
    config_digest,
    text_digest,
    text_files,
)
from kvnmt.errors import UserError
from kvnmt.model.assembly import count_parameters
from kvnmt.runs.config import Experiment
from kvnmt.runs.directory import Run, load_run
from kvnmt.runs.own_code import own_code
from kvnmt.training.loop import Result


class Trained(NamedTuple):
    """What a row is measured by."""

    folder: Path  # run directory
    run: Run
    result: Result  # of the training


Measure = Callable[[Trained], Figures]


class Train(Protocol):
    """How a run is trained; `kvnmt.runs.train.run` unless a test has its own."""

    def __call__(
        self, experiment: Experiment, folder: Path, *, resume: bool, console: Console
    ) -> Result:
        """Trains an experiment in a run directory."""
        ...


@dataclass(frozen=True, kw_only=True)
class AnyRow(ABC):
    """A folder with a result, and what leads to that."""

    folder: Path
    system: str
    data: str = ""  # which text, where a table has several
    after: tuple[Path, ...] = ()  # rows that must be measured first
    tests: tuple[Path, ...] = ()  # files that it is measured on
    reading: str = ""  # how these are read, if otherwise than usual

    @property
    def needs(self) -> tuple[Path, ...]:
        """The rows without which it cannot begin."""
        return self.after

    @property
    def text(self) -> str | None:
        """Tells apart what it is measured on."""
        return self._with_reading(text_digest(self.tests))

    def _with_reading(self, digest: str | None) -> str | None:
        return f"{digest} {self.reading}" if digest and self.reading else digest

    @property
    def based_on(self) -> dict[str, str]:
        """The rows that it needs, and of what config and text each was measured.

        A result keeps it: those rows may be trained again with other choices. What is
        not known is empty.
        """
        results = {folder.name: read_result(folder) or {} for folder in self.needs}
        return {name: told_apart(result) for name, result in results.items()}

    def result(self) -> Figures | None:
        """What was measured; None: nothing yet.

        Raises:
            UserError: It cannot be read, or is that of another config or text, or of
                other rows.
        """
        figures = read_result(self.folder)
        if figures:
            check_same_text(figures.get("text"), self.text, self.folder)
            check_same_rows(figures.get("based_on"), self.based_on, self.folder)
        return figures

    @abstractmethod
    def make(self, train: Train, console: Console) -> None:
        """Does the work; leaves a result."""


@dataclass(frozen=True, kw_only=True)
class Row(AnyRow):
    """A run of kvnmt in its run directory, measured once it is trained."""

    experiment: Experiment
    measure: Measure
    named_for: tuple[str, ...] = ()  # fields that tell it from others; no flag changes

    @property
    def start(self) -> Literal["scratch", "warm"]:
        """Whether it starts from a trained model."""
        return "warm" if self.experiment.training.warm_start else "scratch"

    @property
    def needs(self) -> tuple[Path, ...]:
        """The rows without which it cannot begin."""
        start = self.experiment.training.warm_start
        return (*dict.fromkeys([*self.after, start]),) if start else self.after

    @property
    def text(self) -> str | None:
        """Tells apart what it is trained, validated and measured on."""
        files = [*text_files(self.experiment), *self.tests]
        return self._with_reading(text_digest(files))

    @property
    def awaits_text(self) -> bool:
        """Whether what it reads is written when the rows that it needs are done."""
        return bool(self.after) and self.text is None

    def result(self) -> Figures | None:
        """As of every row; the config is compared, too, also of a run that is begun."""
        figures = super().result()
        if figures:
            check_same_config(figures.get("config"), self.experiment, self.folder)
            if figures.get("own_code") != own_code(self.experiment.model):
                raise UserError(
                    f"'{self.folder}' was measured with other code than --import names "
                    "now, or notes none; choose another --workdir, or delete that "
                    "folder."
                )
        else:
            check_begun_alike(self.experiment, self.folder)
        check_same_vocabularies(self.experiment, self.folder)
        return figures

    def make(self, train: Train, console: Console) -> None:
        """Trains, or goes on, and measures; leaves a result."""
        resume, text = (self.folder / "config.json").exists(), self.text
        try:
            result = train(self.experiment, self.folder, resume=resume, console=console)
            figures = self._figures(load_run(self.folder), result)
        finally:
            # Programs of many systems are more memory mappings than a process may hold.
            jax.clear_caches()
        if self.text != text:
            raise UserError(
                f"the text of '{self.folder.name}' changed while that was trained; put "
                "it back, or delete that folder to have the row made anew."
            )
        write_result(self.folder, figures)

    def _figures(self, run: Run, result: Result) -> Figures:
        return {
            "system": self.system,
            "start": self.start,
            "seed": self.experiment.training.seed,
            "data": self.data,
            "config": config_digest(self.experiment),
            "setting": config_digest(self.experiment, seed=False),
            "text": self.text,
            "own_code": own_code(self.experiment.model),
            "based_on": self.based_on,
            "state": self.experiment.model.state,
            "parameters": count_parameters(run.params),
            "steps": result.steps,
            "epochs": result.epochs,
            "best_epoch": result.best_epoch,
            "valid_loss": _best_loss(result),
            "target_tokens_per_second": result.tokens_per_second,
            "minutes": result.minutes,
        } | self.measure(Trained(self.folder, run, result))


def _best_loss(result: Result) -> float:
    if "valid_loss" not in result.best:
        raise UserError(
            "no validation gave a number, so there is no best checkpoint; look at the "
            "losses in metrics.jsonl, and choose a lower rate."
        )
    return result.best["valid_loss"]


@dataclass(frozen=True, kw_only=True)
class OtherRow(AnyRow):
    """Figures that come from no training of kvnmt, such as those of other programs."""

    work: Callable[[], Figures]  # gives the figures, perhaps of several ``rows``
    config: str | None = None  # tells apart what they are figures of, if it may change

    def result(self) -> Figures | None:
        """As of every row; the config is compared, if both are noted."""
        figures = super().result()
        noted = figures and figures.get("config")
        if noted and self.config and noted != self.config:
            raise UserError(
                f"'{self.folder}' was measured of another configuration than this; "
                "delete that folder to have it made again, or choose another --workdir."
            )
        return figures

    def make(self, train: Train, console: Console) -> None:
        """Does the work; leaves a result."""
        named: Figures = {"system": self.system, "data": self.data, "text": self.text}
        named["based_on"] = self.based_on
        config = {"config": self.config} if self.config else {}
        write_result(self.folder, named | config | self.work())
