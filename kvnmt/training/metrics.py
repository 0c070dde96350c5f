# SPDX-License-Identifier: Apache-2.0
"""What a run writes down at every validation: ``metrics.jsonl``, a line for each."""

import json
import math
from pathlib import Path
from typing import Any

NAME = "metrics.jsonl"


def add(folder: Path, record: dict[str, Any]) -> None:
    """Writes a line; a figure that is no finite number is null there."""
    plain = {k: v if math.isfinite(v) else None for k, v in record.items()}
    with (folder / NAME).open("a") as file:
        file.write(json.dumps(plain, allow_nan=False) + "\n")


def cut(folder: Path, step: int) -> None:
    """Drops the lines after a step, and a last line that was cut by a kill."""
    path, kept = folder / NAME, []
    for line in path.read_text().split("\n") if path.exists() else []:
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if record["step"] <= step:
            kept.append(line + "\n")
    path.write_text("".join(kept))
