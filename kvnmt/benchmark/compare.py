# SPDX-License-Identifier: Apache-2.0
"""A measurement compared with an older one: faster, slower, or no difference seen.

Each speed is divided by a yardstick from the same run, so that a day on which the whole
machine was slower does not count. The yardstick is the matrix peak of one device in
float32, whatever type the systems computed with. The rule: a ratio of two figures lies
between lower over upper quartile and upper over lower quartile; the ratio of speeds is
divided by that of yardsticks. If this whole range is above 1, the new one is faster; if
it is below 1, the new one is slower. Otherwise no difference was seen, which does not
mean that there is none.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import jax

from kvnmt.benchmark.config import BenchmarkConfig
from kvnmt.benchmark.report import Report, planned, speeds, to_plain, yardstick
from kvnmt.benchmark.rounds import Spread
from kvnmt.errors import UserError, counted
from kvnmt.runs.config import leaves

Verdict: TypeAlias = Literal["faster", "slower", "no difference seen", "too few rounds"]

ONE = Spread(1.0, 1.0, 1.0)
LEAST = 4  # rounds that have quartiles
SIZES = (
    "model",
    "source_length",
    "target_length",
    "fill",
    "vocabulary",
    "batch_size",
    "candidates",
)


@dataclass(frozen=True)
class Change:
    """What became of one figure."""

    what: str
    before: float  # median
    now: float
    unit: str
    ratio: Spread  # of speed over yardstick; above 1: faster
    verdict: Verdict


def changes(report: Report, old: Mapping[str, Any]) -> list[Change]:
    """What became of every figure that both measurements have.

    Args:
        report: The new one.
        old: The old one, as plain data.
    """
    plain = to_plain(report)
    rounds = min(plain["config"]["repeats"], old["config"]["repeats"])
    ours, theirs = yardstick(plain), yardstick(old)
    assert ours and theirs  # `check_sizes` has asked
    scale = ratio_of(theirs, ours)  # how many times as fast the machine was before
    before = dict(speeds(old))
    result = []
    for (what, unit), now in speeds(plain):
        if (what, unit) in before:
            ratio = ratio_of(now, before[what, unit], scale)
            result.append(
                Change(
                    what=what,
                    before=before[what, unit].median,
                    now=now.median,
                    unit=unit,
                    ratio=ratio,
                    verdict=verdict(ratio, rounds),
                )
            )
    return result


def ratio_of(now: Spread, before: Spread, scale: Spread = ONE) -> Spread:
    """How many times as fast it is now, with what the quartiles leave open.

    Args:
        now: Speeds.
        before: Speeds of the older measurement.
        scale: The older yardstick over the newer one.
    """
    return Spread(
        low=scale.low * now.low / before.high,
        median=scale.median * now.median / before.median,
        high=scale.high * now.high / before.low,
    )


def verdict(ratio: Spread, rounds: int) -> Verdict:
    """What a ratio says, of medians of so many rounds."""
    if rounds < LEAST:
        return "too few rounds"
    if ratio.low > 1:
        return "faster"
    if ratio.high < 1:
        return "slower"
    return "no difference seen"


def check_sizes(config: BenchmarkConfig, old: Mapping[str, Any], path: Path) -> None:
    """Refuses what cannot be compared with the old one, before anything is measured.

    Raises:
        UserError: A size or the number of a CPU's devices differs; it is named. Or the
            old one is of a former version, without the size of its yardstick, or has
            no figure that will be measured.
    """
    if yardstick(old) is None:
        raise UserError(
            f"'{path}' does not tell the float32 product that machines are compared "
            "by; measure it again with this version."
        )
    plain = json.loads(json.dumps(asdict(config)))
    # What an older version did not know was as it is by default.
    usual = leaves(json.loads(json.dumps(asdict(BenchmarkConfig()))))
    now, before = leaves(plain), usual | leaves(old["config"])
    for name, value in now.items():
        is_size = name.split(".")[0] in SIZES
        if is_size and value != before.get(name):
            raise UserError(
                f"'{path}' was measured with --{name.replace('_', '-')} "
                f"{before.get(name)}, not {value}; give the same sizes to compare."
            )
    if planned(config).isdisjoint(dict(speeds(old))):
        raise UserError(
            f"'{path}' has no figure that would be measured now; give the same "
            "--systems, and --decode with the same --beams and --batches."
        )
    here, there = jax.device_count(), old["devices"]
    if jax.devices()[0].platform == "cpu" == old["device"] and here != there:
        raise UserError(
            f"'{path}' was measured with {counted(there, 'device')} of a CPU, not "
            f"{here}, as by --no-train or without; do as then to compare."
        )
