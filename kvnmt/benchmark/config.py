# SPDX-License-Identifier: Apache-2.0
"""What is measured: systems, their sizes, the batch, how often."""

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from kvnmt import devices
from kvnmt.errors import Idle, OptionError, UserError, check_given
from kvnmt.fields import at_least, between, check_fields, unused
from kvnmt.inference.config import MOST, SearchConfig
from kvnmt.model.config import Dropout, ModelConfig
from kvnmt.runs.directory import check_run, chosen
from kvnmt.runs.idle import check_parts, idle_sizes, idle_steps
from kvnmt.systems.named import check_no_mechanism, system
from kvnmt.training.step_options import StepOptions

T = TypeVar("T")
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

    systems: tuple[str, ...] = SYSTEMS  # the others are compared with the first
    model: ModelConfig = field(default_factory=ModelConfig)  # sizes
    batch_size: Annotated[int, at_least(1)] = 80  # sentences
    source_length: Annotated[int, at_least(2)] = 25  # padded, EOS included
    target_length: Annotated[int, at_least(2)] = 25
    # share of real tokens; lengths spread evenly around it
    fill: Annotated[float, between(0.5, 1)] = 0.85
    vocabulary: Annotated[int, at_least(3)] = 10000  # words on each side
    repeats: Annotated[int, at_least(1)] = 10  # timed rounds
    seed: Annotated[int, between(0, MOST)] = 1
    train: bool = True  # measure train steps
    split: bool = True  # also measure forward, backward and optimiser apart
    decode: bool = False  # measure translating, for every beam and batch
    beams: tuple[int, ...] = (1, 10)  # hypotheses; 1: greedy
    batches: tuple[int, ...] = (1, 64)  # sentences translated at a time
    # target words that the search of a batch may use, as with a shortlist;
    # default: all.
    candidates: Annotated[int | None, at_least(2)] = None


@dataclass(frozen=True)
class AgainstConfig:
    """How another program is measured and compared with this one."""

    against: Literal["joeynmt", "opennmt"] | None = None  # the other program
    peer_python: Path = Path(sys.executable)  # the Python that has it installed
    work: Path = Path("runs/against")  # folder for text, models and what they print
    text: Path | None = None  # folder of {train,valid,test}.*; default: made up
    languages: tuple[str, str] = ("src", "trg")  # endings of the files in --text
    test: str = "test"  # name of the files to translate, without ending
    pairs: Annotated[int, at_least(1)] = 8000  # most pairs to train on
    valid_pairs: Annotated[int, at_least(1)] = 400  # most pairs to validate on
    lines: Annotated[int, at_least(1)] = 200  # most lines to translate
    longest: Annotated[int, at_least(1)] = 60  # most words; longer pairs are left out
    epochs: Annotated[int, at_least(1)] = 1
    turns: Annotated[int, at_least(1)] = 5  # how often both are run
    threads: Annotated[int | None, at_least(1)] = None  # default: as many as cores
    # run directory, or a checkpoint in one, that translates; default: train one
    ours: Path | None = None
    theirs: Path | None = None  # the other program's model
    # a table of kvnmt shortlist for --ours; its speed is shown next to exact search.
    shortlist: Path | None = None


def check(config: BenchmarkConfig) -> None:
    """Refuses what cannot be measured, before any work and without any device.

    Raises:
        UserError: A number is out of its bounds, a system is not known, or nothing is
            left to measure.
    """
    check_fields(config)
    if not config.systems:
        raise UserError("no system is named; give --systems at least one.")
    for name in config.systems:
        system(name)
        if config.systems.count(name) > 1:
            raise UserError(f"--systems names {name} twice; name it once.")
    check_no_mechanism(config.model, "look at one such model with kvnmt compile")
    if not (config.train or config.decode):
        raise UserError("nothing is measured; give --decode, or leave out --no-train.")
    for name in config.systems:
        if config.decode and system(name).is_language_model:
            raise UserError(f"{name} is a language model; leave it out, or --decode.")
    if config.candidates and not config.decode:
        raise UserError("--candidates are of translating; give --decode too.")
    if config.candidates and config.candidates > config.vocabulary:
        raise UserError(
            f"--candidates is {config.candidates} but the vocabulary has "
            f"{config.vocabulary} words."
        )
    searches = {
        "beams": [SearchConfig(beam=number) for number in config.beams],
        "batches": [SearchConfig(batch_size=number) for number in config.batches],
    }
    for name, several in searches.items():
        if not several:
            raise UserError(f"--{name} names nothing; name at least one.")
        for one in several:
            try:
                check_fields(one)
            except OptionError as error:
                raise UserError(f"--{name}: {error}") from None


def check_used(config: BenchmarkConfig) -> None:
    """Refuses what does nothing where systems are measured beside each other.

    Raises:
        OptionError: Something was given that does nothing.
    """
    check_searched(config)
    start, idle = BenchmarkConfig(), []
    if not config.train:
        of_steps = *(option.name for option in fields(StepOptions)), "target_length"
        why = "{0} is of training; leave out either it or --no-train."
        idle.append(Idle((*of_steps, "batch_size", "split"), why))
    check_given(config, idle, start)
    refusals = []
    for name in config.systems:
        model, usual = (system(name).model(each.model) for each in (config, start))
        whole = replace(config, model=model), replace(start, model=usual)
        refusals.append(unused(*whole))
    for path, refusal in refusals[0].items():
        if all(path in others for others in refusals):  # else another system uses it
            raise refusal
    named = [system(name) for name in config.systems]
    models = [one.model(config.model) for one in named]
    check_parts(_of_all(map(idle_sizes, models)), config, start)
    objectives = [one.objective() for one in named]
    check_given(config, _of_all(map(idle_steps, models, objectives)), start)


def check_searched(config: BenchmarkConfig) -> None:
    """Refuses how to translate where nothing is translated.

    Raises:
        OptionError: Something was given that does nothing.
    """
    why = "{0} are of translating; give {1} too."
    idle = [] if config.decode else [Idle(("beams", "batches"), why, ("decode",))]
    check_given(config, idle, BenchmarkConfig())


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
    check_fields(against)
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
    if against.ours and against.theirs:
        check_run(chosen(against.ours)[0])
        for path in filter(None, (against.theirs, against.shortlist)):
            if not path.exists():
                raise UserError(f"'{path}' is not there; name what was made before.")
    if against.threads and not hasattr(os, "sched_setaffinity"):
        raise UserError(
            "this system cannot hold a program on --threads cores; leave it out."
        )
    check_beside(config, against)
    if against.work.exists() and not against.work.is_dir():
        raise UserError(f"'{against.work}' is no folder; choose another --work.")
    if against.work.exists() and any(against.work.iterdir()):
        raise UserError(
            f"'{against.work}' is not empty; choose another --work, or remove it."
        )


def check_beside(config: BenchmarkConfig, against: AgainstConfig) -> None:
    """Refuses what does nothing where two programs are measured.

    Raises:
        UserError: Something was given that does nothing.
    """
    start = BenchmarkConfig()
    check_searched(config)
    of_steps = (option.name for option in fields(StepOptions))
    sizes = "source_length", "target_length", "fill", "vocabulary", "repeats", "split"
    why = "{0} is of systems beside each other; leave out either it or {1}."
    idle = [Idle((*of_steps, *sizes), why, ("against",))]
    check_given(config, idle, start)
    if not config.decode:
        why = "{0} is of what is translated; give --decode too."
        check_given(against, [Idle(("lines", "test"), why)], AgainstConfig())
    if against.text is None:
        why = "{0} is of the files in {1}; give {1} too."
        check_given(
            against, [Idle(("languages", "test"), why, ("text",))], AgainstConfig()
        )
    if config.systems != start.systems and len(config.systems) > 1:
        raise UserError("--against measures one system; name one with --systems.")
    if against.ours:
        why = "{0} are of training, and {1} has been trained; leave one of them out."
        trains = "epochs", "pairs", "valid_pairs"
        check_given(against, [Idle(trains, why, ("ours",))], AgainstConfig())
        same = replace(config, decode=start.decode, beams=start.beams, train=True)
        if replace(same, batches=start.batches, seed=start.seed) != start:
            raise UserError(
                "--ours is a model; leave out --systems, --model and --batch-size."
            )
        return
    model = config.model
    rates = Dropout(embedding=model.dropout.embedding, output=model.dropout.output)
    passed = ModelConfig(
        embedding=model.embedding,
        encoder=model.encoder,
        state=model.state,
        dropout=rates,
    )
    if model != passed:
        raise UserError(
            "with --against, --model has embedding, encoder, state, dropout.embedding "
            "and dropout.output alone: what both programs have; leave out the others."
        )


def _of_all(several: Iterable[Iterable[T]]) -> list[T]:
    """What is in each of them."""
    first, *others = map(list, several)
    return [one for one in first if all(one in more for more in others)]
