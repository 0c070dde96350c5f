# SPDX-License-Identifier: Apache-2.0
"""Train-step speed of systems beside each other, on whatever device is there.

Compiling is timed apart. Steps of the systems alternate, so that a machine whose
speed drifts slows all of them alike, and the ratio to the first system can be
trusted where absolute times cannot. Tokens are real target tokens, EOS included.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, NamedTuple

import jax
import numpy as np
import optax
from rich.table import Table

from kvnmt import devices, models
from kvnmt.data.batches import Batch, pad, with_end
from kvnmt.errors import UserError, at_least, between, check_bounds
from kvnmt.model_config import ModelConfig
from kvnmt.systems.named import system
from kvnmt.training import step as steps
from kvnmt.training.device_memory import program_bytes
from kvnmt.training.step import StepOptions, TrainState
from kvnmt.typing import Array

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
    repeats: Annotated[int, at_least(1)] = 10  # timed steps of each system
    seed: Annotated[int, at_least(0)] = 1


class Row(NamedTuple):
    """Figures of one system."""

    system: str
    parameters: int
    compile_seconds: float
    step_seconds: float  # median
    tokens_per_second: float
    relative: float  # tokens per second over those of the first system
    memory_bytes: int | None  # what the step needs at once; None: not known here


class CompiledStep(NamedTuple):
    """A train step of one system, ready to run."""

    system: str
    parameters: int
    compile_seconds: float
    memory_bytes: int | None  # None: not known here
    run: Callable[[TrainState, Array, Array], tuple[TrainState, steps.Metrics]]
    state: TrainState  # before the first step


def measure(
    config: BenchmarkConfig, advance: Callable[[str], None] = lambda what: None
) -> list[Row]:
    """Measures every system of the config.

    Args:
        config: What to measure.
        advance: Told of every piece of work before it starts.
    """
    check_bounds(config)
    if not config.systems:
        raise UserError("no system is named; give --systems at least one.")
    for name in config.systems:
        system(name)  # an unknown name is an error before any work
    mesh = devices.data_mesh()
    share = devices.rows(mesh) * config.accumulate
    devices.check_rows(config.batch_size, share, "devices and parts")
    batch = random_batch(config)
    arrays = devices.split_rows(batch, mesh)
    compiled = []
    for name in config.systems:
        advance(f"compiling {name}")
        compiled.append(compile_step(config, name, arrays))
    times = time_steps(compiled, arrays, config.repeats, advance)
    return rows_of(compiled, times, tokens=int(np.sum(batch.target >= 0)))


def rows_of(
    compiled: Sequence[CompiledStep], times: Sequence[Sequence[float]], tokens: int
) -> list[Row]:
    """The figures of systems, from what they were measured at.

    Args:
        compiled: Their steps; all others are compared to the first.
        times: Seconds of every timed step of each.
        tokens: Real target tokens of a step.
    """
    medians = [statistics.median(seconds) for seconds in times]
    return [
        Row(
            system=step.system,
            parameters=step.parameters,
            compile_seconds=step.compile_seconds,
            step_seconds=seconds,
            tokens_per_second=tokens / seconds,
            relative=medians[0] / seconds,
            memory_bytes=step.memory_bytes,
        )
        for step, seconds in zip(compiled, medians)
    ]


def table(rows: Sequence[Row], config: BenchmarkConfig) -> Table:
    """The figures as people read them."""
    device = f"{jax.device_count()} x {jax.devices()[0].device_kind}"
    result = Table(
        "system",
        "parameters",
        "compile s",
        "step ms",
        "target tokens/s",
        f"x {rows[0].system}",
        "memory MiB",
        title=f"{device}, batch {config.batch_size} x {config.source_length} x "
        f"{config.target_length}, vocabulary {config.vocabulary}, {config.dtype}, "
        f"remat {config.remat}, {config.accumulate} parts",
        box=None,
    )
    for row in rows:
        memory = "-" if row.memory_bytes is None else f"{row.memory_bytes / 2**20:,.0f}"
        result.add_row(
            row.system,
            f"{row.parameters:,}",
            f"{row.compile_seconds:.1f}",
            f"{1000 * row.step_seconds:.1f}",
            f"{row.tokens_per_second:,.0f}",
            f"{row.relative:.2f}",
            memory,
        )
    return result


def random_batch(config: BenchmarkConfig) -> Batch:
    """A batch of random words whose lengths average ``fill`` of the padded ones."""
    random = np.random.default_rng(config.seed)

    def side(length: int) -> np.ndarray:
        least = max(1, round((2 * config.fill - 1) * length))
        sizes = random.integers(least, length + 1, config.batch_size)
        words = (random.integers(2, config.vocabulary, n - 1) for n in sizes)
        return pad([with_end(ids.tolist()) for ids in words], config.batch_size, length)

    return Batch(side(config.source_length), side(config.target_length))


def compile_step(
    config: BenchmarkConfig, name: str, arrays: tuple[Array, Array]
) -> CompiledStep:
    """Compiles the train step of a system for a batch, and times that."""
    chosen = system(name)
    words = config.vocabulary
    model = models.build(chosen.model(config.model), words, words)
    update = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-3))
    params = jax.jit(model.init)(jax.random.key(config.seed))
    mesh, key = devices.data_mesh(), jax.random.key(config.seed)
    state = devices.replicate(steps.init_state(params, update, config), mesh)
    step = steps.make_train_step(model, chosen.objective(), update, key, config, mesh)
    start = time.perf_counter()
    program = step.lower(state, *arrays).compile()
    seconds = time.perf_counter() - start
    return CompiledStep(
        system=name,
        parameters=models.count_parameters(params),
        compile_seconds=seconds,
        memory_bytes=program_bytes(program),
        run=partial(program, step.key),
        state=state,
    )


def time_steps(
    compiled: Sequence[CompiledStep],
    arrays: tuple[Array, Array],
    repeats: int,
    advance: Callable[[str], None] = lambda what: None,
    clock: Callable[[], float] = time.perf_counter,
) -> list[list[float]]:
    """Times rounds of one step of each system, after two that do not count.

    Args:
        compiled: The steps.
        arrays: The batch.
        repeats: Timed rounds.
        advance: Told of every round before it starts.
        clock: Gives the time in seconds.

    Returns:
        The seconds of every timed step of each system.
    """
    states = [step.state for step in compiled]
    times: list[list[float]] = [[] for _ in compiled]
    for repeat in range(repeats + 2):
        advance(f"round {max(repeat - 1, 0)} of {repeats}")
        for i, step in enumerate(compiled):
            start = clock()
            states[i], metrics = step.run(states[i], *arrays)
            jax.block_until_ready((states[i], metrics))
            if repeat >= 2:
                times[i].append(clock() - start)
    return times
