# SPDX-License-Identifier: Apache-2.0
"""Results that are kept, of a table that there is not."""

import json
from pathlib import Path

from experiments.harness.summaries import Summary
from kvnmt.evaluation.base import Column

COLUMNS = (Column("bleu", "BLEU", "{:.2f}"), Column("parameters", "size", "{:,}"))
SUMMARY = Summary("mine", COLUMNS, published={"rnnsearch-star, scratch": "36.53"})
MEASURED = {"measured": "2026-01-01", "device": "1 x cpu", "commit": "0123456789abcdef"}


def keep(kept: Path, name: str, **figures: object) -> None:
    folder = kept / "mine"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(MEASURED | figures))


def row(seed: int, bleu: float, start: str = "scratch") -> dict[str, object]:
    named = {"system": "rnnsearch-star", "start": start, "seed": seed}
    return named | {"bleu": bleu, "parameters": 1234567}
