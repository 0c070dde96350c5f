# SPDX-License-Identifier: Apache-2.0
"""Train steps of several systems, timed together, and the parts of a step.

A part is the step itself with fewer results: the loss alone needs only the forward
pass; the loss and the norm of the gradient need the forward and the backward pass. What
is not asked for is not computed, so that there is no second version of the step.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from kvnmt import devices
from kvnmt.benchmark.config import BenchmarkConfig
from kvnmt.benchmark.rounds import Lane, Spread, per_second, spread
from kvnmt.data.batches import Batch, pad, with_end
from kvnmt.model import assembly
from kvnmt.model.assembly import Model, Params
from kvnmt.systems.named import system
from kvnmt.systems.products import multiplications, needed
from kvnmt.training import step as steps
from kvnmt.training.device_memory import program_bytes
from kvnmt.training.freezing import check_frozen
from kvnmt.training.step import TrainState, TrainStep
from kvnmt.typing import Array, PyTree

OPTIMIZER = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-3))


@dataclass(frozen=True)
class Split:
    """Median seconds of the parts of a step."""

    forward: float
    backward: float
    optimizer: float


@dataclass(frozen=True)
class TrainingRow:
    """Figures of one system."""

    system: str
    parameters: int
    memory_bytes: int | None  # what a step needs at once; None: not known here
    compile_seconds: float
    step_seconds: Spread
    source_tokens_per_second: Spread  # real ones, EOS included
    target_tokens_per_second: Spread
    relative: Spread  # speed over that of the first system, round by round
    flops: float  # of the matrix products of a step, nothing computed twice
    share: float  # of the matrix peak, at the median
    split: Split | None


class CompiledSystem(NamedTuple):
    """The programs of one system."""

    system: str
    parameters: int
    memory_bytes: int | None
    compile_seconds: float  # of the step
    flops: float
    lanes: tuple[Lane, ...]  # the step; with a split also gradient and forward pass


def random_batch(config: BenchmarkConfig) -> Batch:
    """A batch of random words whose lengths average ``fill`` of the padded ones."""
    random = np.random.default_rng(config.seed)

    def side(length: int) -> np.ndarray:
        sizes = random.permutation(_lengths(config, length))
        words = (random.integers(2, config.vocabulary, n - 1) for n in sizes)
        return pad([with_end(ids.tolist()) for ids in words], config.batch_size, length)

    return Batch(side(config.source_length), side(config.target_length))


def compile_system(
    config: BenchmarkConfig, name: str, arrays: tuple[Array, Array]
) -> CompiledSystem:
    """Compiles the programs of a system for a batch; times that of the step."""
    model, mesh = build(config, name), devices.data_mesh()
    params = model.init(jax.random.key(config.seed))
    check_frozen(params, config.frozen, "frozen")
    params = devices.replicate(params, mesh)
    step, start = train_step(config, name), partial(first_state, config)
    state = devices.replicate(start(jax.tree.map(jnp.copy, params)), mesh)
    begin = time.perf_counter()
    program = step.lower(state, *arrays).compile()
    seconds = time.perf_counter() - begin
    lanes = [Lane(lambda last: program(step.key, last[0], *arrays), (state, None))]
    if config.split:
        parts = _parts(step, start)
        lanes += [_lane(part, params, arrays) for part in parts]
    return CompiledSystem(
        system=name,
        parameters=assembly.count_parameters(params),
        memory_bytes=program_bytes(program),
        compile_seconds=seconds,
        flops=flops_of(config, name),
        lanes=tuple(lanes),
    )


def build(config: BenchmarkConfig, name: str) -> Model:
    """The model of a system at the sizes of a config."""
    words = config.vocabulary
    return assembly.build(system(name).model(config.model), words, words)


def train_step(config: BenchmarkConfig, name: str) -> TrainStep:
    """The train step of a system, over all devices."""
    return steps.make_train_step(
        build(config, name),
        system(name).objective(),
        OPTIMIZER,
        jax.random.key(config.seed),
        config,
        devices.data_mesh(),
    )


def first_state(config: BenchmarkConfig, params: Params) -> TrainState:
    """The state before the first step."""
    return steps.init_state(params, OPTIMIZER, config)


def flops_of(config: BenchmarkConfig, name: str) -> float:
    """Operations of the matrix products of a step, on all devices together.

    What is computed again to save memory is no work of the model, and not counted.
    """
    plain = replace(config, remat=0, residuals="products", products="apart")

    def state() -> TrainState:
        key = jax.random.key(config.seed)
        return first_state(plain, build(plain, name).init(key))

    lengths = (config.source_length, config.target_length)
    ids = [jax.ShapeDtypeStruct((config.batch_size, n), jnp.int32) for n in lengths]
    step = train_step(plain, name)
    traced = step.program.trace(step.key, jax.eval_shape(state), *ids)
    return 2.0 * multiplications(needed(traced.jaxpr.jaxpr))


def training_rows(
    systems: Sequence[CompiledSystem],
    times: Sequence[Sequence[Sequence[float]]],
    batch: Batch,
    peak: float,
) -> list[TrainingRow]:
    """The figures of systems, from what they were measured at.

    Args:
        systems: Their programs; all others are compared to the first.
        times: Seconds of every round of each lane of each system.
        batch: What was trained on.
        peak: Operations a second that the devices can do.
    """
    source, target = (int(np.sum(side >= 0)) for side in batch)
    rows = []
    for compiled, lanes in zip(systems, times):
        seconds = spread(lanes[0])
        rows.append(
            TrainingRow(
                system=compiled.system,
                parameters=compiled.parameters,
                memory_bytes=compiled.memory_bytes,
                compile_seconds=compiled.compile_seconds,
                step_seconds=seconds,
                source_tokens_per_second=per_second(source, seconds),
                target_tokens_per_second=per_second(target, seconds),
                relative=spread([a / b for a, b in zip(times[0][0], lanes[0])]),
                flops=compiled.flops,
                share=compiled.flops / seconds.median / peak,
                split=_split(*lanes) if len(lanes) == 3 else None,
            )
        )
    return rows


def _lengths(config: BenchmarkConfig, length: int) -> np.ndarray:
    """As many lengths as sentences, spread evenly around ``fill`` of the longest."""
    least = max(1, round((2 * config.fill - 1) * length))
    places = (np.arange(config.batch_size) + 0.5) / config.batch_size
    return least + np.floor(places * (length + 1 - least)).astype(int)


def _parts(
    step: TrainStep, start: Callable[[Params], TrainState]
) -> tuple[Callable[..., PyTree], ...]:
    """The gradient and the forward pass of a step."""

    def gradient(params: Params, *arrays: Array) -> tuple[Array, Array]:
        metrics = step(start(params), *arrays)[1]
        return metrics.loss.total, metrics.gradient_norm

    def forward(params: Params, *arrays: Array) -> Array:
        return step(start(params), *arrays)[1].loss.total

    return gradient, forward


def _lane(
    part: Callable[..., PyTree], params: Params, arrays: tuple[Array, Array]
) -> Lane:
    run = jax.jit(part).lower(params, *arrays).compile()
    return Lane(lambda last: run(params, *arrays))


def _split(
    step: Sequence[float], gradient: Sequence[float], forward: Sequence[float]
) -> Split:
    """Medians of the differences within a round."""
    return Split(
        forward=statistics.median(forward),
        backward=statistics.median([a - b for a, b in zip(gradient, forward)]),
        optimizer=statistics.median([a - b for a, b in zip(step, gradient)]),
    )
