# SPDX-License-Identifier: Apache-2.0
"""Laws of every measure: little input, odd input, and what people are told."""

import json
import math
from pathlib import Path

import pytest

from kvnmt.evaluation.links import parse_pharaoh
from kvnmt.experiment import load_run
from kvnmt.measures import MEASURES, LackingError, Report, System, Test, table
from tests.helpers import toy_lines, trained, untrained

DOCS = Path(__file__).parents[1] / "docs" / "evaluation.md"
LINES = ["", "a", *toy_lines(5, 2)]


def outputs(lines: list[str], *runs: Path) -> list[System]:
    """A perfect system, one that says nothing, and runs that say nothing either."""
    silent = [""] * len(lines)
    made = [
        System("perfect", lambda: [line.upper() for line in lines]),
        System("silent", lambda: silent),
    ]
    return made + [System(run.name, lambda: silent, load_run(run)) for run in runs]


def reports(name: str, test: Test, systems: list[System]) -> list[Report]:
    found = MEASURES[name](test, systems)
    return [found] if isinstance(found, Report) else found


@pytest.mark.parametrize("name", MEASURES)
def test_references_alone_are_enough_or_lacking_is_told(name):
    references = [line.upper() for line in LINES]
    try:
        found = reports(name, Test(references), outputs(LINES))
    except LackingError as lacking:
        assert name not in ("score", "significance")
        assert str(lacking)
        return
    assert all(report.rows for report in found)


@pytest.mark.parametrize(
    "lines", [LINES, ["a b"], [""]], ids=["several", "one", "none"]
)
@pytest.mark.parametrize("name", MEASURES)
def test_whatever_is_there_is_measured(name, lines, tmp_path_factory):
    """One sentence, empty ones, outputs of nothing: figures, and finite ones."""
    base = tmp_path_factory.getbasetemp()
    looking = untrained(base, "self-attentive-residual")
    systems = outputs(lines, trained(base), looking)
    test = Test([line.upper() for line in lines], lines)
    test.gold = [parse_pharaoh("0-0" if line else "") for line in lines]
    test.aligners = {"gold": test.gold}
    test.reverse = load_run(untrained(base, "rnnsearch-star", turned=True))
    for report in reports(name, test, systems):
        assert report.rows or not any(lines)
        assert table(report).row_count == len(report.rows)
        plain = json.dumps(report.rows)
        assert "NaN" not in plain and "Infinity" not in plain
        for row in report.rows:
            for value in row.values():
                assert not isinstance(value, float) or math.isfinite(value)


@pytest.mark.parametrize("name", MEASURES)
def test_every_measure_is_explained(name):
    assert f"| `{name}` |" in DOCS.read_text(encoding="utf-8")
