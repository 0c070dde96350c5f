# SPDX-License-Identifier: Apache-2.0
"""What is measured: systems, their sizes, the batch, how often."""

import sys
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Literal

from kvnmt import devices
from kvnmt.errors import (
    Idle,
    UserError,
    at_least,
    between,
    check_bounds,
    check_given,
)
from kvnmt.model.config import ModelConfig
from kvnmt.systems.named import check_no_mechanism, system
from kvnmt.training.step_options import StepOptions

SYSTEMS = (
    "rnnsearch-star",
    "mematt",
    "kvmematt-r1",
    "kvmematt-r1-atteos",
    "kvmematt-r2",
    "kvmematt-r2-atteos",
)


@dataclass(frozen=True)
class BenchmarkConfig(StepOptions):
    """What is measured."""

    systems: tuple[str, ...] = SYSTEMS  # the first is what the others are compared to
    model: ModelConfig = field(default_factory=ModelConfig)  # sizes
    batch_size: Annotated[int, at_least(1)] = 80  # sentences
    source_length: Annotated[int, at_least(2)] = 25  # padded, EOS included
    target_length: Annotated[int, at_least(2)] = 25
    # share of real tokens; lengths spread evenly around it
    fill: Annotated[float, between(0.5, 1)] = 0.85
    vocabulary: Annotated[int, at_least(3)] = 10000  # words on each side
    repeats: Annotated[int, at_least(1)] = 10  # timed rounds
    seed: Annotated[int, at_least(0)] = 1
    train: bool = True  # measure train steps
    split: bool = True  # and what of a step is forward, backward and optimiser
    decode: bool = False  # measure translating, for every beam and batch
    beams: tuple[int, ...] = (1, 10)  # hypotheses; 1: greedy
    batches: tuple[int, ...] = (1, 64)  # sentences translated at a time
    # target words of a batch that are translated with, as with a shortlist;
    # default: all.
    candidates: Annotated[int | None, at_least(2)] = None


@dataclass(frozen=True)
class AgainstConfig:
    """How another program is measured beside this one."""

    against: Literal["joeynmt", "opennmt"] | None = None  # it, instead of systems
    peer_python: Path = Path(sys.executable)  # the Python that has it installed
    work: Path = Path("runs/against")  # folder for text, models and what they print
    text: Path | None = None  # folder of {train,valid,test}.*; default: made up
    languages: tuple[str, str] = ("src", "trg")  # how the names of its files end
    test: str = "test"  # how that of the lines to translate begins
    pairs: Annotated[int, at_least(1)] = 8000  # at most, to train on
    valid_pairs: Annotated[int, at_least(1)] = 400  # at most, to validate on
    lines: Annotated[int, at_least(1)] = 200  # at most, to translate
    longest: Annotated[int, at_least(1)] = 60  # words; longer sentences are left out
    epochs: Annotated[int, at_least(1)] = 1
    turns: Annotated[int, at_least(1)] = 5  # how often both are run
    threads: Annotated[int | None, at_least(1)] = None  # default: as many as cores
    ours: Path | None = None  # run directory that translates; default: train one
    theirs: Path | None = None  # the other program's model
    # a table of kvnmt shortlist for --ours, whose speed stands beside exact search.
    shortlist: Path | None = None


def check(config: BenchmarkConfig) -> None:
    """Refuses what cannot be measured, before any work and without any device.

    Raises:
        UserError: A number is out of its bounds, a system is not known, or nothing is
            left to measure.
    """
    check_bounds(config)
    if not config.systems:
        raise UserError("no system is named; give --systems at least one.")
    for name in config.systems:
        system(name)
    check_no_mechanism(config.model, "look at one such model with kvnmt compile")
    if not (config.train or config.decode):
        raise UserError("nothing is measured; give --decode, or leave out --no-train.")
    if config.candidates and not config.decode:
        raise UserError("--candidates are of translating; give --decode too.")
    if config.candidates and config.candidates > config.vocabulary:
        raise UserError(
            f"--candidates is {config.candidates} but the vocabulary has "
            f"{config.vocabulary} words."
        )
    if config.decode:
        for flag, numbers in (("beams", config.beams), ("batches", config.batches)):
            if not numbers or min(numbers) < 1:
                raise UserError(f"--{flag} must be numbers of at least 1.")


def check_alone(against: AgainstConfig) -> None:
    """Refuses what somebody gave for another program where none is measured.

    Raises:
        OptionError: Something was.
    """
    names = tuple(field.name for field in fields(against) if field.name != "against")
    why = "{0} is for measuring beside another program; name it with {1}."
    check_given(against, [Idle(names, why, ("against",))], AgainstConfig())


def check_devices(config: BenchmarkConfig) -> None:
    """Refuses a batch that cannot be split over the devices.

    Raises:
        UserError: It cannot.
    """
    if config.train:
        share = devices.rows(devices.data_mesh()) * config.accumulate
        devices.check_rows(config.batch_size, share, "devices and parts")


def check_against(config: BenchmarkConfig, against: AgainstConfig) -> None:
    """Refuses what cannot be measured of two programs, before any work.

    Raises:
        UserError: A number is out of its bounds, or flags do not go together.
    """
    check(config)
    check_bounds(against)
    if config.candidates:
        raise UserError(
            "--candidates are of untrained systems; with --against, give --shortlist."
        )
    if (against.ours is None) != (against.theirs is None):
        raise UserError("--ours and --theirs are models to compare; give both.")
    if against.ours is None and not config.train:
        raise UserError(
            "without training there is nothing to translate with; give --ours and "
            "--theirs, or leave out --no-train."
        )
    if against.ours and not config.decode:
        raise UserError("--ours and --theirs translate; give --decode too.")
    if against.shortlist and not against.ours:
        raise UserError("--shortlist is of a model's vocabularies; give --ours too.")
    if against.work.exists() and any(against.work.iterdir()):
        raise UserError(
            f"'{against.work}' is not empty; choose another --work, or remove it."
        )
