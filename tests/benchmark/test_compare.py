# SPDX-License-Identifier: Apache-2.0
"""A difference is told where the rounds leave nothing else open."""

import dataclasses
import json
from pathlib import Path

import pytest

from kvnmt.benchmark.compare import changes, check_sizes, ratio_of, verdict
from kvnmt.benchmark.config import BenchmarkConfig
from kvnmt.benchmark.decoding import DecodingRow
from kvnmt.benchmark.peak import flops_of
from kvnmt.benchmark.report import Report, to_plain
from kvnmt.benchmark.rounds import Spread
from kvnmt.benchmark.training import TrainingRow
from kvnmt.errors import UserError
from kvnmt.model.config import ModelConfig
from tests.helpers import DEVICES

OLD = Path("old.json")


def report(
    tokens: Spread,
    peak: float = 100.0,
    system: str = "rnnsearch-star",
    took: Spread = Spread(1, 1, 1),
    **config,
) -> Report:
    one = Spread(1, 1, 1)
    row = TrainingRow(
        system=system,
        parameters=1,
        memory_bytes=None,
        compile_seconds=1.0,
        step_seconds=one,
        source_tokens_per_second=one,
        target_tokens_per_second=tokens,
        relative=one,
        flops=1.0,
        share=0.5,
        split=None,
    )
    seconds = Spread(*(flops_of(1) / peak * each for each in dataclasses.astuple(took)))
    best = peak if config.get("dtype") is None else 8 * peak
    peaks = best, one, flops_of(1) / seconds.low, seconds, 1
    return Report("1", "cpu", 1, BenchmarkConfig(**config), *peaks, (row,))


@pytest.mark.parametrize(
    "now, rounds, said",
    [
        (Spread(111, 120, 130), 10, "faster"),
        (Spread(110, 120, 130), 10, "no difference seen"),  # quartiles touch
        (Spread(109, 120, 130), 10, "no difference seen"),
        (Spread(70, 80, 89), 10, "slower"),
        (Spread(70, 80, 90), 10, "no difference seen"),
        (Spread(200, 200, 200), 3, "too few rounds"),
        (Spread(200, 200, 200), 4, "faster"),
    ],
)
def test_verdicts(now, rounds, said):
    before = Spread(90, 100, 110)
    ratio = ratio_of(now, before)
    assert ratio == Spread(now.low / 110, now.median / 100, now.high / 90)
    assert verdict(ratio, rounds) == said


def test_a_slower_machine_makes_nothing_slower():
    old = to_plain(report(Spread(90, 100, 110), peak=400.0))
    (change,) = changes(report(Spread(45, 50, 55), peak=200.0), old)
    assert change.ratio.median == 1.0
    assert change.verdict == "no difference seen"
    assert (change.before, change.now) == (100, 50)
    (change,) = changes(report(Spread(90, 100, 110), peak=200.0), old)
    assert change.verdict == "faster"


def test_another_type_is_measured_by_the_same_yardstick():
    old = to_plain(report(Spread(90, 100, 110)))
    half = report(Spread(240, 250, 260), dtype="bfloat16")
    (change,) = changes(half, old)
    assert (change.ratio.median, change.verdict) == (2.5, "faster")
    del old["yardstick_size"]  # of a former version
    with pytest.raises(UserError, match="'old.json' does not tell the float32 product"):
        check_sizes(half.config, old, OLD)


def test_a_quiet_round_of_a_busy_machine_is_no_yardstick():
    """Both took twice as long in most rounds: nothing became slower."""
    old = to_plain(report(Spread(90, 100, 110)))
    busy = report(Spread(45, 50, 55), took=Spread(1.0, 2.0, 2.1))
    assert busy.yardstick == 100  # its best round, as before
    (change,) = changes(busy, old)
    assert change.ratio.median == pytest.approx(1.0)
    assert change.verdict == "no difference seen"


@pytest.mark.parametrize(("device", "said"), [("cpu", "slower"), ("H100", "faster")])
def test_more_devices_are_more_speed_but_on_a_cpu_they_share_its_cores(device, said):
    def measured(speed: float, devices: int) -> Report:
        made = report(Spread(speed, speed, speed))
        return dataclasses.replace(made, device=device, devices=devices)

    (change,) = changes(measured(500, 8), to_plain(measured(100, 1)))
    assert change.verdict == said


def test_what_the_yardstick_leaves_open_is_left_open():
    old = to_plain(report(Spread(100, 100, 100)))
    now = Spread(115, 115, 115)
    (change,) = changes(report(now), old)
    assert change.verdict == "faster"
    (change,) = changes(report(now, took=Spread(0.8, 1.0, 1.2)), old)
    assert change.ratio.median == pytest.approx(1.15)
    assert change.verdict == "no difference seen"


def test_decoding_is_compared_by_beam_and_batch():
    def searched(speed: float, batch: int) -> Report:
        one, figure = Spread(1, 1, 1), Spread(speed, speed, speed)
        row = DecodingRow("r", 4, batch, 1.0, one, figure, one, one)
        empty = report(one)
        return dataclasses.replace(empty, training=(), decoding=(row,))

    old = to_plain(searched(10, 8))
    (change,) = changes(searched(30, 8), old)
    assert change.ratio.median == 3 and change.verdict == "faster"
    old["devices"] = DEVICES
    same = BenchmarkConfig(decode=True, train=False, beams=(4,), batches=(1, 8))
    check_sizes(dataclasses.replace(same, systems=("r",)), old, OLD)
    for other in ({"systems": ("s",)}, {"beams": (1,)}, {"decode": False}):
        config = dataclasses.replace(same, **{"systems": ("r",), "train": True} | other)
        with pytest.raises(UserError, match="has no figure that would be measured"):
            check_sizes(config, old, OLD)


@pytest.mark.parametrize(
    "config, flag",
    [
        ({"vocabulary": 99}, "--vocabulary 10000, not 99"),
        ({"model": ModelConfig(state=8)}, "--model.state 256, not 8"),
        ({"batch_size": 8}, "--batch-size 80, not 8"),
    ],
)
def test_other_sizes_are_not_compared(config, flag):
    old = report(Spread(1, 1, 1))
    with pytest.raises(UserError, match=flag):
        check_sizes(dataclasses.replace(old.config, **config), to_plain(old), OLD)
    as_now = to_plain(old) | {"devices": DEVICES}
    check_sizes(old.config, as_now, OLD)
    with pytest.raises(UserError, match=f"with 1 device of a CPU, not {DEVICES}"):
        check_sizes(old.config, to_plain(old), OLD)
    check_sizes(old.config, to_plain(old) | {"device": "H100"}, OLD)


def test_a_size_that_an_older_version_did_not_know_was_as_by_default():
    old = to_plain(report(Spread(1, 1, 1))) | {"devices": DEVICES}
    del old["config"]["model"]["state"]
    check_sizes(BenchmarkConfig(), old, OLD)
    other = BenchmarkConfig(model=ModelConfig(state=8))
    with pytest.raises(UserError, match="--model.state 256, not 8"):
        check_sizes(other, old, OLD)


def test_a_misspelt_system_is_told_before_old_figures_are(kvnmt, tmp_path):
    old = tmp_path / "old.json"
    old.write_text(json.dumps(to_plain(report(Spread(1, 1, 1)))))
    said = kvnmt("benchmark", "--compare", old, "--systems", "rnnsearch-sta")
    assert said.status == 2 and "did you mean 'rnnsearch-star'" in said.err


def test_other_ways_to_compute_are_compared():
    figure = Spread(1, 1, 1)
    assert changes(report(figure, remat=1), to_plain(report(figure)))
