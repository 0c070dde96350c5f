# SPDX-License-Identifier: Apache-2.0
"""One measurement from beginning to end, and the file that keeps it."""

import itertools
import json
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any

import jax

from kvnmt import __version__, devices
from kvnmt.benchmark.config import BenchmarkConfig, check, check_devices
from kvnmt.benchmark.decoding import (
    DecodingRow,
    check_programs,
    decoders,
    decoding_rows,
)
from kvnmt.benchmark.peak import SIZES, Product, flops_of, product
from kvnmt.benchmark.rounds import Lane, Spread, per_second, spread, time_rounds
from kvnmt.benchmark.training import (
    CompiledSystem,
    TrainingRow,
    compile_system,
    random_batch,
    training_rows,
)
from kvnmt.data.batches import Batch
from kvnmt.errors import UserError, reason_of

Advance = Callable[[str], None]
# What reading a file that is no report may raise.
BAD = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)


@dataclass(frozen=True)
class Report:
    """What was measured, and where."""

    version: str
    device: str
    devices: int
    config: BenchmarkConfig
    peak: float  # operations a second
    peak_seconds: Spread  # of the product that it was measured by
    # The same in float32, whatever is computed with: what measurements are compared by.
    yardstick: float
    yardstick_seconds: Spread
    yardstick_size: int  # rows and columns of its matrices
    training: tuple[TrainingRow, ...] = ()
    decoding: tuple[DecodingRow, ...] = ()


def measure(
    config: BenchmarkConfig,
    advance: Advance = lambda what: None,
    yardstick_size: int | None = None,
) -> Report:
    """Measures every system of the config.

    Args:
        config: What to measure.
        advance: Told of every piece of work before it starts.
        yardstick_size: Of the product that measurements are compared by; None: the
            smallest that takes long enough.

    Raises:
        UserError: The config cannot be measured.
    """
    check(config)
    check_devices(config)
    check_programs(config)
    precision = "highest" if config.precision == "float32" else None
    products = [product(config.dtype, precision=precision)]
    is_yardstick = config.dtype == "float32" and precision is None
    if not is_yardstick or yardstick_size not in (None, products[0].size):
        sizes = (yardstick_size,) if yardstick_size else SIZES
        products.append(product("float32", sizes))
    of_products: list[list[float]] = [[] for _ in products]
    systems, batch = [], random_batch(config)
    if config.train:
        systems = _compile(config, batch, advance)
    lanes = [lane for compiled in systems for lane in compiled.lanes]
    of_lanes = _time(products, lanes, config, of_products, advance)
    searches = decoders(config, advance) if config.decode else []
    lanes = [decoder.lane for decoder in searches]
    of_searches = _time(products, lanes, config, of_products, advance)
    peaks = [each.flops / min(of) for each, of in zip(products, of_products)]
    times = iter(of_lanes)
    of_systems = [[next(times) for _ in compiled.lanes] for compiled in systems]
    return Report(
        version=__version__,
        device=jax.devices()[0].device_kind,
        devices=jax.device_count(),
        config=config,
        peak=peaks[0],
        peak_seconds=spread(of_products[0]),
        yardstick=peaks[-1],
        yardstick_seconds=spread(of_products[-1]),
        yardstick_size=products[-1].size,
        training=tuple(training_rows(systems, of_systems, batch, peaks[0])),
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
        spreads = [*(figure for _, figure in speeds(report)), yardstick(report)]
        figures = [figure for each in spreads if each for figure in astuple(each)]
        if not all(0 < figure < math.inf for figure in figures):
            raise ValueError
        for number in report["config"]["repeats"], report["devices"]:
            operator.index(number)
        if report.get("yardstick_size", SIZES[0]) not in SIZES:
            raise ValueError
    except OSError as error:
        raise UserError(f"'{path}' cannot be read: {reason_of(error)}.") from None
    except BAD:
        raise UserError(
            f"'{path}' holds no measurement; write one by kvnmt benchmark --json."
        ) from None
    return report


def speeds(report: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], Spread]]:
    """Every speed of a report that is plain data, by what it is of and its unit."""
    for row in report["training"]:
        yield _training(row["system"]), Spread(**row["target_tokens_per_second"])
    for row in report["decoding"]:
        name = _decoding(row["system"], row["beam"], row["batch"])
        yield name, Spread(**row["sentences_per_second"])


def planned(config: BenchmarkConfig) -> set[tuple[str, str]]:
    """What `speeds` will tell of, before anything is measured."""
    names = {_training(system) for system in config.systems if config.train}
    if config.decode:
        searches = itertools.product(config.systems, config.beams, config.batches)
        names |= {_decoding(*search) for search in searches}
    return names


def _training(system: str) -> tuple[str, str]:
    return f"train {system}", "target tokens/s"


def _decoding(system: str, beam: int, batch: int) -> tuple[str, str]:
    return f"decode {system}, beam {beam}, batch {batch}", "sentences/s"


def yardstick(report: Mapping[str, Any]) -> Spread | None:
    """Operations a second of a float32 product, of a device, over the rounds.

    The devices of a CPU share its cores, so they count as one. None: a former version
    did not tell the size of the product.
    """
    if not (size := report.get("yardstick_size")):
        return None
    flops = flops_of(size) * (report["devices"] if report["device"] == "cpu" else 1)
    return per_second(flops, Spread(**report["yardstick_seconds"]))


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
    products: Sequence[Product],
    lanes: Sequence[Lane],
    config: BenchmarkConfig,
    of_products: Sequence[list[float]],
    advance: Advance,
) -> list[list[float]]:
    """Seconds of every round of each lane; those of a product are added to its."""
    if not lanes:
        return []
    both = [*(each.lane for each in products), *lanes]
    times = time_rounds(both, config.repeats, advance)
    for seconds, more in zip(of_products, times):
        seconds += more
    return times[len(products) :]
