# SPDX-License-Identifier: Apache-2.0
"""What is measured: systems, their sizes, the batch, how often."""

from dataclasses import dataclass, field
from typing import Annotated

from kvnmt import devices
from kvnmt.errors import UserError, at_least, between, check_bounds
from kvnmt.model_config import ModelConfig
from kvnmt.systems.named import system
from kvnmt.training.step import StepOptions

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


def check(config: BenchmarkConfig) -> None:
    """Refuses what cannot be measured, before any work.

    Raises:
        UserError: A number is out of its bounds, a system is not known, or the batch
            cannot be split over the devices.
    """
    check_bounds(config)
    if not config.systems:
        raise UserError("no system is named; give --systems at least one.")
    for name in config.systems:
        system(name)
    if config.train:
        share = devices.rows(devices.data_mesh()) * config.accumulate
        devices.check_rows(config.batch_size, share, "devices and parts")
    if config.decode:
        for flag, numbers in (("beams", config.beams), ("batches", config.batches)):
            if not numbers or min(numbers) < 1:
                raise UserError(f"--{flag} must be numbers of at least 1.")
