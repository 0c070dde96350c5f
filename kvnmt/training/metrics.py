# SPDX-License-Identifier: Apache-2.0
"""What a run writes down at every validation.

``metrics.jsonl`` has a line for each, ``events/`` the same for TensorBoard, and
``learning-curve.png`` shows the losses and the BLEU.
"""

import json
import math
from pathlib import Path
from typing import Any

from tensorboardX import SummaryWriter

NAME = "metrics.jsonl"
EVENTS = "events"
CURVE = "learning-curve.png"


class Log:
    """The records of one run directory."""

    def __init__(self, folder: Path, step: int):
        """Opens the records to go on after a step; later ones are dropped."""
        self.folder = folder
        if (folder / NAME).exists():
            kept = [record for record in read(folder) if record["step"] <= step]
            text = "".join(json.dumps(record) + "\n" for record in kept)
            new = folder / f"{NAME}.new"
            new.write_text(text)
            new.replace(folder / NAME)
        self._events = SummaryWriter(str(folder / EVENTS), purge_step=step + 1)

    def add(self, record: dict[str, Any]) -> None:
        """Writes a line; a figure that is no finite number is null there."""
        plain = {k: v if math.isfinite(v) else None for k, v in record.items()}
        with (self.folder / NAME).open("a") as file:
            file.write(json.dumps(plain, allow_nan=False) + "\n")
        for name in record.keys() - {"step"}:
            self._events.add_scalar(name, record[name], record["step"])

    def close(self) -> None:
        """Ends the events and draws the learning curve, if there is one."""
        from kvnmt.evaluation.plots import learning_curve  # slow to import

        self._events.close()
        if records := read(self.folder):
            learning_curve(records, self.folder / CURVE)


def read(folder: Path) -> list[dict[str, Any]]:
    """The records of a run; a last line that was cut by a kill is none."""
    path, found = folder / NAME, []
    for line in path.read_text().split("\n") if path.exists() else []:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found
