# SPDX-License-Identifier: Apache-2.0
"""One measurement from beginning to end, and the file that keeps it."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax

from kvnmt import __version__, devices
from kvnmt.benchmark.config import BenchmarkConfig, check
from kvnmt.benchmark.decoding import DecodingRow, decoders, decoding_rows
from kvnmt.benchmark.peak import product
from kvnmt.benchmark.rounds import Lane, Spread, spread, time_rounds
from kvnmt.benchmark.training import (
    TrainingRow,
    compile_system,
    random_batch,
    training_rows,
)
from kvnmt.errors import UserError

Advance = Callable[[str], None]


@dataclass(frozen=True)
class Report:
    """What was measured, and where."""

    version: str
    device: str
    devices: int
    config: BenchmarkConfig
    peak: float | None  # operations a second; None: nothing was trained
    peak_seconds: Spread | None  # of the product that it was measured by
    training: tuple[TrainingRow, ...] = ()
    decoding: tuple[DecodingRow, ...] = ()


def measure(config: BenchmarkConfig, advance: Advance = lambda what: None) -> Report:
    """Measures every system of the config.

    Args:
        config: What to measure.
        advance: Told of every piece of work before it starts.

    Raises:
        UserError: The config cannot be measured.
    """
    check(config)
    training: Sequence[TrainingRow] = ()
    peak = seconds = None
    if config.train:
        peak, seconds, training = _train(config, advance)
    decoding = _decode(config, advance) if config.decode else ()
    return Report(
        version=__version__,
        device=jax.devices()[0].device_kind,
        devices=jax.device_count(),
        config=config,
        peak=peak,
        peak_seconds=seconds,
        training=tuple(training),
        decoding=tuple(decoding),
    )


def to_plain(report: Report) -> dict[str, Any]:
    """A report as plain data, as a file keeps it."""
    return json.loads(json.dumps(asdict(report)))


def read(path: Path) -> dict[str, Any]:
    """A report that was kept, as plain data.

    Raises:
        UserError: It cannot be read, or is none.
    """
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"'{path}' cannot be read: {error.strerror}.") from None
    except ValueError:
        report = None
    if not isinstance(report, dict) or not {"config", "training"} <= report.keys():
        raise UserError(
            f"'{path}' holds no measurement; write one by kvnmt benchmark --json."
        )
    return report


def _train(
    config: BenchmarkConfig, advance: Advance
) -> tuple[float, Spread, Sequence[TrainingRow]]:
    """The matrix peak, its product's seconds, and the rows: of the same rounds."""
    batch = random_batch(config)
    arrays = devices.split_rows(batch, devices.data_mesh())
    systems = []
    for name in config.systems:
        advance(f"compiling {name}")
        systems.append(compile_system(config, name, arrays))
    multiply = product(config.dtype)
    lanes: list[Lane] = [multiply.lane]
    for compiled in systems:
        lanes += compiled.lanes
    times = iter(time_rounds(lanes, config.repeats, advance))
    of_product = next(times)
    peak = multiply.flops / min(of_product)
    of_systems = [[next(times) for _ in compiled.lanes] for compiled in systems]
    rows = training_rows(systems, of_systems, batch, peak)
    return peak, spread(of_product), rows


def _decode(config: BenchmarkConfig, advance: Advance) -> Sequence[DecodingRow]:
    ready = decoders(config, advance)
    times = time_rounds([each.lane for each in ready], config.repeats, advance)
    return decoding_rows(ready, times)
