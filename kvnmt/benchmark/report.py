# SPDX-License-Identifier: Apache-2.0
"""One measurement from beginning to end, and the file that keeps it."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax

from kvnmt import __version__, devices
from kvnmt.benchmark.config import BenchmarkConfig, check, check_devices
from kvnmt.benchmark.decoding import DecodingRow, decoders, decoding_rows
from kvnmt.benchmark.peak import Product, product
from kvnmt.benchmark.rounds import Lane, Spread, spread, time_rounds
from kvnmt.benchmark.training import (
    CompiledSystem,
    TrainingRow,
    compile_system,
    random_batch,
    training_rows,
)
from kvnmt.data.batches import Batch
from kvnmt.errors import UserError

Advance = Callable[[str], None]


@dataclass(frozen=True)
class Report:
    """What was measured, and where."""

    version: str
    device: str
    devices: int
    config: BenchmarkConfig
    peak: float  # operations a second
    peak_seconds: Spread  # of the product that it was measured by
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
    check_devices(config)
    multiply = product(config.dtype)
    of_product: list[float] = []
    systems, batch = [], random_batch(config)
    if config.train:
        systems = _compile(config, batch, advance)
    lanes = [lane for compiled in systems for lane in compiled.lanes]
    of_lanes = _time(multiply, lanes, config, of_product, advance)
    searches = decoders(config, advance) if config.decode else []
    lanes = [decoder.lane for decoder in searches]
    of_searches = _time(multiply, lanes, config, of_product, advance)
    peak, times = multiply.flops / min(of_product), iter(of_lanes)
    of_systems = [[next(times) for _ in compiled.lanes] for compiled in systems]
    return Report(
        version=__version__,
        device=jax.devices()[0].device_kind,
        devices=jax.device_count(),
        config=config,
        peak=peak,
        peak_seconds=spread(of_product),
        training=tuple(training_rows(systems, of_systems, batch, peak)),
        decoding=tuple(decoding_rows(searches, of_searches)),
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
    known = {"config", "peak", "training", "decoding"}
    if not isinstance(report, dict) or not known <= report.keys():
        raise UserError(
            f"'{path}' holds no measurement; write one by kvnmt benchmark --json."
        )
    return report


def _compile(
    config: BenchmarkConfig, batch: Batch, advance: Advance
) -> list[CompiledSystem]:
    arrays = devices.split_rows(batch, devices.data_mesh())
    systems = []
    for name in config.systems:
        advance(f"compiling {name}")
        systems.append(compile_system(config, name, arrays))
    return systems


def _time(
    multiply: Product,
    lanes: Sequence[Lane],
    config: BenchmarkConfig,
    of_product: list[float],
    advance: Advance,
) -> list[list[float]]:
    """Seconds of every round of each lane; those of the product are added to its."""
    if not lanes:
        return []
    first, *rest = time_rounds([multiply.lane, *lanes], config.repeats, advance)
    of_product += first
    return rest
