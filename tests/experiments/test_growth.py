# SPDX-License-Identifier: Apache-2.0
"""How speed grows: what is changed, and what is kept of it."""

import json
import re
from types import SimpleNamespace

import pytest

from experiments import growth
from experiments.growth import AXES, Growth, curves, point
from kvnmt.benchmark.rounds import Spread
from kvnmt.errors import UserError
from kvnmt.systems.named import SYSTEMS


@pytest.fixture
def measured(monkeypatch) -> list:
    """The configs that were measured; the second system is half as fast."""
    configs = []

    def measure(config):
        configs.append(config)
        rows = [
            SimpleNamespace(
                system=name,
                target_tokens_per_second=Spread(1, config.batch_size / n, 2),
                share=0.5 / n,
                relative=Spread(1, 1 / n, 2),
                memory_bytes=n * 2**20,
            )
            for n, name in enumerate(config.systems, 1)
        ]
        return SimpleNamespace(training=rows, peak=1e9)

    monkeypatch.setattr(growth, "measure", measure)
    monkeypatch.setattr(growth, "SYSTEMS", dict(SYSTEMS))
    return configs


def test_an_axis_changes_one_thing(measured):
    for axis, (values, _) in AXES.items():
        for value in values:
            point(axis, value)
    lengths = {(c.source_length, c.target_length) for c in measured}
    assert lengths == {(n, n) for n in (10, 25, 50, 100)}
    assert {c.batch_size for c in measured} == {16, 32, 64, 80, 128, 256, 512, 1024}
    assert {c.vocabulary for c in measured} == {1000, 5000, 10000, 20000, 50000}
    assert {c.systems[1] for c in measured} == {f"kvmematt-r{n}" for n in (1, 2, 3, 4)}


def test_results_are_kept_shown_and_drawn(measured, tmp_path, capsys):
    options = Growth(workdir=tmp_path, axes=("batch",), picture=tmp_path / "g.png")
    growth.main(options)
    result = json.loads((tmp_path / "batch-64" / "result.json").read_text())
    assert (result["axis"], result["value"]) == ("batch", 64)
    assert [row["target_tokens_per_second"] for row in result["rows"]] == [64, 32]
    assert (tmp_path / "g.png").stat().st_size > 1000
    assert re.search(r"batch 64 +64 +1 +32 +2 *\n", capsys.readouterr().out)
    assert curves([result]) == {
        "batch": {"RNNsearch*": [(64, 64)], "KVMemAtt": [(64, 32)]}
    }
    with pytest.raises(UserError, match="no axis 'batsh'; did you mean 'batch'"):
        growth.main(Growth(workdir=tmp_path, axes=("batsh",)))
