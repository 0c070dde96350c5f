# SPDX-License-Identifier: Apache-2.0
"""What people see of a training."""

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from kvnmt.training import display
from kvnmt.training.job import Job
from tests.helpers import FullDisk

RECORD = {
    "epoch": 1.0,
    "step": 4,
    "train_loss": 2.5,
    "valid_loss": 2.0,
    "skipped": 0,
    "learning_rate": 0.00061,
    "tokens_per_second": 1234.5,
}


@pytest.mark.parametrize(
    ("rate", "speed"), [(1234.5, "1,234 target tokens/s"), (0.0, "compiling")]
)
def test_a_rate_is_told_once_there_is_one(rate, speed):
    """Steps that compile their program are not timed."""
    assert display.running(2.5, 0, 0.25, rate) == f"loss 2.500  25% padding  {speed}"
    line = display.validated(RECORD | {"tokens_per_second": rate}, better=True)
    assert line.endswith(f"perplexity 7.4  rate 0.00061  {speed}  best")
    scores = {"valid_bleu": 12.5, "valid_chrf": 34.0}
    line = display.validated(RECORD | scores, better=False)
    assert "valid loss 2.000  BLEU 12.50  chrF 34.00  rate" in line


def test_a_message_is_printed_as_it_is(tmp_path):
    """A path in brackets is no markup, and a full disk of the log ends nothing."""

    job = SimpleNamespace(console=Console(file=io.StringIO()), folder=tmp_path)
    Job.tell(job, "checkpoint '/exp[best]/[/y]' is damaged")
    assert job.console.file.getvalue() == "checkpoint '/exp[best]/[/y]' is damaged\n"
    Job.tell(SimpleNamespace(console=Console(file=FullDisk()), folder=tmp_path), "any")
    assert len((tmp_path / "train.log").read_text().splitlines()) == 2
