# SPDX-License-Identifier: Apache-2.0
"""Rows that train nothing, here and on another machine."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from experiments.harness.claims import Pace
from experiments.harness.rows import OtherRow

HERE = Pace(beat=0.01, late=3600, look=0.01)


def other(folder: Path, work: Callable[[], dict] = dict, *after: Path) -> OtherRow:
    return OtherRow(folder=folder, system=folder.name, work=work, after=after)


def elsewhere(folder: Path, seconds: float) -> Path:
    """Leaves the claim of another machine whose heart is silent for so long."""
    path = folder.parent / "claims" / folder.name / "1.json"
    path.parent.mkdir(parents=True)
    claim = {"by": "far:1", "machine": "another", "since": "2026-01-01 00:00 +0000"}
    path.write_text(json.dumps(claim))
    then = time.time() - seconds
    os.utime(path, (then, then))
    return path
