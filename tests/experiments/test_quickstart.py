# SPDX-License-Identifier: Apache-2.0
"""The quickstart, on less text and for one epoch each."""

import io
import json

import pytest
from rich.console import Console

from experiments import quickstart


@pytest.mark.slow
def test_the_quickstart_trains_reports_draws_and_says_what_is_next(tmp_path):
    options = quickstart.Quickstart(tmp_path, epochs=1, warm_epochs=1, pairs=400)
    text = io.StringIO()
    runs = quickstart.main(options, Console(file=text, width=200))
    assert list(runs) == list(quickstart.SYSTEMS)
    for name in quickstart.SYSTEMS:
        metrics = (tmp_path / name / "metrics.jsonl").read_text().splitlines()
        assert len(metrics) == 1
        assert json.loads(metrics[0])["valid_loss"] > 0
    assert (tmp_path / "attention.png").read_bytes().startswith(b"\x89PNG")
    said = text.getvalue()
    for words in (
        "parameters",
        "BLEU",
        "AER",
        "dropped",
        "kvnmt explore",
        "target tokens/s",
        "arrays copied from",
    ):
        assert words in said
    assert f"kvnmt translate {tmp_path / quickstart.SYSTEMS[1]}" in said
