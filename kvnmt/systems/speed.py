# SPDX-License-Identifier: Apache-2.0
"""Train-step speed of systems beside each other, on whatever device is there.

Compiling is timed apart. Steps of the systems alternate, so that a machine whose
speed drifts slows all of them alike, and the ratio to the first system can be
trusted where absolute times cannot. Tokens are real target tokens, EOS included.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import numpy as np
import optax
from rich.table import Table

from kvnmt import devices, models
from kvnmt.data.batches import Batch, pad, with_end
from kvnmt.errors import Range, UserError, check_ranges
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
    batch_size: int = 80  # sentences
    source_length: int = 25  # padded, EOS included
    target_length: int = 25
    fill: float = 0.85  # share of real tokens; lengths spread evenly around it
    vocabulary: int = 10000  # words on each side
    repeats: int = 10  # timed steps of each system
    seed: int = 1


RANGES: dict[str, Range] = {
    "model.embedding": (1, None),
    "model.encoder": (1, None),
    "model.state": (1, None),
    "model.alignment": (1, None),
    "batch_size": (1, None),
    "accumulate": (1, None),
    "ema": (0, 0.999999),
    "source_length": (2, None),
    "target_length": (2, None),
    "fill": (0.5, 1),
    "vocabulary": (3, None),
    "repeats": (1, None),
    "seed": (0, None),
}


class Row(NamedTuple):
    """Figures of one system."""

    system: str
    parameters: int
    compile_seconds: float
    step_seconds: float  # median
    tokens_per_second: float
    relative: float  # tokens per second over those of the first system
    memory_bytes: int | None  # what the step needs at once; None: not known here


class _Compiled(NamedTuple):
    name: str
    parameters: int
    seconds: float
    memory: int | None
    run: Callable[[TrainState, Array, Array], tuple[TrainState, steps.Metrics]]
    state: TrainState


def measure(
    config: BenchmarkConfig, advance: Callable[[str], None] = lambda what: None
) -> list[Row]:
    """Measures every system of the config.

    Args:
        config: What to measure.
        advance: Told of every piece of work before it starts.
    """
    check_ranges(config, RANGES)
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
        compiled.append(_compile(config, name, arrays))
    times = list(_alternate(compiled, arrays, config.repeats, advance))
    tokens = int(np.sum(batch.target >= 0))
    base = statistics.median(times[0])
    return [
        Row(
            system=one.name,
            parameters=one.parameters,
            compile_seconds=one.seconds,
            step_seconds=statistics.median(seconds),
            tokens_per_second=tokens / statistics.median(seconds),
            relative=base / statistics.median(seconds),
            memory_bytes=one.memory,
        )
        for one, seconds in zip(compiled, times)
    ]


def table(rows: Sequence[Row], config: BenchmarkConfig) -> Table:
    """The figures as people read them."""
    device = f"{jax.device_count()} x {jax.devices()[0].device_kind}"
    result = Table(
        *("system", "parameters", "compile s", "step ms", "target tokens/s"),
        *(f"x {rows[0].system}", "memory MiB"),
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


def _compile(
    config: BenchmarkConfig, name: str, arrays: tuple[Array, Array]
) -> _Compiled:
    chosen = system(name)
    words = config.vocabulary
    model = models.build(chosen.model(config.model), words, words)
    update = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-3))
    params = jax.jit(model.init)(jax.random.key(config.seed))
    mesh, key = devices.data_mesh(), jax.random.key(config.seed)
    state = devices.replicate(steps.init_state(params, update, config), mesh)
    step = steps.make_train_step(model, chosen.objective(), update, key, config, mesh)
    start = time.perf_counter()
    run = step.lower(state, *arrays).compile()
    seconds = time.perf_counter() - start
    count = models.count_parameters(params)
    return _Compiled(name, count, seconds, program_bytes(run), run, state)


def _alternate(
    compiled: list[_Compiled],
    arrays: tuple[Array, Array],
    repeats: int,
    advance: Callable[[str], None],
) -> Iterator[list[float]]:
    """Times ``repeats`` rounds of one step of each, after two that do not count."""
    states = [one.state for one in compiled]
    times: list[list[float]] = [[] for _ in compiled]
    for repeat in range(repeats + 2):
        advance(f"round {max(repeat - 1, 0)} of {repeats}")
        for i, one in enumerate(compiled):
            start = time.perf_counter()
            states[i], metrics = one.run(states[i], *arrays)
            jax.block_until_ready((states[i], metrics))
            if repeat >= 2:
                times[i].append(time.perf_counter() - start)
    yield from times
