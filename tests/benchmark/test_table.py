# SPDX-License-Identifier: Apache-2.0
"""People see the figures that were measured, and where published ones come from."""

import dataclasses
import io

import pytest
from rich.console import Console

from kvnmt.benchmark.against import Against, Figures, row_of
from kvnmt.benchmark.compare import Change
from kvnmt.benchmark.config import BenchmarkConfig
from kvnmt.benchmark.decoding import DecodingRow
from kvnmt.benchmark.report import Report
from kvnmt.benchmark.rounds import Spread
from kvnmt.benchmark.table import Shown, of_both, of_systems
from kvnmt.benchmark.training import Split, TrainingRow
from tests.benchmark.tasks import small_task

TRAINED = TrainingRow(
    system="kvmematt-r1",
    parameters=1234567,
    memory_bytes=3 * 2**20,
    compile_seconds=12.34,
    step_seconds=Spread(0.05, 0.0567, 0.06),
    source_tokens_per_second=Spread(8000, 9870, 9999),
    target_tokens_per_second=Spread(8100, 8910, 9100),
    relative=Spread(0.4, 0.45, 0.5),
    flops=1e9,
    share=0.384,
    split=Split(0.0111, 0.0222, 0.0033),
)
DECODED = DecodingRow(
    system="kvmematt-r1",
    beam=7,
    batch=16,
    compile_seconds=3.21,
    batch_seconds=Spread(0.1, 0.1234, 0.2),
    sentences_per_second=Spread(80, 129.7, 160),
    words_per_second=Spread(800, 1297, 1600),
    relative=Spread(0.4, 0.87, 0.5),
)
REPORT = Report(
    version="1",
    device="some device",
    devices=8,
    config=BenchmarkConfig(batch_size=16),
    peak=170e9,
    peak_seconds=Spread(0.02, 0.021, 0.022),
    yardstick=170e9,
    yardstick_seconds=Spread(0.02, 0.021, 0.022),
    yardstick_size=1024,
    training=(TRAINED,),
    decoding=(DECODED,),
)


def text(shown: Shown) -> str:
    file = io.StringIO()
    console = Console(file=file, width=400)
    for table in shown.tables:
        console.print(table)
    return file.getvalue() + "\n".join(shown.notes)


def test_everything_that_was_measured_is_shown():
    change = Change("train x", 1000, 1500, "t/s", Spread(1.4, 1.5, 1.6), "faster")
    said = text(of_systems(REPORT, [change]))
    for part in (
        *("kvmematt-r1", "1,234,567", " 3 ", "12.3", "56.7", "9,870", "8,910"),
        *("8,100 .. 9,100", "0.45", "38.4%", "11.1 / 22.2 / 3.3", "batch 16", "8 x "),
        *("2,263", "Meng et al. 2018", "one Tesla P40", "not measured here"),
        *(" 7 ", "123.4", "129.7", "80.0 .. 160.0", "1,297", "0.87"),
        *("170 GFLOP/s", "1.500", "1.400 .. 1.600", "faster"),
    ):
        assert part in said, part


def test_what_is_not_known_is_left_out():
    row = dataclasses.replace(TRAINED, system="mine", memory_bytes=None, split=None)
    said = text(of_systems(dataclasses.replace(REPORT, training=(row,), decoding=())))
    assert "2,263" not in said and "decoding" not in said
    assert said.split("mine")[-1].split()[1] == "-"


@pytest.mark.parametrize("high, busy", [(0.022, False), (0.03, True)])
def test_a_busy_device_is_told(high, busy):
    peak = Spread(0.02, 0.021, high)
    said = text(of_systems(dataclasses.replace(REPORT, peak_seconds=peak)))
    assert ("was not quiet" in said) is busy


@pytest.mark.parametrize("load", [0.0, 3.21])
def test_both_programs_and_their_ratio_are_shown(tmp_path, load):
    task = small_task(tmp_path)
    rows = (
        row_of("train", "target tokens/s", Figures([3000.0], [1500.0])),
        row_of("train, whole run", "seconds", Figures([30.0], [40.0])),
        row_of("x", "sentences/s", Figures([9.0], [4.0], {"ours": 31.5, "theirs": 30})),
    )
    both = Against("1", "JoeyNMT 2.3.0", task, (), "'text'", 200, 5, load, rows)
    said = text(of_both(both))
    for part in (
        *("JoeyNMT 2.3.0", "40 pairs", "2 epochs", "5 / 6 / 7", "2 threads"),
        *("3,000", "1,500", "2.00", "30.00", "40.00", "1.33", "2.25", "31.50, 30.00"),
        *("5 turns", "200 lines of 'text'"),
    ):
        assert part in said, part
    assert ("not idle (load 3.2)" in said) is (load > 1)
    assert "translated" not in text(of_both(dataclasses.replace(both, rows=rows[:2])))
